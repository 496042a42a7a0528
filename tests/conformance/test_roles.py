"""Laws of roles: those of every cluster, aggregated ones, and that nobody grants what he lacks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import APPLY, Api, Room, answers, bound, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_AGGREGATED = "rbac.authorization.k8s.io/aggregate-to-"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

SECRETS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
MAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
GRANTING = {
    "apiGroups": ["rbac.authorization.k8s.io"],
    "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
    "verbs": ["get", "create", "update", "patch"],
}


def role(name: str, *rules: Json, **more: Any) -> Json:
    """Return a role; ``more`` are further members."""
    return {"metadata": {"name": name}, "rules": list(rules), **more}


def binding(name: str, kind: str, wanted: str, user: str = "jane") -> Json:
    """Return a binding of a role to a user."""
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": wanted},
        "subjects": [{"kind": "User", "name": user}],
    }


# ------------------------------------------------------------------ view, edit, admin

MAY: dict[str, set[tuple[str, str, str]]] = {
    "view": {("", "get", "pods"), ("", "list", "configmaps"), ("apps", "get", "deployments")},
    "edit": {
        ("", "get", "secrets"),
        ("", "create", "pods"),
        ("", "create", "pods/exec"),
        ("", "impersonate", "serviceaccounts"),
        ("apps", "patch", "deployments/scale"),
    },
    "admin": {
        ("rbac.authorization.k8s.io", "create", "rolebindings"),
        ("authorization.k8s.io", "create", "localsubjectaccessreviews"),
    },
    "": {
        ("", "update", "resourcequotas"),
        ("", "update", "namespaces"),
        ("", "get", "nodes"),
        ("rbac.authorization.k8s.io", "bind", "clusterroles"),
        ("rbac.authorization.k8s.io", "escalate", "roles"),
        ("agents.x-k8s.io", "get", "sandboxes"),
    },
}


async def allowed(api: Api, user: str, namespace: str) -> set[tuple[str, str, str]]:
    """Return what a user may do of everything in ``MAY``."""
    found = set()
    for right in set.union(*MAY.values()):
        group, verb, full = right
        resource, _, below = full.partition("/")
        wanted = {"group": group, "verb": verb, "resource": resource, "subresource": below}
        spec = {"user": user, "resourceAttributes": {**wanted, "namespace": namespace}}
        if (await api.post(_REVIEWS, {"spec": spec})).ok()["status"]["allowed"]:
            found.add(right)
    return found


@pytest.mark.parametrize("name", ["view", "edit", "admin"])
async def test_the_roles_for_users_allow_what_they_say(room: Room, name: str) -> None:
    """Each allows what those before it do: Secrets are not for viewers, roles not for editors."""
    base = f"{_RBAC}/namespaces/{room.name}/rolebindings"
    user = f"{room.name}-{name}"
    given = binding("user", "ClusterRole", name, user)
    (await room.api.post(base, given)).ok()
    levels = list(MAY)
    expected = set.union(*(MAY[level] for level in levels[: levels.index(name) + 1]))

    async def is_bound() -> bool:
        return bool(await allowed(room.api, user, room.name))

    await until(is_bound)
    assert await allowed(room.api, user, room.name) == expected
    assert await allowed(room.api, user, "default") == set()


async def test_the_first_roles_are_labelled(api: Api) -> None:
    """Those of every cluster say so, and view, edit and admin have gathered their rules."""
    labels = {"labelSelector": "kubernetes.io/bootstrapping=rbac-defaults"}
    found = (await api.get(f"{_RBAC}/clusterroles", **labels)).ok()["items"]
    rules = {item["metadata"]["name"]: item.get("rules") or () for item in found}
    sizes = [len(rules[name]) for name in ("view", "edit", "admin")]
    assert 0 < sizes[0] < sizes[1] < sizes[2]
    assert {"cluster-admin", "system:auth-delegator", "system:aggregate-to-view"} <= set(rules)


# ------------------------------------------------------------------ aggregation


async def test_an_aggregated_role_gathers_the_rules_of_others(room: Room) -> None:
    """Its rules are those of the roles its selectors choose, and follow them."""
    path = f"{_RBAC}/clusterroles"
    label = f"{room.name}/gather"
    name = f"{room.name}-all"
    part = f"{room.name}-part"
    selectors = [
        {"matchLabels": {label: "yes"}},
        {"matchExpressions": [{"key": label, "operator": "In", "values": ["yes", "too"]}]},
    ]
    whole = role(name, SECRETS, aggregationRule={"clusterRoleSelectors": selectors})
    (await room.api.post(path, whole)).ok()
    first = role(part, MAPS)
    first["metadata"]["labels"] = {label: "yes"}
    (await room.api.post(path, first)).ok()

    async def gathers(*rules: Json) -> None:
        async def so() -> bool:
            found = (await room.api.get(f"{path}/{name}")).ok().get("rules") or []
            return bool(found == list(rules))

        await until(so)

    await gathers(MAPS)
    (await room.api.patch(f"{path}/{part}", {"rules": [SECRETS, MAPS]})).ok()
    await gathers(SECRETS, MAPS)
    second = role(f"{part}-2", MAPS, GRANTING)
    second["metadata"]["labels"] = {label: "too"}
    (await room.api.post(path, second)).ok()
    await gathers(SECRETS, MAPS, GRANTING)
    (await room.api.delete(f"{path}/{part}-2")).ok()
    await gathers(SECRETS, MAPS)
    (await room.api.patch(f"{path}/{part}", {"metadata": {"labels": None}})).ok()
    await gathers()


async def test_roles_are_gathered_along_a_chain(room: Room) -> None:
    """What view gathers, edit and admin have as well."""
    name = f"{room.name}-foos"
    path = f"{_RBAC}/clusterroles"
    rule = {"apiGroups": [f"{room.name}.dev"], "resources": ["foos"], "verbs": ["get"]}
    made = role(name, rule)
    made["metadata"]["labels"] = {f"{_AGGREGATED}view": "true"}
    (await room.api.post(path, made)).ok()
    for wanted in ("view", "edit", "admin"):

        async def has(wanted: str = wanted) -> bool:
            return rule in (await room.api.get(f"{path}/{wanted}")).ok()["rules"]

        await until(has)
    (await room.api.delete(f"{path}/{name}")).ok()


# ------------------------------------------------------------------ no escalation


async def granter(room: Room, *more: Json) -> Api:
    """Return the API as an account that may write roles, and read ConfigMaps."""
    user = await bound(room, "granter", GRANTING, MAPS, *more, cluster=True)
    await answers(user, room.maps)
    return user


def missing(reply: Any) -> list[str]:
    """Return the rights that a refusal says its sender lacks."""
    message = str(reply.refused(403, "Forbidden")["message"])
    head, _, lines = message.partition("\n")
    assert head.endswith("is attempting to grant RBAC permissions not currently held:")
    return lines.splitlines()


LACKS = '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
ALL = ['{APIGroups:["*"], Resources:["*"], Verbs:["*"]}', '{NonResourceURLs:["*"], Verbs:["*"]}']


async def test_nobody_makes_a_role_beyond_his_own_rights(room: Room) -> None:
    """Create, update, patch, apply and dry runs are refused, naming each right that lacks."""
    user = await granter(room)
    path = f"{_RBAC}/namespaces/{room.name}/roles"
    assert missing(await user.post(path, role("a", SECRETS))) == [LACKS]
    assert missing(await user.post(path, role("a", SECRETS), dryRun="All")) == [LACKS]
    (await user.post(path, role("a", MAPS))).ok()
    assert missing(await user.put(f"{path}/a", role("a", SECRETS))) == [LACKS]
    assert missing(await user.patch(f"{path}/a", {"rules": [MAPS, SECRETS]})) == [LACKS]
    applied = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", **role("b", SECRETS)}
    query = {"fieldManager": "me"}
    assert missing(await user.patch(f"{path}/b", applied, APPLY, **query)) == [LACKS]
    applied["metadata"]["name"] = "a"
    assert missing(await user.patch(f"{path}/a", applied, APPLY, force="1", **query)) == [LACKS]
    assert (await room.api.get(f"{path}/a")).ok()["rules"] == [MAPS]
    (await room.api.post(path, role("theirs", SECRETS))).ok()
    labelled = {"metadata": {"labels": {"a": "b"}}}
    assert missing(await user.patch(f"{path}/theirs", labelled)) == [LACKS]
    (await user.patch(f"{path}/theirs", {"metadata": {"finalizers": ["x/y"]}})).ok()
    (await room.api.patch(f"{path}/theirs", {"metadata": {"finalizers": None}})).ok()


@pytest.mark.parametrize(
    ("rule", "lacks"),
    [
        ({**MAPS, "resourceNames": ["a"]}, []),
        ({**MAPS, "verbs": ["*"]}, ['{APIGroups:[""], Resources:["configmaps"], Verbs:["*"]}']),
        (
            {"apiGroups": ["", "x"], "resources": ["configmaps"], "verbs": ["get", "watch"]},
            [
                '{APIGroups:[""], Resources:["configmaps"], Verbs:["watch"]}',
                '{APIGroups:["x"], Resources:["configmaps"], Verbs:["get" "watch"]}',
            ],
        ),
        (
            {**SECRETS, "resourceNames": ["a", "b"]},
            [
                '{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get"]}',
                '{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}',
            ],
        ),
        (
            {"apiGroups": [""], "resources": ["configmaps/x"], "verbs": ["get"]},
            ['{APIGroups:[""], Resources:["configmaps/x"], Verbs:["get"]}'],
        ),
        ({"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get"]}, []),
        (
            {"apiGroups": ["apps"], "resources": ["*/scale", "*"], "verbs": ["patch"]},
            [
                '{APIGroups:["apps"], Resources:["*"], Verbs:["patch"]}',
                '{APIGroups:["apps"], Resources:["*/scale"], Verbs:["patch"]}',
            ],
        ),
        ({"nonResourceURLs": ["/api/x", "/healthz", "/logs/a"], "verbs": ["get"]}, []),
        (
            {"nonResourceURLs": ["/logs", "*"], "verbs": ["get", "post"]},
            [
                '{NonResourceURLs:["*"], Verbs:["get"]}',
                '{NonResourceURLs:["*"], Verbs:["post"]}',
                '{NonResourceURLs:["/logs"], Verbs:["get"]}',
                '{NonResourceURLs:["/logs"], Verbs:["post"]}',
            ],
        ),
    ],
)
async def test_a_right_is_held_if_a_rule_covers_it(
    room: Room, rule: Json, lacks: list[str]
) -> None:
    """Stars, names, subresources and paths are compared as the rules themselves are."""
    more = (
        {"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["get"]},
        {"nonResourceURLs": ["/logs/*"], "verbs": ["get"]},
    )
    user = await granter(room, *more)
    reply = await user.post(f"{_RBAC}/clusterroles", role(f"{room.name}-made", rule), dryRun="All")
    assert (missing(reply) if lacks else reply.ok() and []) == lacks


async def test_nobody_binds_a_role_beyond_his_own_rights(room: Room) -> None:
    """Not to himself and not to others, in a namespace or everywhere."""
    user = await granter(room)
    base = f"{_RBAC}/namespaces/{room.name}"
    path = f"{base}/rolebindings"
    assert missing(await user.post(path, binding("a", "ClusterRole", "cluster-admin"))) == ALL
    everywhere = f"{_RBAC}/clusterrolebindings"
    assert missing(await user.post(everywhere, binding("a", "ClusterRole", "cluster-admin"))) == ALL
    (await user.post(f"{base}/roles", role("maps", MAPS))).ok()
    (await user.post(path, binding("maps", "Role", "maps"))).ok()
    (await user.post(path, binding("none", "Role", "none"))).refused(404, "NotFound")
    (await room.api.post(path, binding("theirs", "ClusterRole", "cluster-admin"))).ok()
    more = {"subjects": [{"kind": "User", "name": "granter"}]}
    assert missing(await user.patch(f"{path}/theirs", more)) == ALL
    (await user.patch(f"{path}/maps", more)).ok()


async def test_bind_and_escalate_allow_to_grant_more(room: Room) -> None:
    """The verb bind on a role allows to bind it, escalate on roles to write any."""
    group = {"apiGroups": ["rbac.authorization.k8s.io"]}
    user = await granter(
        room,
        {**group, "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["view"]},
        {**group, "resources": ["roles"], "verbs": ["escalate"]},
    )
    base = f"{_RBAC}/namespaces/{room.name}"
    (await user.post(f"{base}/rolebindings", binding("view", "ClusterRole", "view"))).ok()
    assert missing(await user.post(f"{base}/rolebindings", binding("x", "ClusterRole", "edit")))
    (await user.post(f"{base}/roles", role("any", SECRETS))).ok()
    made = role(f"{room.name}-any", SECRETS)
    assert missing(await user.post(f"{_RBAC}/clusterroles", made)) == [LACKS]


async def test_gathering_roles_are_for_administrators(room: Room) -> None:
    """Who lacks a right may not have roles gathered that he does not know yet."""
    user = await granter(room)
    selectors = [{"matchLabels": {"a": "b"}}]
    made = role(f"{room.name}-agg", aggregationRule={"clusterRoleSelectors": selectors})
    refused = await user.post(f"{_RBAC}/clusterroles", made)
    why = "must have cluster-admin privileges to use the aggregationRule"
    assert refused.refused(403, "Forbidden")["message"].endswith(why)

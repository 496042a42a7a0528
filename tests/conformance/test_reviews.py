"""Laws of what is asked by POST and stored nowhere: reviews, tokens, and acting as another."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import RBAC, Api, Room, bound, token, until

Json = dict[str, Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")

_AUTHENTICATION = "/apis/authentication.k8s.io/v1"
_AUTHORIZATION = "/apis/authorization.k8s.io/v1"
_SELF = f"{_AUTHENTICATION}/selfsubjectreviews"
_ISSUER = "https://kubernetes.default.svc"


async def who(api: Api, *headers: tuple[str, str]) -> Json:
    """Return who the server takes the sender of a request for."""
    reply = await api.post(_SELF, {}, headers=headers)
    return dict(reply.ok()["status"]["userInfo"])


def access(verb: str = "get", resource: str = "pods", **more: Any) -> Json:
    """Return the attributes that a review of access asks about."""
    return {"resourceAttributes": {"verb": verb, "resource": resource, **more}}


# ------------------------------------------------------------------ reviews of access


async def test_a_review_says_which_binding_allows(room: Room) -> None:
    """SubjectAccessReview and SelfSubjectAccessReview name binding, role and subject."""
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a"]}
    user = await bound(room, "robot", rule)
    asked = access(namespace=room.name, name="a")
    path = f"{_AUTHORIZATION}/selfsubjectaccessreviews"

    async def allowed() -> bool:
        return bool((await user.post(path, {"spec": asked})).ok()["status"]["allowed"])

    await until(allowed)
    name = f"{room.name}-robot"
    why = (
        f'RBAC: allowed by RoleBinding "{name}/{room.name}" of Role "{name}" to ServiceAccount'
        f' "robot/{room.name}"'
    )
    answer = (await user.post(path, {"spec": asked})).ok()
    assert answer["spec"] == asked
    assert answer["status"] == {"allowed": True, "reason": why}
    path = f"{_AUTHORIZATION}/subjectaccessreviews"
    subject = {"user": f"system:serviceaccount:{room.name}:robot", **asked}
    assert (await room.api.post(path, {"spec": subject})).ok()["status"]["reason"] == why
    subject["resourceAttributes"] = {**subject["resourceAttributes"], "name": "b"}
    assert (await room.api.post(path, {"spec": subject})).ok()["status"] == {"allowed": False}


async def test_a_binding_to_a_missing_role_is_told_of(room: Room) -> None:
    """Refusals and reviews say which role does not exist."""
    binding = {
        "metadata": {"name": "gone"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gone"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": room.name}],
    }
    base = f"{RBAC}/namespaces/{room.name}"
    (await room.api.post(f"{base}/rolebindings", binding)).ok()
    user = room.api.as_user(await token(room))
    missing = 'role.rbac.authorization.k8s.io "gone" not found'

    async def is_told() -> bool:
        refused = (await user.get(room.pods)).refused(403, "Forbidden")
        return bool(refused["message"].endswith(f": RBAC: {missing}"))

    await until(is_told)
    path = f"{_AUTHORIZATION}/selfsubjectaccessreviews"
    status = (await user.post(path, {"spec": access(namespace=room.name)})).ok()["status"]
    assert status == {"allowed": False, "reason": f"RBAC: {missing}"}
    path = f"{_AUTHORIZATION}/selfsubjectrulesreviews"
    status = (await user.post(path, {"spec": {"namespace": room.name}})).ok()["status"]
    assert status["evaluationError"] == missing


async def test_rules_of_the_cluster_are_listed_for_a_namespace_that_no_namespace_can_be(
    room: Room,
) -> None:
    """So whoever wants these alone asks there: what every user may is in the list."""
    user = room.api.as_user(await token(room))
    spec = {"namespace": "lean-sandbox.no-such-namespace"}
    path = f"{_AUTHORIZATION}/selfsubjectrulesreviews"
    status = (await user.post(path, {"spec": spec})).ok()["status"]
    assert status["incomplete"] is False
    (rule,) = (one for one in status["resourceRules"] if "selfsubjectreviews" in one["resources"])
    assert rule["verbs"] == ["create"]


PLAIN = {"nonResourceAttributes": {"path": "/x", "verb": "get"}}


@pytest.mark.parametrize(
    ("plural", "spec", "status", "why"),
    [
        ("selfsubjectaccessreviews", {}, 422, "exactly one of nonResourceAttributes or"),
        ("selfsubjectaccessreviews", None, 422, "exactly one of nonResourceAttributes or"),
        ("selfsubjectaccessreviews", {**access(), **PLAIN}, 422, "in combination with"),
        ("selfsubjectaccessreviews", 3, 400, "cannot be handled as a SelfSubjectAccessReview"),
        ("selfsubjectaccessreviews", {"resourceAttributes": 3}, 400, "cannot be handled as a"),
        ("subjectaccessreviews", access(), 422, "at least one of user or group"),
        ("subjectaccessreviews", {"user": "jane"}, 422, "exactly one of nonResourceAttributes or"),
        ("subjectaccessreviews", {"groups": 3, **access()}, 400, "cannot be handled as a"),
        ("subjectaccessreviews", {"user": "a", "extra": {"k": 3}, **PLAIN}, 400, "cannot be"),
        ("selfsubjectrulesreviews", {}, 400, "no namespace on request"),
        ("selfsubjectrulesreviews", "x", 400, "cannot be handled as a SelfSubjectRulesReview"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(
    room: Room, plural: str, spec: Any, status: int, why: str
) -> None:
    """400 for what is no such review, 422 for one that asks for nothing or for too much."""
    reply = await room.api.post(f"{_AUTHORIZATION}/{plural}", {"spec": spec})
    refused = reply.refused(status, "Invalid" if status == 422 else "BadRequest")
    assert why in refused["message"]


@pytest.mark.parametrize("metadata", [{"name": "a"}, {"labels": {"a": "b"}}])
@pytest.mark.parametrize("plural", ["selfsubjectaccessreviews", "subjectaccessreviews"])
async def test_a_question_has_no_metadata(api: Api, plural: str, metadata: Json) -> None:
    """What is stored nowhere has neither name nor labels."""
    body = {"metadata": metadata, "spec": access()}
    if plural == "subjectaccessreviews":
        body["spec"]["user"] = "jane"
    refused = (await api.post(f"{_AUTHORIZATION}/{plural}", body)).refused(422, "Invalid")
    assert [cause["field"] for cause in refused["details"]["causes"]] == ["metadata"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"kind":"Nope"}', b'{"metadata":3}'])
@pytest.mark.parametrize(
    "path",
    [
        _SELF,
        f"{_AUTHENTICATION}/tokenreviews",
        f"{_AUTHORIZATION}/subjectaccessreviews",
        f"{_AUTHORIZATION}/selfsubjectrulesreviews",
    ],
)
async def test_a_review_wants_an_object_of_its_kind(api: Api, path: str, body: bytes) -> None:
    """Nothing, no JSON, no object and other kinds get 400."""
    (await api.post(path, body)).refused(400, "BadRequest")


@pytest.mark.parametrize(
    "path",
    [
        f"{_AUTHENTICATION}/selfsubjectreviews",
        f"{_AUTHENTICATION}/tokenreviews",
        f"{_AUTHORIZATION}/subjectaccessreviews",
        f"{_AUTHORIZATION}/selfsubjectaccessreviews",
        f"{_AUTHORIZATION}/selfsubjectrulesreviews",
    ],
)
async def test_reviews_are_only_created(api: Api, path: str) -> None:
    """Other verbs get 405, the path of a single review 404."""
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        (await api.ask(method, path)).refused(405, "MethodNotAllowed")
    (await api.get(f"{path}/x")).refused(404, "NotFound")


# ------------------------------------------------------------------ tokens


async def review(api: Api, held: str, *audiences: str) -> Json:
    """Return what the server says of a token."""
    spec = {"token": held, "audiences": list(audiences)}
    answer = (await api.post(f"{_AUTHENTICATION}/tokenreviews", {"spec": spec})).ok()
    return dict(answer["status"])


async def test_a_token_review_says_whose_a_token_is(room: Room) -> None:
    """User, groups, the id of the token, and the audiences it is good for."""
    status = await review(room.api, await token(room))
    name = f"system:serviceaccount:{room.name}:default"
    assert status["authenticated"] is True
    assert status["audiences"] == [_ISSUER]
    assert status["user"]["username"] == name
    assert status["user"]["groups"] == [
        "system:serviceaccounts",
        f"system:serviceaccounts:{room.name}",
        "system:authenticated",
    ]
    (credential,) = status["user"]["extra"]["authentication.kubernetes.io/credential-id"]
    assert credential.startswith("JTI=")
    assert await review(room.api, "nobody's") == {"user": {}, "error": "invalid bearer token"}
    path = f"{_AUTHENTICATION}/tokenreviews"
    refused = (await room.api.post(path, {"spec": {}})).refused(400, "BadRequest")
    assert "token is required" in refused["message"]


async def test_a_token_is_good_for_its_audiences_alone(room: Room) -> None:
    """One that is meant for others is refused by the server, and vouched for to them."""
    held = await token(room, audiences=["vault", "wiki"])
    (await room.api.as_user(held).get(room.maps)).refused(401, "Unauthorized")
    status = await review(room.api, held, "vault", "other")
    assert (status["authenticated"], status["audiences"]) == (True, ["vault"])
    for audiences in ((), ("other",)):
        refused = await review(room.api, held, *audiences)
        assert "authenticated" not in refused
        assert 'token audiences ["vault" "wiki"] is invalid' in refused["error"]
    both = await token(room, audiences=["vault", _ISSUER])
    (await room.api.as_user(both).get(room.maps)).refused(403, "Forbidden")


@pytest.mark.parametrize(
    ("spec", "status", "why"),
    [
        ({"expirationSeconds": 599}, 422, "less than 10 minutes"),
        ({"expirationSeconds": 0}, 422, "less than 10 minutes"),
        ({"expirationSeconds": 1 << 33}, 422, "larger than 2^32 seconds"),
        ({"expirationSeconds": "x"}, 400, "cannot be handled as a TokenRequest"),
        ({"audiences": 3}, 400, "cannot be handled as a TokenRequest"),
        (3, 400, "cannot be handled as a TokenRequest"),
    ],
)
async def test_a_token_that_cannot_be_had_is_refused(
    room: Room, spec: Any, status: int, why: str
) -> None:
    """What is wrong with a TokenRequest is said, and no token given."""
    reply = await room.api.post(f"{room.core}/serviceaccounts/default/token", {"spec": spec})
    assert reply.status == status
    assert why in reply.message


async def test_a_token_is_for_the_account_of_its_path(room: Room) -> None:
    """A TokenRequest with the name of another account is refused."""
    named = {"metadata": {"name": "p"}, "spec": {}}
    path = f"{room.core}/serviceaccounts/default/token"
    (await room.api.post(path, named)).refused(422, "Invalid")


# ------------------------------------------------------------------ impersonation

_USER = "Impersonate-User"
_GROUP = "Impersonate-Group"


async def test_an_administrator_may_act_as_anybody(room: Room) -> None:
    """The named user has the groups and extras of the headers, and those every user has."""
    api = room.api
    account = f"system:serviceaccount:{room.name}:default"
    everybody = "system:authenticated"
    assert await who(api, (_USER, "jane")) == {"username": "jane", "groups": [everybody]}
    headers = (
        (_USER, "jane"),
        (_GROUP, "dev"),
        (_GROUP, "ops"),
        ("Impersonate-Uid", "u1"),
        ("Impersonate-Extra-Scopes", "a"),
        ("Impersonate-Extra-Scopes", "b"),
        ("Impersonate-Extra-Acme.com%2FProject", "p"),
    )
    assert await who(api, *headers) == {
        "username": "jane",
        "uid": "u1",
        "groups": ["dev", "ops", everybody],
        "extra": {"scopes": ["a", "b"], "acme.com/project": ["p"]},
    }
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{room.name}", everybody]
    assert await who(api, (_USER, account)) == {"username": account, "groups": groups}
    mine = await who(api, (_USER, account), (_GROUP, "x"))
    assert mine == {"username": account, "groups": ["x", everybody]}
    broken = "system:serviceaccount:alone"
    assert await who(api, (_USER, broken)) == {"username": broken, "groups": [everybody]}


async def test_who_acts_as_another_has_its_rights_alone(room: Room) -> None:
    """Neither more nor fewer: an administrator as jane is refused, as a master is not."""
    as_jane = [(_USER, "jane")]
    refused = await room.api.get(room.maps, headers=as_jane)
    assert 'User "jane" cannot list' in refused.refused(403, "Forbidden")["message"]
    nobody = await room.api.get(room.maps, headers=[(_USER, "system:anonymous")])
    assert 'User "system:anonymous"' in nobody.refused(403, "Forbidden")["message"]
    masters = [*as_jane, (_GROUP, "system:masters")]
    (await room.api.get(room.maps, headers=masters)).ok()


async def test_acting_as_another_wants_a_right_to_each_part(room: Room) -> None:
    """The user, every group, every extra and the uid each need the verb impersonate."""
    names = {"verbs": ["impersonate"], "apiGroups": [""]}
    extras = {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"]}
    user = await bound(
        room,
        "actor",
        {**names, "resources": ["users"], "resourceNames": ["jane"]},
        {**names, "resources": ["groups"], "resourceNames": ["dev"]},
        {**extras, "resources": ["userextras/scopes"], "resourceNames": ["a"]},
        cluster=True,
    )

    async def refusal(*headers: tuple[str, str]) -> str:
        reply = await user.post(_SELF, {}, headers=headers)
        return str(reply.refused(403, "Forbidden")["message"])

    async def is_bound() -> bool:
        return (await user.post(_SELF, {}, headers=[(_USER, "jane")])).status == 201

    await until(is_bound)
    allowed = ((_USER, "jane"), (_GROUP, "dev"), ("Impersonate-Extra-Scopes", "a"))
    assert (await who(user, *allowed))["groups"] == ["dev", "system:authenticated"]
    assert 'cannot impersonate resource "users"' in await refusal((_USER, "john"))
    why = await refusal(*allowed, (_GROUP, "system:masters"))
    assert why.startswith('groups "system:masters" is forbidden')
    why = await refusal(*allowed, ("Impersonate-Extra-Scopes", "b"))
    assert 'cannot impersonate resource "userextras/scopes"' in why
    why = await refusal(*allowed, ("Impersonate-Uid", "u"))
    assert 'cannot impersonate resource "uids" in API group "authentication.k8s.io"' in why
    account = f"system:serviceaccount:{room.name}:default"
    assert 'resource "serviceaccounts"' in await refusal((_USER, account))


async def test_nobody_acts_without_a_name(room: Room) -> None:
    """Groups, uid and extras need a user; an empty name is none."""
    for header in ((_GROUP, "x"), ("Impersonate-Uid", "x"), ("Impersonate-Extra-Scopes", "x")):
        reply = await room.api.post(_SELF, {}, headers=[header])
        refused = reply.refused(400, "BadRequest")
        assert "without impersonating a user name" in refused["message"]
    user = room.api.as_user(await token(room))
    own = (await who(user))["username"]
    assert (await who(user, (_USER, "")))["username"] == own
    stranger = room.api.as_user("nobody's")
    (await stranger.post(_SELF, {}, headers=[(_USER, "jane")])).refused(401, "Unauthorized")

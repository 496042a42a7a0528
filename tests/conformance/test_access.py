"""Laws of credentials and rights."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import APPLY, Api, Room, answers, until
from tests.conformance.objects import config

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def token(room: Room, name: str = "default") -> str:
    """Return a token of a service account."""
    path = f"{room.core}/serviceaccounts/{name}/token"
    request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}}
    made = (await room.api.post(path, request)).ok()
    assert made["status"]["expirationTimestamp"].endswith("Z")
    return str(made["status"]["token"])


async def grant(room: Room, account: str, *rules: Json) -> None:
    """Bind rules to a service account in its namespace."""
    base = f"{_RBAC}/namespaces/{room.name}"
    role = {"metadata": {"name": account}, "rules": list(rules)}
    (await room.api.post(f"{base}/roles", role)).ok()
    binding = {
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": room.name}],
    }
    (await room.api.post(f"{base}/rolebindings", binding)).ok()


async def test_unknown_credentials_are_refused(room: Room) -> None:
    """A token nobody issued gets 401 with a Status."""
    stranger = room.api.as_user("no-such-token")
    assert (await stranger.get(room.maps)).refused(401, "Unauthorized")["message"] == "Unauthorized"


async def test_without_rights_nothing_is_allowed(room: Room) -> None:
    """403 names user, verb, resource, group and scope."""
    user = room.api.as_user(await token(room))
    who = f"system:serviceaccount:{room.name}:default"
    everywhere = (await user.get("/api/v1/pods")).refused(403, "Forbidden")
    assert everywhere["message"] == (
        f'pods is forbidden: User "{who}" cannot list resource "pods" in API group "" at the'
        " cluster scope"
    )
    assert everywhere["details"] == {"kind": "pods"}
    one = (await user.get(f"{room.widgets}/w")).refused(403, "Forbidden")
    assert one["message"] == (
        f'widgets.laws.lean-sandbox.dev "w" is forbidden: User "{who}" cannot get resource'
        f' "widgets" in API group "laws.lean-sandbox.dev" in the namespace "{room.name}"'
    )
    status = await user.patch(f"{room.pods}/p/status", {"status": {}})
    assert 'cannot patch resource "pods/status"' in status.refused(403, "Forbidden")["message"]
    plain = (await user.get("/metrics")).refused(403, "Forbidden")
    assert plain["message"] == f'forbidden: User "{who}" cannot get path "/metrics"'


async def test_creating_takes_its_own_right(room: Room) -> None:
    """An apply creates nothing that its sender could not have posted."""
    user = room.api.as_user(await token(room))
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"]}
    await grant(room, "default", rule)

    async def may_read() -> bool:
        return (await user.get(f"{room.maps}/x")).status == 404

    await until(may_read)
    applied = await user.patch(f"{room.maps}/x", config("x"), APPLY, fieldManager="m")
    assert "cannot create resource" in applied.refused(403, "Forbidden")["message"]
    await room.config("x")
    (await user.patch(f"{room.maps}/x", config("x"), APPLY, fieldManager="m")).ok()


async def test_rights_are_those_of_bound_roles(room: Room) -> None:
    """Verbs, resources, subresources and names of a Role decide, from the moment it is bound."""
    user = room.api.as_user(await token(room))
    await room.config("mine")
    await room.config("other")
    await grant(
        room,
        "default",
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "create"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["mine"],
            "verbs": ["get"],
        },
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    )
    await answers(user, room.maps)
    assert (await user.post(room.maps, config("new"))).status == 201
    assert (await user.get(f"{room.maps}/mine")).status == 200
    assert (await user.get(f"{room.maps}/other")).status == 403
    assert (await user.delete(f"{room.maps}/new")).status == 403
    assert (await user.get(f"{room.maps}", watch="1", timeoutSeconds="1")).status == 403
    assert (await user.patch(f"{room.pods}/p/status", {"status": {}})).status == 404
    assert (await user.patch(f"{room.pods}/p", {})).status == 403
    assert (await user.get("/api/v1/configmaps")).status == 403


async def test_everybody_known_may_discover(room: Room) -> None:
    """Discovery and version need no role."""
    user = room.api.as_user(await token(room))
    for path in ("/api", "/apis", "/api/v1", "/version", "/openapi/v3", "/healthz"):
        assert (await user.get(path)).status == 200, path


async def test_a_user_can_ask_about_itself(room: Room) -> None:
    """SelfSubjectReview says who, SelfSubjectAccessReview says what is allowed."""
    user = room.api.as_user(await token(room))
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    review = (await user.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", asked)).ok()
    info = review["status"]["userInfo"]
    assert info["username"] == f"system:serviceaccount:{room.name}:default"
    assert "system:authenticated" in info["groups"]

    async def may(api: Api, verb: str) -> bool:
        attributes = {"verb": verb, "resource": "pods", "namespace": room.name}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool((await api.post(path, body)).ok()["status"]["allowed"])

    assert not await may(user, "get")
    assert await may(room.api, "get")
    await grant(room, "default", {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})
    await until(lambda: may(user, "get"))
    assert not await may(user, "delete")


async def test_a_token_is_for_an_existing_account(room: Room) -> None:
    """An absent service account gets no token, and a short life is refused."""
    base = f"{room.core}/serviceaccounts"
    request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}}
    (await room.api.post(f"{base}/nobody/token", request)).refused(404, "NotFound")
    brief = {**request, "spec": {"expirationSeconds": 10}}
    (await room.api.post(f"{base}/default/token", brief)).refused(422, "Invalid")


async def test_a_token_dies_with_its_account(room: Room) -> None:
    """The token of a deleted account is unknown."""
    made = {"metadata": {"name": "brief"}}
    (await room.api.post(f"{room.core}/serviceaccounts", made)).ok()
    user = room.api.as_user(await token(room, "brief"))
    assert (await user.get(room.maps)).status == 403
    (await room.api.delete(f"{room.core}/serviceaccounts/brief")).ok()
    await answers(user, room.maps, 401)


async def test_a_right_to_one_name_is_a_right_to_list_it(room: Room) -> None:
    """A field selector that leaves one name asks for that name, but not to delete."""
    user = room.api.as_user(await token(room))
    for name in ("mine", "other"):
        await room.config(name)
    verbs = ["list", "watch", "deletecollection"]
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"]}
    await grant(room, "default", {**rule, "verbs": verbs})
    await answers_to(user, room.maps, "metadata.name=mine")
    query = {"fieldSelector": "metadata.name=mine"}
    found = (await user.get(room.maps, **query)).ok()["items"]
    assert [one["metadata"]["name"] for one in found] == ["mine"]
    watched = await user.get(room.maps, watch="1", timeoutSeconds="1", **query)
    assert watched.status == 200
    assert (await user.delete(room.maps, **query)).status == 403
    for selector in ("metadata.name=other", "metadata.name!=mine", "metadata.namespace=x", ""):
        refused = await user.get(room.maps, fieldSelector=selector)
        assert refused.status == 403, selector


async def answers_to(user: Api, path: str, selector: str) -> None:
    """Wait until a list with this field selector is allowed."""

    async def is_allowed() -> bool:
        return (await user.get(path, fieldSelector=selector)).status == 200

    await until(is_allowed)

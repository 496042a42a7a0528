"""Laws of paths: which verbs each has, and that a refused one changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import MERGE, Api, Room

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_OBJECT = {"GET", "PUT", "PATCH", "DELETE"}
_COLLECTION = {"GET", "POST", "DELETE"}
_READ_WRITE = {"GET", "PUT", "PATCH"}
# The methods of each path of built-in kinds; all others are refused.
_BUILT_IN = {
    "pods": _COLLECTION,
    "pods/x": _OBJECT,
    "pods/x/status": _READ_WRITE,
    "pods/x/binding": {"POST"},
    "pods/x/eviction": {"POST"},
    "pods/x/ephemeralcontainers": _READ_WRITE,
    "pods/x/log": {"GET"},
    "pods/x/exec": {"GET", "POST"},
    "serviceaccounts/x": _OBJECT,
    "serviceaccounts/x/token": {"POST"},
    "services/x/status": _READ_WRITE,
    "configmaps/x": _OBJECT,
    "persistentvolumeclaims/x/status": _READ_WRITE,
}
_CUSTOM = {"x": _OBJECT | {"HEAD", "POST"}, "x/status": {*_READ_WRITE, "HEAD"}}
_CUSTOM["x/scale"] = _CUSTOM["x/status"]


async def _everything(room: Room) -> list[Json]:
    paths = (room.pods, room.maps, f"{room.core}/serviceaccounts", room.widgets)
    return [(await room.api.get(path)).ok()["items"] for path in paths]


async def _furnish(room: Room) -> None:
    await room.pod("x")
    await room.config("x")
    await room.widget("x", replicas=3)
    account = {"metadata": {"name": "x"}}
    (await room.api.post(f"{room.core}/serviceaccounts", account)).ok()


@pytest.mark.parametrize("path", _BUILT_IN)
async def test_a_path_of_a_built_in_kind_has_its_verbs_and_no_others(room: Room, path: str) -> None:
    """Another method is 405, and nothing is read, made, changed or deleted."""
    await _furnish(room)
    before = await _everything(room)
    for method in _METHODS:
        if method in _BUILT_IN[path]:
            continue
        content = MERGE if method == "PATCH" else ""
        reply = await room.api.ask(method, f"{room.core}/{path}", {}, content=content)
        assert reply.status == 405, (method, reply.body)
        if method != "HEAD":
            reply.refused(405, "MethodNotAllowed")
    assert await _everything(room) == before


@pytest.mark.parametrize("path", _CUSTOM)
async def test_a_path_of_a_custom_kind_has_its_verbs_and_no_others(room: Room, path: str) -> None:
    """The refusal names the verb and the kind."""
    await _furnish(room)
    before = await _everything(room)
    for method in ("POST", "DELETE"):
        if method in _CUSTOM[path]:
            continue
        reply = await room.api.ask(method, f"{room.widgets}/{path}", {})
        status = reply.refused(405, "MethodNotAllowed")
        verb = {"POST": "create", "DELETE": "delete"}[method]
        kind = "widgets.laws.lean-sandbox.dev"
        assert status["message"] == f'{verb} is not supported on resources of kind "{kind}"'
    assert await _everything(room) == before


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "path",
    [
        "pods/x/nothing",
        "pods/x/status/more",
        "pods/x/scale",
        "configmaps/x/status",
        "serviceaccounts/x/status",
        "services/x/binding",
        "namespaces/x/eviction",
        "nodes/x",
        "namespaces",
    ],
)
async def test_a_path_that_is_not_there_is_not_found(room: Room, method: str, path: str) -> None:
    """Whatever the method: 404, not 405."""
    content = MERGE if method == "PATCH" else ""
    reply = await room.api.ask(method, f"{room.core}/{path}", {}, content=content)
    assert reply.status == 404, reply.body


@pytest.mark.parametrize("step", ["api", "namespaces", "configmaps", "x"])
async def test_an_empty_step_leads_nowhere(room: Room, step: str) -> None:
    """Two slashes are not one: nothing is shown, and nothing deleted. One at the end is nothing."""
    await room.config("x")
    path = f"{room.maps}/x".replace(f"/{step}", f"//{step}", 1)
    for method in ("GET", "DELETE"):
        assert (await room.api.ask(method, path)).status == 404
    assert (await room.api.get("//version")).status == 404
    assert (await room.api.get(f"{room.maps}/x/")).status == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST", "OPTIONS"])
async def test_objects_of_all_namespaces_are_only_listed(room: Room, method: str) -> None:
    """Without a namespace there is a list of Pods, and nothing else."""
    await room.pod("x")
    content = MERGE if method == "PATCH" else ""
    reply = await room.api.ask(method, "/api/v1/pods", {}, content=content)
    reply.refused(405, "MethodNotAllowed")
    assert (await room.api.ask(method, "/api/v1/pods/x", {}, content=content)).status == 404
    assert (await room.api.get(f"{room.pods}/x")).status == 200


async def test_all_custom_objects_at_once_are_only_listed(room: Room) -> None:
    """A path without a namespace is no page for other verbs."""
    await room.widget("x")
    everywhere = room.widgets.replace(f"namespaces/{room.name}/", "")
    for method in ("DELETE", "POST", "PUT", "OPTIONS"):
        for path in (everywhere, f"{everywhere}/x", f"{everywhere}/x/status"):
            assert (await room.api.ask(method, path, {})).status == 404
    assert (await room.api.get(everywhere)).status == 200
    assert (await room.api.get(f"{room.widgets}/x")).status == 200


async def test_namespaces_are_deleted_one_by_one(api: Api, room: Room) -> None:
    """The collection of Namespaces has no DELETE, and finalize is no way to delete one."""
    for path in ("/api/v1/namespaces", f"{room.core}/finalize", f"{room.core}/status"):
        (await api.delete(path)).refused(405, "MethodNotAllowed")
    shown = (await api.get(room.core)).ok()
    assert shown["status"]["phase"] == "Active"
    assert "deletionTimestamp" not in shown["metadata"]


@pytest.mark.parametrize("subresource", ["token", "eviction", "binding"])
async def test_reading_is_not_acting(room: Room, subresource: str) -> None:
    """What can only be posted cannot be got, by a GET of a name that exists either."""
    await _furnish(room)
    kind = "serviceaccounts" if subresource == "token" else "pods"
    reply = await room.api.get(f"{room.core}/{kind}/x/{subresource}")
    reply.refused(405, "MethodNotAllowed")
    assert "token" not in reply.json
    pod = (await room.api.get(f"{room.pods}/x")).ok()
    assert "nodeName" not in pod["spec"]


@pytest.mark.parametrize("value", ["1", "true", "yes", ""])
async def test_a_watch_is_asked_for_by_any_value_but_no(room: Room, value: str) -> None:
    """Only 0, false and nothing mean a list."""
    await room.config("x")
    query = {"watch": value, "timeoutSeconds": "1", "resourceVersion": "0"}
    events = await room.api.events(room.maps, 1, **query)
    assert events[0]["type"] == "ADDED"
    for no in ("0", "false"):
        assert (await room.api.get(room.maps, watch=no)).ok()["kind"] == "ConfigMapList"


@pytest.mark.parametrize("path", ["/version", "/api/v1"])
async def test_what_the_server_says_of_itself_is_only_read(api: Api, path: str) -> None:
    """A document has one method."""
    for method in ("POST", "DELETE", "OPTIONS"):
        (await api.ask(method, path)).refused(405, "MethodNotAllowed")


async def test_an_address_may_be_long(room: Room) -> None:
    """A selector of a thousand names is no fault, nor is a long header."""
    await room.config("a")
    selector = f"x notin ({','.join(f'value-{number}' for number in range(3000))})"
    headers = [("X-Long", "x" * 30_000)]
    found = (await room.api.get(room.maps, labelSelector=selector, headers=headers)).ok()
    assert "a" in [one["metadata"]["name"] for one in found["items"]]

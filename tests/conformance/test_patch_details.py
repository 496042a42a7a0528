"""Laws of patches in their details: operations, merges of lists, and what cannot be patched."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import APPLY, JSON_PATCH, MERGE, STRATEGIC, Room, cause
from tests.conformance.objects import owner, widget

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


# -- JSON Patch ------------------------------------------------------------------------------------


async def test_an_absent_member_can_be_replaced(room: Room) -> None:
    """Other than RFC 6902 has it: replace sets, and a test finds null where nothing is."""
    await room.widget("a")
    path = f"{room.widgets}/a"
    steps = [
        {"op": "test", "path": "/spec/replicas", "value": None},
        {"op": "replace", "path": "/spec/replicas", "value": 2},
    ]
    assert (await room.api.patch(path, steps, JSON_PATCH)).ok()["spec"]["replicas"] == 2
    for wrong in (
        {"op": "replace", "path": "/spec/no/where", "value": 1},
        {"op": "remove", "path": "/spec/nothing"},
        {"op": "add", "path": "/spec/tags/7", "value": "x"},
        {"op": "test", "path": "/spec/nothing", "value": 1},
        {"op": "odd", "path": "/spec/size", "value": 1},
    ):
        (await room.api.patch(path, [wrong], JSON_PATCH)).refused(422, "Invalid")


@pytest.mark.parametrize(
    "wrong", [3, [], {"op": 3}, {"op": "add", "path": 3}, {"op": "copy", "path": "/a", "from": 3}]
)
async def test_an_operation_is_an_object_of_texts(room: Room, wrong: Any) -> None:
    """What is no operation is refused as unreadable, not as one that failed."""
    await room.config("a")
    reply = await room.api.patch(f"{room.maps}/a", [wrong], JSON_PATCH)
    assert "error decoding patch" in reply.refused(400, "BadRequest")["message"]


async def test_an_operation_without_a_value_has_null(room: Room) -> None:
    """Null is added, which takes a member away, and tested for."""
    await room.config("a", k="v")
    steps: list[Json] = [{"op": "add", "path": "/data/k"}, {"op": "test", "path": "/data/none"}]
    assert (await room.api.patch(f"{room.maps}/a", steps, JSON_PATCH)).ok()["data"] == {"k": ""}


async def test_lists_and_escaped_keys_can_be_patched(room: Room) -> None:
    """``-`` appends, a number inserts, ``~1`` is a slash; move and copy move and copy."""
    await room.widget("a", metadata={"labels": {"a.b/c": "1"}}, tags=["x", "y"])
    steps = [
        {"op": "add", "path": "/metadata/labels/d~1e", "value": "2"},
        {"op": "remove", "path": "/metadata/labels/a.b~1c"},
        {"op": "add", "path": "/spec/tags/-", "value": "z"},
        {"op": "add", "path": "/spec/tags/0", "value": "w"},
        {"op": "move", "from": "/spec/tags/0", "path": "/spec/tags/1"},
        {"op": "copy", "from": "/spec/tags/0", "path": "/spec/tags/-"},
    ]
    made = (await room.api.patch(f"{room.widgets}/a", steps, JSON_PATCH)).ok()
    assert made["metadata"]["labels"] == {"d/e": "2"}
    assert made["spec"]["tags"] == ["x", "w", "y", "z", "x"]


async def test_a_patch_makes_nothing_else_of_an_object(room: Room) -> None:
    """Kind and apiVersion stay: 422 names the member, or the patch for built-in kinds."""
    await room.widget("w")
    await room.config("c")
    path = f"{room.widgets}/w"
    kind = await room.api.patch(path, {"kind": "Gadget"})
    kind.refused(422, "Invalid")
    assert cause(kind) == ("kind", 'Invalid value: "Gadget": must be Widget')
    version = await room.api.patch(path, {"apiVersion": "v9"})
    version.refused(422, "Invalid")
    assert cause(version) == (
        "apiVersion",
        'Invalid value: "v9": must be laws.lean-sandbox.dev/v1',
    )
    emptied = [{"op": "replace", "path": "", "value": {}}]
    nothing = await room.api.patch(path, emptied, JSON_PATCH)
    nothing.refused(422, "Invalid")
    assert cause(nothing) == ("patch", "Invalid value: \"{}\": Object 'Kind' is missing in '{}'")
    for body in ({"kind": "Foo"}, {"apiVersion": "v9"}, {"data": 5}):
        built_in = await room.api.patch(f"{room.maps}/c", body)
        built_in.refused(422, "Invalid")
        assert cause(built_in)[0] == "patch"


# -- strategic merge patch -------------------------------------------------------------------------


async def test_a_strategic_patch_puts_its_items_before_what_was_behind_them(room: Room) -> None:
    """New items come first, known ones keep their place; `$setElementOrder` decides otherwise."""
    await room.pod("p")
    path = f"{room.pods}/p/status"

    async def order(*types: str, **more: Any) -> list[str]:
        listed = [{"type": type_, "status": "True"} for type_ in types]
        body = {"status": {"conditions": listed, **more}}
        made = (await room.api.patch(path, body, STRATEGIC)).ok()
        return [one["type"] for one in made["status"]["conditions"]]

    assert await order("A", "B") == ["A", "B"]
    assert await order("C") == ["C", "A", "B"]
    assert await order("B") == ["C", "A", "B"]
    key = "$setElementOrder/conditions"
    wanted = [{"type": type_} for type_ in ("B", "A", "C")]
    assert await order("A", **{key: wanted}) == ["B", "A", "C"]


async def test_a_strategic_patch_merges_owners_and_finalizers(room: Room) -> None:
    """Owners merge by uid, finalizers by value; directives take single ones away."""
    first = await room.config("o1")
    second = await room.config("o2")
    held = {"finalizers": ["laws.dev/a"], "ownerReferences": [owner(first)]}
    await room.pod("p", **held)
    path = f"{room.pods}/p"
    more = {"metadata": {"finalizers": ["laws.dev/b"], "ownerReferences": [owner(second)]}}
    metadata = (await room.api.patch(path, more, STRATEGIC)).ok()["metadata"]
    assert metadata["finalizers"] == ["laws.dev/b", "laws.dev/a"]
    assert [one["name"] for one in metadata["ownerReferences"]] == ["o2", "o1"]
    less = {
        "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["laws.dev/a"],
            "ownerReferences": [{"uid": first["metadata"]["uid"], "$patch": "delete"}],
        }
    }
    metadata = (await room.api.patch(path, less, STRATEGIC)).ok()["metadata"]
    assert metadata["finalizers"] == ["laws.dev/b"]
    assert [one["name"] for one in metadata["ownerReferences"]] == ["o2"]
    (await room.api.patch(path, {"metadata": {"finalizers": None}}, STRATEGIC)).ok()


async def test_a_strategic_patch_that_cannot_be_merged_is_a_failure(room: Room) -> None:
    """An unknown directive and an item without its key get 500."""
    await room.pod("p")
    odd = await room.api.patch(f"{room.pods}/p", {"metadata": {"$patch": "odd"}}, STRATEGIC)
    assert (odd.status, odd.message) == (500, "unknown patch type: odd in map: map[$patch:odd]")
    there = {"status": {"conditions": [{"type": "A", "status": "True"}]}}
    (await room.api.patch(f"{room.pods}/p/status", there)).ok()
    body = {"status": {"conditions": [{"status": "True"}]}}
    keyless = await room.api.patch(f"{room.pods}/p/status", body, STRATEGIC)
    text = "map: map[status:True] does not contain declared merge key: type"
    assert (keyless.status, keyless.message) == (500, text)


async def test_a_pod_has_one_address_of_a_family(room: Room) -> None:
    """Addresses merge by value, so a second one of the same family is refused."""
    await room.pod("p")
    path = f"{room.pods}/p/status"
    body = {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}
    (await room.api.patch(path, body, STRATEGIC)).ok()
    body = {"status": {"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}]}}
    refused = await room.api.patch(path, body, STRATEGIC)
    refused.refused(422, "Invalid")
    assert cause(refused)[0] == "status.podIPs"


async def test_of_members_said_twice_the_last_one_counts(room: Room) -> None:
    """So it is in a patch."""
    said = b'{"apiVersion":"laws.lean-sandbox.dev/v1","kind":"Widget","metadata":{"name":"w"},'
    made = await room.api.post(room.widgets, said + b'"spec":{"size":1,"size":2}}')
    assert made.ok()["spec"]["size"] == 2
    patched = await room.api.patch(f"{room.widgets}/w", b'{"spec":{"size":3,"size":4}}', MERGE)
    assert patched.ok()["spec"]["size"] == 4


async def test_an_unknown_field_in_a_strict_patch_is_the_fault_of_the_patch(room: Room) -> None:
    """422 on the field patch, where a create gets 400."""
    await room.widget("w")
    path = f"{room.widgets}/w"
    reply = await room.api.patch(path, {"spec": {"junk": 1}}, fieldValidation="Strict")
    reply.refused(422, "Invalid")
    assert cause(reply)[0] == "patch"
    assert 'unknown field "spec.junk"' in cause(reply)[1]


async def test_an_unknown_field_cannot_be_applied(room: Room) -> None:
    """Nobody could own it: 500 says that it is not declared."""
    reply = await room.api.patch(f"{room.widgets}/w", widget("w", junk=1), APPLY, fieldManager="me")
    assert reply.status == 500
    assert reply.message.endswith(".spec.junk: field not declared in schema")


async def test_an_applier_does_not_own_defaults(room: Room) -> None:
    """Only what it said, also when its apply creates the object."""
    reply = await room.api.patch(f"{room.widgets}/w", widget("w"), APPLY, fieldManager="me")
    made = reply.ok()
    assert made["spec"] == {"size": 1, "mode": "Fast"}
    (entry,) = made["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:spec": {"f:size": {}}}

"""Laws of the patch formats."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import JSON_PATCH, MERGE, STRATEGIC, Room
from tests.conformance.objects import owner

Json = dict[str, Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_merge_patch_changes_what_it_names(room: Room) -> None:
    """Members are set, null removes, lists are replaced whole, the rest stays."""
    await room.widget("a", replicas=3, tags=["x", "y"])
    change = {"spec": {"replicas": None, "tags": ["z"]}, "metadata": {"annotations": {"k": "v"}}}
    made = (await room.api.patch(f"{room.widgets}/a", change)).ok()
    assert made["spec"] == {"size": 1, "mode": "Fast", "tags": ["z"]}
    assert made["metadata"]["annotations"] == {"k": "v"}


async def test_a_patch_that_changes_nothing_keeps_the_version(room: Room) -> None:
    """No-op patches of every format write nothing."""
    made = await room.widget("a", metadata={"labels": {"k": "v"}})
    version = made["metadata"]["resourceVersion"]
    path = f"{room.widgets}/a"
    same = {"metadata": {"labels": {"k": "v"}}}
    assert (await room.api.patch(path, same)).version == version
    test = [{"op": "test", "path": "/spec/size", "value": 1}]
    assert (await room.api.patch(path, test, JSON_PATCH)).version == version
    status: dict[str, Any] = {"status": {}}
    (await room.api.patch(f"{path}/status", {"status": {"replicas": 1}})).ok()
    version = (await room.api.get(path)).version
    assert (await room.api.patch(f"{path}/status", status)).version == version


@pytest.mark.parametrize(("value", "status"), [(1, 200), (True, 422), ("1", 422), ([1], 422)])
async def test_a_test_tells_types_apart(room: Room, value: object, status: int) -> None:
    """1 is not true."""
    await room.widget("a", size=1)
    step = [{"op": "test", "path": "/spec/size", "value": value}]
    reply = await room.api.patch(f"{room.widgets}/a", step, JSON_PATCH)
    assert reply.status == status


async def test_a_stale_version_in_a_patch_conflicts(room: Room) -> None:
    """A merge patch that names an older resourceVersion gets 409."""
    made = await room.widget("a")
    path = f"{room.widgets}/a"
    (await room.api.patch(path, {"spec": {"size": 2}})).ok()
    stale = {
        "metadata": {"resourceVersion": made["metadata"]["resourceVersion"]},
        "spec": {"size": 3},
    }
    (await room.api.patch(path, stale)).refused(409, "Conflict")


async def test_a_json_patch_is_all_or_nothing(room: Room) -> None:
    """A failed test gets 422 and undoes the operations before it."""
    await room.widget("a")
    path = f"{room.widgets}/a"
    steps = [
        {"op": "replace", "path": "/spec/size", "value": 9},
        {"op": "test", "path": "/spec/mode", "value": "Slow"},
    ]
    (await room.api.patch(path, steps, JSON_PATCH)).refused(422, "Invalid")
    gone = [{"op": "remove", "path": "/spec/nothing"}]
    (await room.api.patch(path, gone, JSON_PATCH)).refused(422, "Invalid")
    assert (await room.api.get(path)).ok()["spec"]["size"] == 1


async def test_adoption_by_ownership_is_won_once(room: Room) -> None:
    """A JSON Patch that tests the owner's uid lets one adopter win and the next one lose."""
    first, second, third = [await room.config(name) for name in ("o1", "o2", "o3")]
    await room.widget("a", metadata={"ownerReferences": [owner(first, controller=True)]})

    def adopt(new: Any) -> list[Any]:
        uid = first["metadata"]["uid"]
        at = "/metadata/ownerReferences/0"
        return [
            {"op": "test", "path": f"{at}/uid", "value": uid},
            {"op": "replace", "path": at, "value": owner(new, controller=True)},
        ]

    path = f"{room.widgets}/a"
    (await room.api.patch(f"{path}/status", {"status": {"replicas": 1}})).ok()
    (await room.api.patch(path, adopt(second), JSON_PATCH)).ok()
    (await room.api.patch(path, adopt(third), JSON_PATCH)).refused(422, "Invalid")
    made = (await room.api.get(path)).ok()
    assert made["metadata"]["ownerReferences"] == [owner(second, controller=True)]


async def test_a_strategic_patch_merges_lists_by_their_key(room: Room) -> None:
    """Conditions merge by type; `$patch: delete` removes one; custom kinds refuse the format."""
    await room.pod("p")
    path = f"{room.pods}/p/status"

    def condition(type_: str, status: str) -> dict[str, str]:
        return {"type": type_, "status": status}

    for patch in (
        [condition("Ready", "False"), condition("Initialized", "True")],
        [condition("Ready", "True")],
        [{"type": "Initialized", "$patch": "delete"}],
    ):
        body = {"status": {"conditions": patch}}
        (await room.api.patch(path, body, STRATEGIC)).ok()
    conditions = (await room.api.get(f"{room.pods}/p")).ok()["status"]["conditions"]
    assert [(item["type"], item["status"]) for item in conditions] == [("Ready", "True")]
    await room.widget("w")
    refused = await room.api.patch(f"{room.widgets}/w", {"spec": {"size": 2}}, STRATEGIC)
    refused.refused(415, "UnsupportedMediaType")


async def test_an_unknown_patch_format_is_refused(room: Room) -> None:
    """A patch has to say which format it is."""
    await room.config("a")
    plain = "application/json"
    built_in = await room.api.patch(f"{room.maps}/a", {"data": {}}, plain)
    built_in.refused(415, "UnsupportedMediaType")
    await room.widget("w")
    custom = await room.api.patch(f"{room.widgets}/w", {"spec": {}}, plain)
    assert "application/merge-patch+json" in custom.refused(415, "UnsupportedMediaType")["message"]


async def test_garbage_is_no_patch(room: Room) -> None:
    """A body that does not parse gets 400."""
    await room.config("a")
    path = f"{room.maps}/a"
    (await room.api.patch(path, b"{bad")).refused(400, "BadRequest")
    (await room.api.patch(path, b"{bad", JSON_PATCH)).refused(400, "BadRequest")
    (await room.api.patch(path, {"op": "add"}, JSON_PATCH)).refused(400, "BadRequest")


async def test_a_patch_is_validated_like_any_write(room: Room) -> None:
    """A patch to an invalid object gets 422."""
    await room.widget("a")
    (await room.api.patch(f"{room.widgets}/a", {"spec": {"size": "x"}})).refused(422, "Invalid")
    (await room.api.patch(f"{room.widgets}/a", {"metadata": {"name": "b"}})).refused(
        400, "BadRequest"
    )


async def test_field_managers_are_recorded_by_path(room: Room) -> None:
    """Each writer owns what it set; the status subresource is an owner of its own."""
    await room.widget("a")
    path = f"{room.widgets}/a"
    patch = {"metadata": {"labels": {"k": "v"}}}
    (await room.api.patch(path, patch, fieldManager="one")).ok()
    await room.api.patch(f"{path}/status", {"status": {"replicas": 1}}, agent="two/v1 (x)")
    managed = (await room.api.get(path)).ok()["metadata"]["managedFields"]
    found = {(item["manager"], item.get("subresource", "")): item for item in managed}
    assert found["one", ""]["fieldsV1"] == {"f:metadata": {"f:labels": {".": {}, "f:k": {}}}}
    assert found["two", "status"]["fieldsV1"] == {"f:status": {".": {}, "f:replicas": {}}}
    assert all(item["operation"] == "Update" for item in managed)
    (await room.api.patch(path, {"spec": {"size": 2}}, fieldManager="three")).ok()
    managed = (await room.api.get(path)).ok()["metadata"]["managedFields"]
    owners = [item["manager"] for item in managed if "f:size" in item["fieldsV1"].get("f:spec", {})]
    assert owners == ["three"]


@pytest.mark.parametrize("emptied", [[], [{}]])
async def test_who_empties_the_record_of_fields_ends_it(room: Room, emptied: list[Json]) -> None:
    """No list and a list without a writer are alike; no later update begins it anew."""
    await room.config("a", k="1")
    path = f"{room.maps}/a"
    ended = (await room.api.patch(path, {"metadata": {"managedFields": emptied}})).ok()
    assert "managedFields" not in ended["metadata"]
    assert (
        "managedFields" not in (await room.api.patch(path, {"data": {"k": "2"}})).ok()["metadata"]
    )


@pytest.mark.parametrize(
    "entry",
    [
        {"manager": "me"},
        {"manager": "me", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV2"},
        {
            "manager": "me",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"data": {}},
        },
    ],
)
async def test_a_record_of_fields_that_cannot_be_read_is_left_out(room: Room, entry: Json) -> None:
    """The stored one stays."""
    before = (await room.config("a", k="1"))["metadata"]["managedFields"]
    change = {"metadata": {"managedFields": [entry]}}
    after = (await room.api.patch(f"{room.maps}/a", change)).ok()["metadata"]["managedFields"]
    assert [one["fieldsV1"] for one in after] == [one["fieldsV1"] for one in before]
    assert [one["manager"] for one in after] == [one["manager"] for one in before]


@pytest.mark.parametrize(
    "metadata",
    [{"deletionTimestamp": "2020-01-01T00:00:00Z"}, {"deletionGracePeriodSeconds": 1}],
)
@pytest.mark.parametrize("plural", ["maps", "widgets"])
async def test_nobody_says_that_an_object_is_being_deleted(
    room: Room, plural: str, metadata: Json
) -> None:
    """A patch that would is refused: only a DELETE begins a deletion."""
    await room.config("a")
    await room.widget("a")
    base = room.maps if plural == "maps" else room.widgets
    reply = await room.api.patch(f"{base}/a", {"metadata": metadata})
    reply.refused(422, "Invalid")
    assert "field is immutable" in reply.message


@pytest.mark.parametrize("patch", [{"kind": None}, {"kind": "Other"}, {"apiVersion": "x/y"}, None])
async def test_a_strategic_patch_does_not_see_what_kind_an_object_is(
    room: Room, patch: Json | None
) -> None:
    """It is applied to an object of the kind of its path, whatever it says; null is no change."""
    before = await room.config("a", k="1")
    body = b"null" if patch is None else patch
    after = (await room.api.patch(f"{room.maps}/a", body, STRATEGIC)).ok()
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


@pytest.mark.parametrize("order", [[{"name": "b"}], ["b"], 5, {"name": "main"}])
async def test_an_order_that_leaves_out_an_item_of_the_patch_is_refused(
    room: Room, order: Any
) -> None:
    """`$setElementOrder` names every item that the patch changes."""
    await room.pod("p")
    spec = {"$setElementOrder/containers": order, "containers": [{"name": "main", "image": "new"}]}
    reply = await room.api.patch(f"{room.pods}/p", {"spec": spec}, STRATEGIC)
    assert reply.status == 500, reply.body


@pytest.mark.parametrize("force", ["true", "false"])
async def test_only_an_apply_is_forced(room: Room, force: str) -> None:
    """Other patches do not even say that they are not."""
    await room.config("a")
    reply = await room.api.patch(f"{room.maps}/a", {}, force=force)
    reply.refused(422, "Invalid")


@pytest.mark.parametrize("body", [b"{", b"null", b"[]", {"metadata": {"name": "b"}}])
@pytest.mark.parametrize("base", ["maps", "widgets"])
async def test_what_is_not_there_is_not_found_whatever_the_patch_says(
    room: Room, base: str, body: Any
) -> None:
    """A patch is read once its object has been found."""
    path = f"{getattr(room, base)}/absent"
    (await room.api.patch(path, body)).refused(404, "NotFound")


async def test_the_format_of_a_patch_or_a_new_object_comes_before_its_options(room: Room) -> None:
    """Of two faults the format is told; of an object that is put, the option."""
    for base in (room.maps, room.widgets):
        reply = await room.api.patch(f"{base}/absent", {}, "application/json", dryRun="x")
        reply.refused(415, "UnsupportedMediaType")
        reply = await room.api.post(base, {}, content="text/plain", dryRun="x")
        reply.refused(415, "UnsupportedMediaType")
        reply = await room.api.put(f"{base}/absent", {}, content="text/plain", dryRun="x")
        reply.refused(422, "Invalid")


@pytest.mark.parametrize("content", [MERGE, JSON_PATCH])
async def test_a_built_in_object_needs_its_version_and_not_its_kind(
    room: Room, content: str
) -> None:
    """The path says the kind; of no version an object has no name."""
    await room.config("a")
    for member, status in (("kind", 200), ("apiVersion", 400)):
        patch: Any = {member: None}
        if content == JSON_PATCH:
            patch = [{"op": "remove", "path": f"/{member}"}]
        reply = await room.api.patch(f"{room.maps}/a", patch, content)
        assert reply.status == status, reply.body


async def test_a_json_patch_of_null_is_no_change(room: Room) -> None:
    """As one without operations."""
    made = await room.widget("a")
    reply = await room.api.patch(f"{room.widgets}/a", b"null", JSON_PATCH)
    assert reply.version == made["metadata"]["resourceVersion"]


@pytest.mark.parametrize("digits", [30, 5000])
async def test_a_version_beyond_64_bits_is_out_of_range(room: Room, digits: int) -> None:
    """However long it is."""
    await room.config("a")
    patch = {"metadata": {"resourceVersion": "9" * digits}}
    reply = await room.api.patch(f"{room.maps}/a", patch)
    assert reply.status == 500
    assert "value out of range" in reply.message

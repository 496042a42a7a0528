"""Laws of server-side apply."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import APPLY, JSON_PATCH, Reply, Room, cause
from tests.conformance.objects import config, widget

Json = dict[str, Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def put(room: Room, name: str, manager: str, force: str = "", **data: str) -> Reply:
    """Apply a ConfigMap."""
    query = {"fieldManager": manager} | ({"force": force} if force else {})
    return await room.api.patch(f"{room.maps}/{name}", config(name, data), APPLY, **query)


async def test_applying_what_is_absent_creates_it(room: Room) -> None:
    """201 the first time, 200 afterwards, and no write when nothing changes."""
    first = await put(room, "a", "me", k="1")
    assert first.status == 201
    managed = first.ok()["metadata"]["managedFields"]
    assert [(item["manager"], item["operation"]) for item in managed] == [("me", "Apply")]
    assert managed[0]["fieldsV1"] == {"f:data": {"f:k": {}}}
    second = await put(room, "a", "me", k="1")
    assert second.status == 200
    assert second.version == first.version


async def test_what_is_no_longer_applied_is_removed(room: Room) -> None:
    """A field the manager alone had said goes when it stops saying it."""
    await put(room, "a", "me", k="1", gone="x")
    assert (await put(room, "a", "me", k="2")).ok()["data"] == {"k": "2"}


async def test_what_others_still_say_stays(room: Room) -> None:
    """A field two managers say stays until both stop; a field of an updater stays."""
    await put(room, "a", "me", k="1", both="x")
    await put(room, "a", "you", both="x")
    (await room.api.patch(f"{room.maps}/a", {"data": {"third": "y"}})).ok()
    assert (await put(room, "a", "me", k="1")).ok()["data"] == {
        "k": "1",
        "both": "x",
        "third": "y",
    }
    assert (await put(room, "a", "you")).ok()["data"] == {"k": "1", "third": "y"}


async def test_another_managers_field_conflicts_unless_forced(room: Room) -> None:
    """409 names manager and path; force takes the field over."""
    await put(room, "a", "me", k="1")
    reply = await put(room, "a", "you", k="2")
    status = reply.refused(409, "Conflict")
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "me": .data.k'
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "me"', "field": ".data.k"}
    ]
    forced = (await put(room, "a", "you", "true", k="2")).ok()
    assert forced["data"] == {"k": "2"}
    assert [item["manager"] for item in forced["metadata"]["managedFields"]] == ["you"]


async def test_agreeing_is_no_conflict(room: Room) -> None:
    """The same value of another manager is shared."""
    await put(room, "a", "me", k="1")
    made = (await put(room, "a", "you", k="1")).ok()
    assert {item["manager"] for item in made["metadata"]["managedFields"]} == {"me", "you"}


async def test_an_updater_is_a_manager_too(room: Room) -> None:
    """A field last changed by an ordinary write conflicts and names how it was written."""
    await put(room, "a", "me", k="1")
    change = {"data": {"k": "2"}}
    (await room.api.patch(f"{room.maps}/a", change, fieldManager="hand")).ok()
    status = (await put(room, "a", "me", k="3")).refused(409, "Conflict")
    assert 'conflict with "hand" using v1: .data.k' in status["message"]


async def test_apply_needs_a_manager_and_no_managed_fields(room: Room) -> None:
    """Without fieldManager 422, with managedFields 400, with another name 400."""
    path = f"{room.maps}/a"
    (await room.api.patch(path, config("a"), APPLY)).refused(422, "Invalid")
    managed = config("a", metadata={"managedFields": []})
    (await room.api.patch(path, managed, APPLY, fieldManager="me")).refused(400, "BadRequest")
    (await room.api.patch(path, config("b"), APPLY, fieldManager="me")).refused(400, "BadRequest")


async def test_yaml_can_be_applied(room: Room) -> None:
    """The body may be YAML, as its media type says."""
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: why}\ndata: {k: v}\n"
    reply = await room.api.patch(f"{room.maps}/why", body, APPLY, fieldManager="me")
    assert reply.ok()["data"] == {"k": "v"}


async def test_lists_with_keys_merge_item_by_item(room: Room) -> None:
    """Two managers can each bring a port of one Service, and take only their own away."""
    services = f"{room.core}/services"

    def service(*ports: int) -> dict[str, Any]:
        listed = [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in ports]
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s"},
            "spec": {"ports": listed, "selector": {"a": "b"}},
        }

    async def apply(manager: str, *ports: int) -> list[int]:
        reply = await room.api.patch(f"{services}/s", service(*ports), APPLY, fieldManager=manager)
        return sorted(port["port"] for port in reply.ok()["spec"]["ports"])

    assert await apply("me", 80) == [80]
    assert await apply("you", 81) == [80, 81]
    assert await apply("you", 82) == [80, 82]


async def test_status_is_applied_through_its_subresource(room: Room) -> None:
    """Applying to /status takes only status, and owns it there."""
    await room.widget("w")
    body = widget("w", size=99) | {"status": {"replicas": 4}}
    made = (await room.api.patch(f"{room.widgets}/w/status", body, APPLY, fieldManager="me")).ok()
    assert made["spec"]["size"] == 1
    assert made["status"] == {"replicas": 4}
    entry = next(i for i in made["metadata"]["managedFields"] if i["manager"] == "me")
    assert entry["subresource"] == "status"


async def test_what_was_there_before_the_first_apply_has_an_owner(room: Room) -> None:
    """An object without a record: all it has is of `before-first-apply`, and conflicts."""
    path = f"{room.maps}/a"
    (await room.api.post(room.maps, config("a", {"k": "1", "other": "x"}))).ok()
    (await room.api.patch(path, {"metadata": {"managedFields": [{}]}})).ok()
    reply = await put(room, "a", "me", k="2")
    assert 'conflict with "before-first-apply" using v1: .data.k' in reply.message
    reply.refused(409, "Conflict")
    managed = (await put(room, "a", "me", k="1")).ok()["metadata"]["managedFields"]
    assert [(one["manager"], one["operation"], one["fieldsV1"]) for one in managed] == [
        ("me", "Apply", {"f:data": {"f:k": {}}}),
        ("before-first-apply", "Update", {"f:data": {".": {}, "f:k": {}, "f:other": {}}}),
    ]


async def test_a_status_without_a_record_is_of_before_the_first_apply(room: Room) -> None:
    """An apply to the status takes up that half alone, through its subresource."""
    await room.widget("w")
    path = f"{room.widgets}/w"
    (await room.api.patch(f"{path}/status", {"status": {"replicas": 1}})).ok()
    (await room.api.patch(path, {"metadata": {"managedFields": [{}]}})).ok()
    applied = {"status": {"selector": "a=b"}, "metadata": {"name": "w"}}
    body = {"apiVersion": "laws.lean-sandbox.dev/v1", "kind": "Widget", **applied}
    reply = await room.api.patch(f"{path}/status", body, APPLY, fieldManager="me")
    managed = reply.ok()["metadata"]["managedFields"]
    assert [(one["manager"], one["subresource"], one["fieldsV1"]) for one in managed] == [
        ("me", "status", {"f:status": {"f:selector": {}}}),
        ("before-first-apply", "status", {"f:status": {".": {}, "f:replicas": {}}}),
    ]


@pytest.mark.parametrize("missing", ["kind", "apiVersion"])
@pytest.mark.parametrize("plural", ["maps", "widgets"])
async def test_what_is_applied_says_what_it_is(room: Room, plural: str, missing: str) -> None:
    """Without kind or apiVersion it is nothing, whether the object is there or not."""
    body = config("a") if plural == "maps" else widget("a")
    base = room.maps if plural == "maps" else room.widgets
    del body[missing]
    for member in ({}, {missing: None}):
        body |= member
        reply = await room.api.patch(f"{base}/a", body, APPLY, fieldManager="me")
        assert reply.status == 400, reply.body
        await room.api.post(base, config("a") if plural == "maps" else widget("a"))


async def test_an_absent_object_has_no_uid(room: Room) -> None:
    """What is applied under a uid is not created; a version or an empty record is no hindrance."""
    path = f"{room.maps}/a"
    wanted = config("a", metadata={"uid": "5", "resourceVersion": "7"})
    reply = await room.api.patch(path, wanted, APPLY, fieldManager="me")
    reply.refused(409, "Conflict")
    wanted["metadata"] = {"name": "a", "resourceVersion": "7", "managedFields": None}
    assert (await room.api.patch(path, wanted, APPLY, fieldManager="me")).status == 201
    wanted["metadata"] = {"name": "a", "managedFields": None}
    (await room.api.patch(path, wanted, APPLY, fieldManager="me")).ok()


async def test_an_item_is_applied_once(room: Room) -> None:
    """Two items of one key, or one value of a set twice, cannot be owned apart."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    ports = [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]
    body = {**service, "spec": {"ports": ports}}
    path = f"{room.core}/services/s"
    reply = await room.api.patch(path, body, APPLY, fieldManager="me")
    said = '.spec.ports: duplicate entries for key [port=80,protocol="TCP"]'
    assert (reply.status, said in reply.message) == (500, True)
    held = config("a", metadata={"finalizers": ["laws.dev/hold"] * 2})
    reply = await room.api.patch(f"{room.maps}/a", held, APPLY, fieldManager="me")
    assert (reply.status, "duplicate entries" in reply.message) == (500, True)
    assert (await room.api.get(f"{room.maps}/a")).status == 404


async def test_an_empty_list_of_items_is_owned_by_nobody(room: Room) -> None:
    """Who applies it owns no item, and so nothing."""
    held = config("a", metadata={"finalizers": []})
    reply = await room.api.patch(f"{room.maps}/a", held, APPLY, fieldManager="me")
    assert "f:metadata" not in str(reply.ok()["metadata"].get("managedFields"))


@pytest.mark.parametrize(
    "metadata", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"deletionGracePeriodSeconds": 30}]
)
async def test_nobody_applies_the_end_of_an_object(room: Room, metadata: Json) -> None:
    """Only a DELETE begins a deletion, and says how long it takes."""
    await room.config("a")
    await room.widget("a")
    for path, body in (
        (f"{room.maps}/a", config("a", metadata=metadata)),
        (f"{room.widgets}/a", widget("a", metadata=metadata)),
    ):
        reply = await room.api.patch(path, body, APPLY, fieldManager="m", force="true")
        reply.refused(422, "Invalid")
        assert "field is immutable" in reply.message


async def test_a_null_claims_a_map_and_none_of_its_members(room: Room) -> None:
    """Those of others stay, its own go; a null among texts is an empty one."""
    await room.widget("w", replicas=2)
    path = f"{room.widgets}/w"
    query = {"fieldManager": "m", "force": "true"}
    null = {**widget("w"), "spec": None}
    assert (await room.api.patch(path, null, APPLY, **query)).ok()["spec"]["replicas"] == 2
    labels = widget("w", metadata={"labels": {"a": None}, "annotations": None})
    applied = (await room.api.patch(path, labels, APPLY, **query)).ok()["metadata"]
    assert applied["labels"] == {"a": ""}
    assert "annotations" not in applied
    own = config("own", {"k": "1"})
    (await room.api.patch(f"{room.maps}/own", own, APPLY, **query)).ok()
    none = await room.api.patch(f"{room.maps}/own", {**own, "data": None}, APPLY, **query)
    assert "data" not in none.ok()


@pytest.mark.parametrize("version", [None, ""])
async def test_a_version_that_is_none_cannot_be_applied_to_a_custom_object(
    room: Room, version: str | None
) -> None:
    """Who says a version at all says which one is meant."""
    await room.widget("w")
    body = widget("w", metadata={"resourceVersion": version})
    reply = await room.api.patch(f"{room.widgets}/w", body, APPLY, fieldManager="m", force="true")
    reply.refused(422, "Invalid")
    assert cause(reply)[0] == "metadata.resourceVersion"


@pytest.mark.parametrize("name", ["w", "new"])
async def test_a_null_that_may_not_be_there_is_refused_where_it_is_applied(
    room: Room, name: str
) -> None:
    """It becomes the default if there is one; in other writes it is nothing."""
    await room.widget("w", replicas=2)
    path = f"{room.widgets}/{name}"
    query = {"fieldManager": "m", "force": "true"}
    for spec, status in (({"mode": None}, (200, 201)), ({"replicas": None}, (422,))):
        reply = await room.api.patch(path, widget(name, **spec), APPLY, **query)
        assert reply.status in status, reply.body
    merged = await room.api.patch(f"{room.widgets}/w", {"spec": {"replicas": None}})
    assert "replicas" not in merged.ok()["spec"]


async def test_an_empty_map_is_owned_by_who_applies_it(room: Room) -> None:
    """Who fills it is in conflict with him, and takes it over by force."""
    path = f"{room.maps}/a"

    def labelled(**labels: str) -> Json:
        metadata = {"name": "a", "labels": labels}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    (await room.api.patch(path, labelled(), APPLY, fieldManager="m")).ok()
    reply = await room.api.patch(path, labelled(x="1"), APPLY, fieldManager="n")
    reply.refused(409, "Conflict")
    assert cause(reply)[0] == ".metadata.labels"
    forced = await room.api.patch(path, labelled(x="1"), APPLY, fieldManager="n", force="true")
    assert [one["manager"] for one in forced.ok()["metadata"]["managedFields"]] == ["n"]


async def test_an_item_goes_with_who_owns_it(room: Room) -> None:
    """Who owns but a field of it does not hold it."""
    ports = [{"name": name, "port": port, "protocol": "TCP"} for name, port in (("a", 1), ("b", 2))]
    service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    service["spec"] = {"ports": ports}
    path = f"{room.core}/services/s"
    (await room.api.patch(path, service, APPLY, fieldManager="m")).ok()
    patch = [{"op": "replace", "path": "/spec/ports/1/targetPort", "value": 9}]
    (await room.api.patch(path, patch, JSON_PATCH, fieldManager="n")).ok()
    service["spec"] = {"ports": ports[:1]}
    (left,) = (await room.api.patch(path, service, APPLY, fieldManager="m")).ok()["spec"]["ports"]
    assert left == {**ports[0], "targetPort": 1}

"""Laws of watches."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import PARTIAL, TABLE, Room

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


def seen(events: list[Json]) -> list[tuple[str, str]]:
    """Return type and name of each event."""
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


async def version(room: Room) -> str:
    """Return the version of the store."""
    return (await room.api.get(room.widgets)).version


async def test_a_watch_without_version_begins_with_what_is_there(room: Room) -> None:
    """Present objects come as ADDED, then changes as they happen."""
    await room.widget("a")
    async with room.api.watch(room.widgets) as stream:
        assert seen(await stream.take(1)) == [("ADDED", "a")]
        await room.widget("b")
        (await room.api.patch(f"{room.widgets}/b", {"spec": {"size": 2}})).ok()
        await room.api.delete(f"{room.widgets}/a")
        assert seen(await stream.take(3)) == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]


async def test_a_watch_from_a_version_shows_what_came_after(room: Room) -> None:
    """Nothing is lost between a list and the watch from its version, and nothing comes twice."""
    await room.widget("a")
    start = await version(room)
    await room.widget("b")
    (await room.api.patch(f"{room.widgets}/a", {"spec": {"size": 2}})).ok()
    events = await room.widget_events(resourceVersion=start)
    assert seen(events) == [("ADDED", "b"), ("MODIFIED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)
    assert versions[0] > int(start)


async def test_an_event_shows_the_object_as_it_became(room: Room) -> None:
    """The object of an event is what a read after the change shows."""
    start = await version(room)
    made = await room.widget("a")
    (event,) = await room.api.events(room.widgets, 1, resourceVersion=start)
    assert event["object"] == made


async def test_a_deletion_carries_the_last_state_at_a_new_version(room: Room) -> None:
    """DELETED shows the object with the version of its removal."""
    made = await room.widget("a", size=7)
    start = await version(room)
    await room.api.delete(f"{room.widgets}/a")
    (event,) = await room.api.events(room.widgets, 1, resourceVersion=start)
    assert event["type"] == "DELETED"
    assert event["object"]["spec"] == made["spec"]
    assert event["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(start)


async def test_a_watch_ends_cleanly_at_its_timeout(room: Room) -> None:
    """TimeoutSeconds ends the stream without an error."""
    query = {"resourceVersion": await version(room), "timeoutSeconds": "1"}
    assert await room.api.events_to_the_end(room.widgets, **query) == []


async def test_a_selected_watch_sees_objects_come_and_go(room: Room) -> None:
    """What begins to match is ADDED, what ceases is DELETED as it last matched."""
    await room.widget("a", metadata={"labels": {"k": "v"}})
    start = await version(room)
    path = f"{room.widgets}/a"
    for labels in ({"k": "w"}, {"k": "v"}, {"k": "v", "x": "y"}, {"k": None}):
        (await room.api.patch(path, {"metadata": {"labels": labels}})).ok()
    events = await room.api.events(room.widgets, 4, resourceVersion=start, labelSelector="k=v")
    assert seen(events) == [
        ("DELETED", "a"),
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]
    assert events[0]["object"]["metadata"]["labels"] == {"k": "v"}
    assert int(events[0]["object"]["metadata"]["resourceVersion"]) > int(start)
    gone = await room.api.events(room.widgets, 2, resourceVersion=start, labelSelector="k=w")
    assert seen(gone) == [("ADDED", "a"), ("DELETED", "a")]


async def test_a_field_selector_turns_phases_into_events(room: Room) -> None:
    """A Pod that leaves Pending is ADDED to a watch of what is not pending."""
    start = await version(room)
    await room.pod("p")
    for phase in ("Running", "Succeeded"):
        await room.api.patch(f"{room.pods}/p/status", {"status": {"phase": phase}})
    events = await room.api.events(
        room.pods, 2, resourceVersion=start, fieldSelector="status.phase!=Pending"
    )
    assert seen(events) == [("ADDED", "p"), ("MODIFIED", "p")]


async def test_deleting_what_does_not_match_is_not_seen(room: Room) -> None:
    """A selected watch is silent about other objects."""
    await room.widget("a")
    start = await version(room)
    await room.api.delete(f"{room.widgets}/a")
    query = {"resourceVersion": start, "labelSelector": "k=v"}
    assert await room.widget_events({"k": "v"}, **query) == []


async def test_one_object_can_be_watched(room: Room) -> None:
    """A field selector on the name shows that object alone."""
    await room.widget("a")
    await room.widget("b")
    events = await room.api.events(room.widgets, 1, fieldSelector="metadata.name=b")
    assert seen(events) == [("ADDED", "b")]


async def test_initial_events_end_with_a_marked_bookmark(room: Room) -> None:
    """sendInitialEvents: present objects, then a bookmark with the annotation, then changes."""
    await room.widget("a")
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with room.api.watch(room.widgets, **query) as stream:
        first, mark = await stream.take(2)
        assert seen([first]) == [("ADDED", "a")]
        assert mark["type"] == "BOOKMARK"
        assert mark["object"]["kind"] == "Widget"
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(mark["object"]["metadata"]["resourceVersion"]) >= int(
            first["object"]["metadata"]["resourceVersion"]
        )
        await room.widget("b")
        assert seen(await stream.take(1)) == [("ADDED", "b")]


async def test_the_marked_bookmark_comes_in_every_representation(room: Room) -> None:
    """In a Table the annotation is on the object of its only row."""
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    (partial,) = await room.api.events(room.widgets, 1, accept=PARTIAL, **query)
    assert partial["object"]["kind"] == "PartialObjectMetadata"
    assert partial["object"]["metadata"]["annotations"]
    (table,) = await room.api.events(room.widgets, 1, accept=TABLE, **query)
    assert table["object"]["kind"] == "Table"
    (row,) = table["object"]["rows"]
    assert row["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize(
    "query",
    [
        {"sendInitialEvents": "true"},
        {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "Exact", "resourceVersion": "5"},
    ],
)
async def test_watch_options_that_make_no_sense_are_refused(room: Room, query: Json) -> None:
    """Forbidden combinations get 422 before any stream begins."""
    (await room.api.get(room.widgets, watch="1", **query)).refused(422, "Invalid")


async def test_a_table_watch_defines_its_columns_once(room: Room) -> None:
    """The first event brings the columns, later ones null; rows carry metadata."""
    await room.widget("a", replicas=2)
    await room.widget("b")
    first, second = await room.api.events(room.widgets, 2, accept=TABLE)
    assert [column["name"] for column in first["object"]["columnDefinitions"]] == [
        "Name",
        "Ready",
        "Replicas",
        "Age",
    ]
    assert second["object"]["columnDefinitions"] is None
    (row,) = first["object"]["rows"]
    assert row["cells"][:3] == ["a", None, 2]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "a"
    assert (
        first["object"]["metadata"]["resourceVersion"]
        == row["object"]["metadata"]["resourceVersion"]
    )


@pytest.mark.parametrize(("include", "kind"), [("None", None), ("Object", "Widget")])
async def test_a_row_shows_as_much_as_was_asked(room: Room, include: str, kind: str | None) -> None:
    """includeObject=None leaves the object out, Object gives it whole."""
    await room.widget("a")
    (event,) = await room.api.events(room.widgets, 1, accept=TABLE, includeObject=include)
    shown = event["object"]["rows"][0]["object"]
    assert (shown and shown["kind"]) == kind


async def test_a_column_follows_its_condition(room: Room) -> None:
    """The Ready column of a Table watch changes with the status condition."""
    await room.widget("a")
    start = await version(room)
    for status in ("False", "True"):
        body = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
        (await room.api.patch(f"{room.widgets}/a/status", body)).ok()
    events = await room.api.events(room.widgets, 2, accept=TABLE, resourceVersion=start)
    assert [event["object"]["rows"][0]["cells"][1] for event in events] == ["False", "True"]


async def test_a_metadata_watch_carries_metadata_alone(room: Room) -> None:
    """PartialObjectMetadata has neither spec nor status."""
    made = await room.widget("a")
    (event,) = await room.api.events(room.widgets, 1, accept=PARTIAL)
    assert event["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made["metadata"],
    }


async def test_a_watch_of_the_future_waits_for_it(room: Room) -> None:
    """A version still to come is no error: the stream is silent, whatever is written before it."""
    far = str(int(await version(room)) + 1_000_000)
    async with room.api.watch(room.widgets, resourceVersion=far, timeoutSeconds="1") as stream:
        await room.widget("a")
        assert await stream.rest() == []


async def test_a_finalizer_holds_the_deleted_event_back(room: Room) -> None:
    """Deletion of a held object is MODIFIED first and DELETED when the last finalizer goes."""
    await room.widget("a", metadata={"finalizers": ["laws.dev/hold"]})
    start = await version(room)
    await room.api.delete(f"{room.widgets}/a")
    (await room.api.patch(f"{room.widgets}/a", {"metadata": {"finalizers": None}})).ok()
    events = await room.api.events(room.widgets, 2, resourceVersion=start)
    assert seen(events) == [("MODIFIED", "a"), ("DELETED", "a")]
    assert events[0]["object"]["metadata"]["deletionTimestamp"]


async def test_a_bookmark_has_what_each_object_of_its_kind_has(room: Room) -> None:
    """Clients decode it as an object; of a Pod it has an empty spec, of a Widget nothing."""
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    for path, rest in (
        (room.pods, {"spec": {"containers": None}, "status": {}}),
        (f"{room.core}/services", {"spec": {}, "status": {"loadBalancer": {}}}),
        (room.widgets, {}),
    ):
        (event,) = await room.api.events(path, 1, allowWatchBookmarks="true", **query)
        assert event["type"] == "BOOKMARK"
        shown = event["object"]
        head = {"kind", "apiVersion", "metadata"}
        assert {name: shown[name] for name in shown.keys() - head} == rest

"""Laws of Events: what each of their two versions demands."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import Room

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


def about(room: Room, name: str = "e", **more: Any) -> Json:
    """Return an Event of events.k8s.io/v1, changed as asked; None takes a member out."""
    body = {
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "laws.dev/controller",
        "reportingInstance": "i",
        "action": "Act",
        "reason": "Because",
        "type": "Normal",
        "note": "hello",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": room.name},
        **more,
    }
    return {key: value for key, value in body.items() if value is not None}


def newer(room: Room) -> str:
    """Return the path of Events in their newer version."""
    return f"/apis/events.k8s.io/v1/namespaces/{room.name}/events"


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"eventTime": None}, "eventTime", "Required value"),
        ({"action": None}, "action", "Required value"),
        ({"reason": None}, "reason", "Required value"),
        ({"reportingInstance": None}, "reportingInstance", "Required value"),
        ({"type": None}, "type", 'Invalid value: "": has invalid value: '),
        ({"type": "Odd"}, "type", 'Invalid value: "": has invalid value: Odd'),
        (
            {"regarding": None},
            "involvedObject.namespace",
            'Invalid value: "": does not match event.namespace',
        ),
        ({"note": "x" * 1025}, "message", 'Invalid value: "": can have at most 1024 characters'),
        ({"reason": "x" * 129}, "reason", 'Invalid value: "": can have at most 128 characters'),
        ({"action": "x" * 129}, "action", 'Invalid value: "": can have at most 128 characters'),
        (
            {"series": {"count": 1, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}},
            "series.count",
            'Invalid value: "": should be at least 2',
        ),
    ],
)
async def test_an_event_has_to_say_who_did_what_and_when(
    room: Room, change: Json, field: str, message: str
) -> None:
    """events.k8s.io/v1 names the member that is missing, too long or of no known value."""
    reply = await room.api.post(newer(room), about(room, **change))
    causes = reply.refused(422, "Invalid")["details"]["causes"]
    assert (field, message) in [(one["field"], one["message"]) for one in causes]


async def test_a_reporting_controller_has_a_name(room: Room) -> None:
    """It is required and qualified like a label key."""
    for controller in (None, "a b"):
        body = about(room, reportingController=controller)
        reply = await room.api.post(newer(room), body)
        causes = reply.refused(422, "Invalid")["details"]["causes"]
        assert {one["field"] for one in causes} == {"reportingController"}


async def test_an_event_does_not_change_its_story(room: Room) -> None:
    """Only its series and metadata may be written again."""
    (await room.api.post(newer(room), about(room))).ok()
    path = f"{newer(room)}/e"
    reply = await room.api.patch(path, {"note": "bye"})
    reply.refused(422, "Invalid")
    assert reply.json["details"]["causes"][0]["field"] == "message"
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}
    assert (await room.api.patch(path, {"series": series})).ok()["series"] == series


async def test_an_older_event_asks_for_little(room: Room) -> None:
    """core/v1 wants it beside its object; what nobody says is written as empty."""
    involved = {"kind": "Pod", "name": "p", "namespace": room.name}
    body = {"metadata": {"name": "e"}, "involvedObject": involved, "reason": "R", "type": "Odd"}
    made = (await room.api.post(f"{room.core}/events", body)).ok()
    assert made["eventTime"] is None
    assert made["firstTimestamp"] is None
    assert made["source"] == {}
    assert (made["reportingComponent"], made["reportingInstance"]) == ("", "")
    shown = (await room.api.get(f"{newer(room)}/e")).ok()
    assert "reportingController" not in shown
    assert "reportingInstance" not in shown
    away = {**body, "metadata": {"name": "f"}, "involvedObject": {**involved, "namespace": "x"}}
    status = (await room.api.post(f"{room.core}/events", away)).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "involvedObject.namespace"


async def test_a_put_changes_no_more_of_an_event_than_a_patch(room: Room) -> None:
    """What events.k8s.io/v1 keeps is kept, whatever the verb; core/v1 lets it change."""
    core = f"{room.core}/events/a"
    newer = f"/apis/events.k8s.io/v1/namespaces/{room.name}/events/a"
    body = {"metadata": {"name": "a"}, "involvedObject": {"namespace": room.name}, "reason": "a"}
    (await room.api.post(f"{room.core}/events", body)).ok()
    shown = (await room.api.get(newer)).ok()
    (await room.api.put(newer, {**shown, "reason": "b"})).refused(422, "Invalid")
    (await room.api.patch(newer, {"reason": "b"})).refused(422, "Invalid")
    assert (await room.api.put(core, {**body, "reason": "b"})).ok()["reason"] == "b"

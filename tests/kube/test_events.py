"""The event recorder: what the server gets to see, and what it is spared."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import msgspec
import pytest

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.events import EventRecorder
from lean_sandbox.kube.resources import ObjectReference
from lean_sandbox.kube.transport import Transport
from tests.kube.server import Answer, Request, Script, Server, in_turn, reply, serve
from tests.support.clock import FakeClock, settle

POD = ObjectReference("v1", "Pod", "web", "a", "u1")
TERMINATING = {
    "kind": "Status",
    "reason": "Forbidden",
    "details": {"causes": [{"reason": "NamespaceTerminating"}]},
}


def fine(request: Request) -> Answer:
    """Accept everything."""
    return reply(201 if request.method == "POST" else 200)


@asynccontextmanager
async def recording(
    script: Script = fine, instance: str = "lean-0"
) -> AsyncIterator[tuple[Server, EventRecorder, FakeClock]]:
    """Run a server and a recorder; leaving closes the recorder and waits for its last request."""
    clock = FakeClock()
    async with serve(script) as server:
        transport = Transport(Connection(server.url))
        recorder = EventRecorder(
            Client(transport, field_manager="lean"), clock, "controllers.x/lean", instance
        )
        async with anyio.create_task_group() as group:
            group.start_soon(recorder.run)
            yield server, recorder, clock
            recorder.close()
        await transport.aclose()


async def test_an_event_is_posted_as_the_api_wants_it() -> None:
    """Name, namespace, times, controller, texts and references are all there."""
    related = ObjectReference("v1", "Service", "svc", "a", "u2")
    async with recording() as (server, recorder, _):
        recorder.emit(POD, "Warning", "Failed", "Create", "no luck", related)
        await server.received(1)
    (request,) = server.requests
    assert request.target == "/apis/events.k8s.io/v1/namespaces/a/events?fieldManager=lean"
    name = request.json["metadata"]["name"]
    assert re.fullmatch(r"web\.[0-9a-f]{16}", name)
    assert request.json == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "a"},
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingController": "controllers.x/lean",
        "reportingInstance": "lean-0",
        "type": "Warning",
        "reason": "Failed",
        "action": "Create",
        "note": "no luck",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "web",
            "namespace": "a",
            "uid": "u1",
        },
        "related": {
            "apiVersion": "v1",
            "kind": "Service",
            "name": "svc",
            "namespace": "a",
            "uid": "u2",
        },
    }
    assert recorder.counts["posted"] == 1


@pytest.mark.parametrize(
    ("name", "kept"), [("n" * 253, "n" * 236), (f"{'n' * 234}.-{'n' * 17}", "n" * 234)]
)
async def test_texts_are_cut_to_what_the_server_accepts(name: str, kept: str) -> None:
    """Note 1024 bytes on a character's border, names 253, reason, action and instance 128."""
    reference = ObjectReference("v1", "Node", name)
    async with recording(instance="i" * 200) as (server, recorder, _):
        recorder.emit(reference, "Normal", "R" * 200, "A" * 200, "\u20ac" * 500)
        await server.received(1)
    event = server.requests[0].json
    assert event["note"] == "\u20ac" * 341
    assert re.fullmatch(rf"{kept}\.[0-9a-f]{{16}}", event["metadata"]["name"])
    assert event["metadata"]["namespace"] == "default"
    assert (len(event["reason"]), len(event["action"])) == (128, 128)
    assert event["reportingInstance"] == "i" * 128


async def test_the_series_that_is_due_first_is_told_first() -> None:
    """Whatever the order in which others began."""
    async with recording() as (server, recorder, clock):
        for pause_s, reason in ((0.0, "A"), (10.0, "B"), (20.0, "A"), (5.0, "B"), (0.0, "A")):
            await clock.advance(pause_s)
            recorder.emit(POD, "Normal", reason, "Wait", "")
            await clock.advance(0.0)
        # Both have been told of a second time: A after 30 s, B after 35 s.
        await server.received(4)
        recorder.emit(POD, "Normal", "B", "Wait", "")
        await clock.advance(55.5)
        await server.received(5)
        await clock.advance(5.0)
        await server.received(6)
    names = [request.json["metadata"]["name"] for request in server.requests[:2]]
    patched = [request.target for request in server.requests[2:6]]
    assert [names[0] in target for target in patched] == [True, False, True, False]
    assert [names[1] in target for target in patched] == [False, True, False, True]


async def test_repeats_become_a_series_of_the_first() -> None:
    """One create, then patches with the count, at most one a minute."""
    async with recording() as (server, recorder, clock):
        recorder.emit(POD, "Normal", "Back", "Wait", "first")
        await server.received(1)
        await clock.advance(10)
        # With another note it is still the same event.
        recorder.emit(POD, "Normal", "Back", "Wait", "second")
        await server.received(2)
        for _ in range(3):
            recorder.emit(POD, "Normal", "Back", "Wait", "more")
        await clock.advance(59)
        assert len(server.requests) == 2
        await clock.advance(2)
        await server.received(3)
    first, second, third = server.requests
    assert (second.method, third.method) == ("PATCH", "PATCH")
    assert f"/events/{first.json['metadata']['name']}?" in second.target
    assert second.json == {
        "series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:15.000000Z"}
    }
    assert third.json["series"]["count"] == 5
    assert first.headers["content-type"] == "application/json"
    assert (recorder.counts["posted"], recorder.counts["folded"]) == (1, 4)
    assert recorder.counts["patched"] == 2


async def test_after_six_quiet_minutes_a_repeat_is_a_new_event() -> None:
    """A series ends when nothing happened for six minutes."""
    async with recording() as (server, recorder, clock):
        recorder.emit(POD, "Normal", "Back", "Wait", "")
        await clock.advance(360)
        recorder.emit(POD, "Normal", "Back", "Wait", "")
        await server.received(2)
    assert [request.method for request in server.requests] == ["POST", "POST"]


async def test_what_differs_in_type_reason_action_or_object_is_not_folded() -> None:
    """Only the same thing about the same object is a repeat."""
    other = ObjectReference("v1", "Pod", "web", "a", "u9")
    async with recording() as (_, recorder, _):
        recorder.emit(POD, "Normal", "A", "X", "")
        recorder.emit(POD, "Warning", "A", "X", "")
        recorder.emit(POD, "Normal", "B", "X", "")
        recorder.emit(POD, "Normal", "A", "Y", "")
        recorder.emit(other, "Normal", "A", "X", "")
        recorder.emit(POD, "Normal", "A", "X", "", other)
    assert (recorder.counts["posted"], recorder.counts["folded"]) == (6, 0)


async def test_of_a_full_queue_the_namespace_with_the_most_loses_its_oldest() -> None:
    """One tenant's thousands neither delay nor push out what there is to tell another one."""
    other = msgspec.structs.replace(POD, namespace="single")
    async with recording() as (server, recorder, _):
        for number in range(999):
            recorder.emit(POD, "Normal", f"R{number}", "X", "")
        recorder.emit(other, "Normal", "Single", "X", "")
        assert recorder.counts["dropped"] == 0
        for number in range(999, 1002):
            recorder.emit(POD, "Normal", f"R{number}", "X", "")
        assert recorder.counts["dropped"] == 3
    reasons = [request.json["reason"] for request in server.requests]
    assert reasons == ["R3", "Single", *(f"R{number}" for number in range(4, 1002))]
    assert recorder.counts["posted"] == 1000


def test_what_waits_is_bounded_in_bytes() -> None:
    """2,500 Events of the longest texts and names."""
    client = Client(Transport(Connection("http://127.0.0.1:1")))
    recorder = EventRecorder(client, FakeClock(), "controllers.x/lean", "lean-0")
    tracemalloc.start()
    try:
        for number in range(2500):
            name = f"{number:04}{'n' * 249}"
            reference = ObjectReference("v1", "Pod", name, "a" * 63, f"{number:036}")
            recorder.emit(reference, "Normal", "R" * 128, "A" * 128, "x" * 1024)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 5 * 2**20


@pytest.mark.parametrize("refused", ["POST", "PATCH"])
async def test_the_next_event_waits_as_long_as_the_server_asks(refused: str) -> None:
    """A server under load is not asked again at once, however quick it is to say no."""

    def answer(request: Request) -> Answer:
        if request.method == refused and len(server.requests) < 4:
            return reply(429, headers={"Retry-After": "7"})
        return fine(request)

    async with recording(answer) as (server, recorder, clock):
        for name in ("a", "a", "b", "b"):
            pod = msgspec.structs.replace(POD, name=name)
            recorder.emit(pod, "Normal", "Back", "Wait", "")
        first = 1 if refused == "POST" else 3
        await server.received(first)
        await clock.advance(6.9)
        assert len(server.requests) == first
        await clock.advance(0.2)
        await server.received(first + 1)


async def test_a_recorder_is_busy_until_the_last_answer() -> None:
    """Whoever waits for its rest, as to count requests, misses none that is under way."""
    busy: list[bool] = []

    def look(_: Request) -> Answer:
        busy.append(recorder.is_busy)
        return reply(201)

    async with recording(look) as (_, recorder, _):
        assert not recorder.is_busy
        recorder.emit(POD, "Normal", "A", "X", "")
        assert recorder.is_busy
        while not recorder.counts["posted"]:
            await anyio.lowlevel.checkpoint()
        await settle(5)
        assert not recorder.is_busy
    assert busy == [True]


@pytest.mark.parametrize("answer", [reply(404), reply(403), reply(500), Answer(close=True)])
async def test_failures_are_counted_and_forgotten(answer: Answer) -> None:
    """An event that cannot be posted costs one request, and never the controller."""
    async with recording(in_turn(answer, reply(201))) as (server, recorder, _):
        recorder.emit(POD, "Normal", "A", "X", "")
        await server.received(1)
        recorder.emit(POD, "Normal", "B", "X", "")
    assert (recorder.counts["failed"], recorder.counts["posted"]) == (1, 1)


async def test_a_terminating_namespace_is_counted_apart() -> None:
    """Events about objects of a dying namespace cannot be posted, and that is no fault."""
    async with recording(in_turn(reply(403, TERMINATING))) as (_, recorder, _):
        recorder.emit(POD, "Normal", "A", "X", "")
    assert (recorder.counts["terminating"], recorder.counts["failed"]) == (1, 0)


async def test_an_event_that_expired_on_the_server_begins_anew() -> None:
    """A patch that finds nothing ends the series: the next of its kind is a new event."""
    gone = reply(404, {"kind": "Status", "reason": "NotFound"})
    async with recording(in_turn(reply(201), gone, reply(201))) as (server, recorder, _):
        for count in (1, 2, 3):
            recorder.emit(POD, "Normal", "A", "X", "")
            await server.received(count)
            while count == 2 and not recorder.counts["patch_failed"]:
                await anyio.lowlevel.checkpoint()
    assert [request.method for request in server.requests] == ["POST", "PATCH", "POST"]
    assert recorder.counts["patch_failed"] == 1


async def test_closing_posts_what_waits_and_takes_no_more() -> None:
    """The last words of a controller are heard; counts of series included."""
    async with recording() as (server, recorder, _):
        for _ in range(3):
            recorder.emit(POD, "Normal", "A", "X", "")
    recorder.emit(POD, "Normal", "B", "X", "")
    assert [request.method for request in server.requests] == ["POST", "PATCH"]
    assert server.requests[1].json["series"]["count"] == 3
    assert recorder.counts["dropped"] == 1


async def test_a_thousand_series_are_remembered() -> None:
    """A repeat of one that was forgotten is a new event."""
    async with recording() as (server, recorder, _):
        recorder.emit(POD, "Normal", "Back", "Wait", "")
        await server.received(1)
        for number in range(999):
            recorder.emit(POD, "Normal", f"R{number}", "X", "")
        recorder.emit(POD, "Normal", "Back", "Wait", "")
        assert recorder.counts["folded"] == 1
        recorder.emit(POD, "Normal", "R999", "X", "")
        recorder.emit(POD, "Normal", "Back", "Wait", "")
        assert recorder.counts["folded"] == 1

"""The trace context that the controller leaves on a Sandbox when tracing is switched on."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.model.times import format_rfc3339
from tests.support.clock import EPOCH
from tests.support.world import World, condition, open_world, sandbox

Json = dict[str, Any]
KEY = "opentelemetry.io/trace-context"
CONTEXT = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'


class Spans:
    """A tracing whose current span is always the same."""

    def __init__(self, context: str | None = CONTEXT) -> None:
        """Hand out ``context`` for the current span; ``None`` when no span records."""
        self.context = context

    def carrier(self) -> str | None:
        """Return the current span's headers."""
        return self.context


def trace_of(world: World) -> str | None:
    """Return the annotation on the Sandbox."""
    annotations: dict[str, str] = world.get()["metadata"].get("annotations") or {}
    return annotations.get(KEY)


def carrying(value: str, **spec: Any) -> Json:
    """Return a Sandbox that comes with a trace context."""
    return sandbox(metadata={"annotations": {KEY: value}}, spec=spec)


@pytest.mark.case(133)
async def test_with_tracing_off_no_trace_is_left() -> None:
    """Case 133: without tracing the annotation is never written."""
    async with open_world() as world:
        await world.ready_sandbox()
        assert trace_of(world) is None
        assert "patch sandboxes" not in world.asked()


@pytest.mark.case(133)
async def test_with_tracing_on_the_trace_is_left_once() -> None:
    """Case 133: one patch of the Sandbox, and never another, also over suspend and resume."""
    async with open_world(tracing=Spans()) as world:
        world.forget_requests()
        await world.ready_sandbox()
        assert trace_of(world) == CONTEXT
        assert world.writes() == {
            "patch sandboxes": 1,
            "create pods": 1,
            "patch sandboxes/status": 1,
        }
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", {"spec": {"operatingMode": "Suspended"}})
        await world.delete("pods", "sb-1")
        await world.patch("sandboxes", "sb-1", {"spec": {"operatingMode": "Running"}})
        await world.run_pod()
        assert world.writes()["patch sandboxes"] == 0


@pytest.mark.case(133)
async def test_an_empty_trace_counts_as_none() -> None:
    """Case 133: a key without a value is filled."""
    async with open_world(tracing=Spans()) as world:
        await world.create(carrying(""))
        assert trace_of(world) == CONTEXT


@pytest.mark.case(133)
async def test_without_a_recording_span_no_trace_is_left() -> None:
    """Case 133: there is nothing to write when the current span has no context."""
    async with open_world(tracing=Spans(None)) as world:
        world.forget_requests()
        await world.ready_sandbox()
        assert trace_of(world) is None
        assert "patch sandboxes" not in world.asked()


@pytest.mark.case(132)
@pytest.mark.parametrize("value", ["not json", "[]", CONTEXT.replace("0af7", "0bf7")])
async def test_a_trace_that_is_there_is_kept_whatever_it_says(value: str) -> None:
    """Case 132: what the client wrote stays, readable or not, and the launch goes on."""
    async with open_world(tracing=Spans()) as world:
        await world.create(carrying(value))
        await world.run_pod()
        assert trace_of(world) == value
        assert condition(world.get(), "Ready")["status"] == "True"
        assert all(report.error is None for report in world.reports)


@pytest.mark.case(133)
async def test_an_expired_sandbox_gets_its_trace_and_a_deleted_one_does_not() -> None:
    """Case 133: expiry does not stop the annotation, deletion does."""
    async with open_world(tracing=Spans()) as world:
        await world.create(sandbox(spec={"shutdownTime": format_rfc3339(EPOCH)}))
        assert trace_of(world) == CONTEXT
    async with open_world() as first:
        await first.create(sandbox(metadata={"finalizers": ["example.com/hold"]}))
        plane = first.plane
        await first.delete("sandboxes", "sb-1")
        async with open_world(plane=plane, tracing=Spans()) as second:
            await second.advance(60.0)
            assert trace_of(second) is None


@pytest.mark.case(132)
async def test_a_trace_that_cannot_be_left_fails_the_pass_and_is_tried_again() -> None:
    """Case 132: the server's no to the annotation is repeated with backoff like any other."""
    async with open_world(tracing=Spans()) as world:
        world.plane.fail_next("patch", "sandboxes", 500)
        await world.create(sandbox())
        await world.advance(1.0)
        assert trace_of(world) == CONTEXT
        assert world.find("pods") is not None

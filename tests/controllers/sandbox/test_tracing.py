"""The trace context that the controller leaves on a Sandbox when tracing is switched on."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lean_sandbox.model.times import format_rfc3339
from lean_sandbox.runtime.tracing import Tracing
from tests.support.clock import EPOCH
from tests.support.spans import CONTEXT, Spans
from tests.support.suspension import resume, suspend
from tests.support.world import World, condition, open_world, sandbox

Json = dict[str, Any]
KEY = "opentelemetry.io/trace-context"


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
        await suspend(world)
        await world.delete("pods", "sb-1")
        await resume(world)
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
async def test_a_trace_that_cannot_be_left_fails_the_reconcile_and_is_tried_again() -> None:
    """Case 132: the server's no to the annotation is repeated with backoff like any other."""
    async with open_world(tracing=Spans()) as world:
        world.plane.fail_next("patch", "sandboxes", 500)
        await world.create(sandbox())
        await world.advance(1.0)
        assert trace_of(world) == CONTEXT
        assert world.find("pods") is not None


# -- spans -----------------------------------------------------------------------------------------

CREATED_BY = "agents.x-k8s.io/created-by"


@pytest.mark.case(134)
@pytest.mark.parametrize(
    ("label", "told"), [("x", "unknown"), ("", ""), ("go-client", "go-client"), (None, None)]
)
async def test_the_span_of_a_reconcile_says_which_sandbox_and_who_made_it(
    label: str | None, told: str | None
) -> None:
    """Case 134: created-by is normalised, and left out where the Sandbox does not say it."""
    spans = Spans()
    async with open_world(tracing=spans) as world:
        labels = {} if label is None else {"labels": {CREATED_BY: label}}
        await world.create(sandbox(metadata=labels))
        (name, attributes, parent), *steps = spans.begun
    assert name == "ReconcileSandbox"
    made_by = {} if told is None else {CREATED_BY: told}
    assert attributes == {"sandbox.name": "sb-1", "sandbox.namespace": "ns", **made_by}
    assert parent is None
    assert [step for step, *_ in steps[:2]] == ["reconcilePVCs", "reconcilePod"]
    assert spans.ended[:3] == ["reconcilePVCs", "reconcilePod", "ReconcileSandbox"]


@pytest.mark.case(134)
async def test_a_reconcile_goes_on_with_the_trace_that_the_client_began() -> None:
    """The context on the Sandbox is the parent of every reconcile, in the words of the client."""
    spans = Spans()
    async with open_world(tracing=spans) as world:
        await world.create(carrying(CONTEXT))
        await world.run_pod()
    parents = {parent for name, _, parent in spans.begun if name == "ReconcileSandbox"}
    assert parents == {CONTEXT}


async def test_a_reconcile_that_is_not_made_has_no_span() -> None:
    """Nothing is traced of a Sandbox that is gone or going."""
    spans = Spans()
    async with open_world(tracing=spans) as world:
        await world.create(sandbox(metadata={"finalizers": ["example.com/hold"]}))
        await world.delete("sandboxes", "sb-1")
        spans.begun.clear()
        await world.delete("pods", "sb-1")
        await world.advance(60.0)
        assert not spans.begun


@pytest.mark.case(132, 134)
@pytest.mark.parametrize("left", [None, CONTEXT, "not json", '{"traceparent": 1}'])
async def test_the_spans_of_opentelemetry_are_those_of_the_reconciles(left: str | None) -> None:
    """Root, steps and parent as OpenTelemetry exports them; what cannot be read begins a trace."""
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter)
    async with open_world(tracing=tracing) as world:
        await world.create(sandbox() if left is None else carrying(left))
        trace = trace_of(world)
    await tracing.aclose()
    exported = exporter.get_finished_spans()
    roots = [span for span in exported if span.name == "ReconcileSandbox"]
    steps = [span for span in exported if span.name == "reconcilePod"]
    root = roots[0]
    step = steps[0]
    assert step.parent is not None
    assert step.parent.span_id == root.context.span_id
    assert root.resource.attributes["service.name"] == "agent-sandbox-controller"
    if left == CONTEXT:
        assert root.parent is not None
        assert f"{root.context.trace_id:032x}" in CONTEXT
    else:
        assert root.parent is None
    if left is None:
        assert trace is not None
        assert f"{root.context.trace_id:032x}" in trace
        assert [one.context.trace_id for one in roots] == [root.context.trace_id] * len(roots)


@pytest.mark.case(134)
async def test_the_step_of_the_pod_tells_how_it_was_found() -> None:
    """A Pod that was made is told once, with its first phase; later ones tell what they found."""
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter)
    async with open_world(tracing=tracing) as world:
        await world.ready_sandbox()
    await tracing.aclose()
    told = [
        (event.name, dict(event.attributes or {}))
        for span in exporter.get_finished_spans()
        if span.name == "reconcilePod"
        for event in span.events
    ]
    first, *later = told
    assert first == ("NewPodStatusObserved", {"pod.Name": "sb-1", "pod.Phase": "Pending"})
    assert later[-1] == (
        "ExistingPodStatusObserved",
        {"pod.Name": "sb-1", "pod.Phase": "Running"},
    )
    assert {name for name, _ in later} == {"ExistingPodStatusObserved"}


async def test_a_span_that_does_not_record_is_told_nothing() -> None:
    """Outside of any span an event goes nowhere, and fails nobody."""
    tracing = Tracing(InMemorySpanExporter())
    tracing.event("ExistingPodStatusObserved", {"pod.Name": "sb-1"})
    assert tracing.carrier() is None
    await tracing.aclose()

"""Laws of the simulated scheduler."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from lean_sandbox.local.kubelet_settings import KubeletSettings
from lean_sandbox.local.pods import Step, StepKind, perform
from lean_sandbox.local.podview import NodeView, PodView, condition
from lean_sandbox.local.scheduling import next_binding
from tests.kubelet.life import node, pod
from tests.support.clock import EPOCH

SETTINGS = KubeletSettings()
NODES = {n.metadata.name: n for n in (node("a", disk="fast"), node("b"))}


def bind(
    found: PodView,
    nodes: dict[str, NodeView] | None = None,
    pods_on: dict[str, int] | None = None,
    *,
    later_s: float = 0,
) -> Step | None:
    """Return what the scheduler does next."""
    now = EPOCH + timedelta(seconds=later_s)
    return next_binding(found, NODES if nodes is None else nodes, pods_on or {}, SETTINGS, now)


def verdict(step: Step | None) -> tuple[str, str]:
    """Return reason and message of a Pod that is not bound."""
    assert step is not None
    assert step.kind is StepKind.STATUS
    assert step.verdict is not None
    return step.verdict


def test_the_emptiest_node_is_taken() -> None:
    """Ties by name."""
    plays: list[tuple[dict[str, int], str]] = [
        ({}, "a"),
        ({"a": 2, "b": 1}, "b"),
        ({"a": 1, "b": 1}, "a"),
    ]
    for pods_on, expected in plays:
        step = bind(pod(node=""), NODES, pods_on)
        assert step is not None
        assert (step.kind, step.node) == (StepKind.BIND, expected)


def test_a_node_selector_is_obeyed() -> None:
    """Only a Node with every label will do."""
    step = bind(pod(node="", nodeSelector={"disk": "fast"}), NODES, {"a": 9})
    assert step is not None
    assert step.node == "a"


def test_a_pod_no_node_satisfies_says_so_once() -> None:
    """With the scheduler's message, and not again while it stands."""
    found = pod(node="", nodeSelector={"disk": "none"})
    step = bind(found)
    reason, message = verdict(step)
    assert reason == "Unschedulable"
    assert message.startswith(
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    )
    assert step is not None
    said = replace(found, status=perform(found, step, SETTINGS, EPOCH))
    written = condition(said.status, "PodScheduled") or {}
    assert (written["status"], written["reason"]) == ("False", "Unschedulable")
    assert bind(said) is None


def test_each_reason_is_counted() -> None:
    """Cordoned, full and unfitting Nodes are told apart."""
    nodes = {
        "a": node("a", unschedulable=True),
        "b": node("b", pods="3", kind="x"),
        "c": node("c"),
    }
    _, message = verdict(bind(pod(node="", nodeSelector={"kind": "x"}), nodes, {"b": 3}))
    assert message.startswith(
        "0/3 nodes are available: 1 Too many pods, 1 node(s) didn't match Pod's node "
        "affinity/selector, 1 node(s) were unschedulable. preemption: 0/3"
    )


def test_without_nodes_the_message_is_its_own() -> None:
    """As kube-scheduler words it."""
    assert verdict(bind(pod(node=""), {}))[1] == "no nodes available to schedule pods"


def test_a_scripted_pod_is_unschedulable_for_ever() -> None:
    """With the message it asks for."""
    script = {"unschedulable": "true", "unschedulable-message": "no room for the likes of you"}
    found = pod(node="", script=script)
    assert verdict(bind(found))[1] == script["unschedulable-message"]
    status = {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": script["unschedulable-message"],
            }
        ]
    }
    assert bind(pod(node="", script=script, status=status), later_s=1e6) is None


def test_a_scripted_pod_is_bound_when_its_time_has_come() -> None:
    """The binding is planned for that moment already when the refusal was written."""
    found = pod(node="", script={"unschedulable": "10s"})
    step = bind(found, later_s=4)
    assert verdict(step)[1].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert step is not None
    said = replace(found, status=perform(found, step, SETTINGS, EPOCH))
    later = bind(said, later_s=4)
    assert later is not None
    assert later.kind is StepKind.BIND
    assert later.delay.base_s == pytest.approx(6 + SETTINGS.schedule.base_s)
    at_once = bind(said, later_s=10)
    assert at_once is not None
    assert at_once.delay == SETTINGS.schedule


def test_a_gated_pod_waits_for_its_gates() -> None:
    """Reason SchedulingGated."""
    found = pod(node="", schedulingGates=[{"name": "example.com/hold"}])
    assert verdict(bind(found))[0] == "SchedulingGated"


def test_a_pod_may_ask_for_a_node_by_name() -> None:
    """A Node that does not exist fits nobody."""
    step = bind(pod(node="", script={"node": "b"}))
    assert step is not None
    assert step.node == "b"
    assert verdict(bind(pod(node="", script={"node": "z"})))[0] == "Unschedulable"


def test_pods_of_others_are_left_alone() -> None:
    """Bound ones, deleted ones, ignored ones, those of another scheduler."""
    assert bind(pod()) is None
    assert bind(pod(node="", meta={"deletionTimestamp": "2026-01-02T03:04:05Z"})) is None
    assert bind(pod(node="", script={"ignore": "true"})) is None
    assert bind(pod(node="", schedulerName="mine")) is None

"""Which simulated Node takes a Pod, or what the scheduler says when none does: pure functions.

Messages have the form kube-scheduler gives them: how many of how many Nodes fail for which reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from lean_sandbox.local.kubelet_settings import Delay, KubeletSettings
from lean_sandbox.local.pods import Step, StepKind
from lean_sandbox.local.podview import NodeView, PodView, age_s, condition
from lean_sandbox.local.script import Script, read_script

_GATED = (
    "SchedulingGated",
    "Scheduling is blocked due to non-empty scheduling gates",
)


def next_binding(
    pod: PodView,
    nodes: Mapping[str, NodeView],
    pods_on: Mapping[str, int],
    settings: KubeletSettings,
    now: datetime,
) -> Step | None:
    """Return the scheduler's next request for an unbound ``pod``: bind it, or say why not, once.

    ``pods_on`` tells how many Pods each Node has; the emptiest Node that fits is taken.
    """
    script = read_script(pod, settings)
    is_ours = pod.spec.schedulerName in settings.scheduler_names
    if script.is_ignored or pod.is_deleting or pod.spec.nodeName or not is_ours:
        return None
    if pod.spec.schedulingGates:
        return _say(pod, *_GATED)
    held_s = _held_s(script, pod, now)
    if held_s > 0:
        insufficient = Counter({"Insufficient cpu": len(nodes)})
        message = script.unschedulable_message or _failure(len(nodes), insufficient)
        said = _say(pod, "Unschedulable", message)
        if said is not None or math.isinf(held_s):
            return said
    why_not: Counter[str] = Counter()
    fitting = []
    for name in sorted(nodes):
        reason = _misfit(pod, nodes[name], pods_on.get(name, 0), script.node)
        if reason:
            why_not[reason] += 1
        else:
            fitting.append(name)
    if fitting:
        delay = Delay(settings.schedule.base_s + held_s, settings.schedule.jitter_s)
        return Step(StepKind.BIND, delay, node=min(fitting, key=lambda n: pods_on.get(n, 0)))
    # While held back the script's message stands; two messages in turn would never end.
    return None if held_s > 0 else _say(pod, "Unschedulable", _failure(len(nodes), why_not))


def _held_s(script: Script, pod: PodView, now: datetime) -> float:
    """Return how much longer the script keeps the Pod from being bound."""
    if script.unschedulable_s is None:
        return 0.0
    return max(0.0, script.unschedulable_s - age_s(pod.metadata.creationTimestamp, now))


def _misfit(pod: PodView, node: NodeView, pods: int, wanted: str) -> str:
    """Return the scheduler's words for why ``node`` does not take ``pod``; empty when it does."""
    if node.spec.unschedulable:
        return "node(s) were unschedulable"
    labels = node.metadata.labels or {}
    selector = pod.spec.nodeSelector or {}
    is_other = bool(wanted) and wanted != node.metadata.name
    if is_other or any(labels.get(key) != value for key, value in selector.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    if node.max_pods is not None and pods >= node.max_pods:
        return "Too many pods"
    return ""


def _failure(total: int, why_not: Counter[str]) -> str:
    if total == 0:
        return "no nodes available to schedule pods"
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(why_not.items()))
    preemption = f"0/{total} nodes are available: {total} Preemption is not helpful for scheduling."
    return f"0/{total} nodes are available: {reasons}. preemption: {preemption}"


def _say(pod: PodView, reason: str, message: str) -> Step | None:
    """Return the step that writes the PodScheduled condition, or None when it already says so."""
    old = condition(pod.status, "PodScheduled") or {}
    if (old.get("status"), old.get("reason"), old.get("message")) == ("False", reason, message):
        return None
    return Step(StepKind.STATUS, verdict=(reason, message))

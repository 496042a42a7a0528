"""What a simulated kubelet does next with a Pod: one pure decision, and the status it writes.

:func:`next_step` looks at a Pod alone. All progress is read from the Pod's own status, so a
kubelet that starts again continues where another one stopped. :func:`perform` gives the status
after a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from msgspec.structs import replace

from lean_sandbox.local import podstatus
from lean_sandbox.local.kubelet_settings import AT_ONCE, Delay, KubeletSettings, WritesPerStart
from lean_sandbox.local.podview import (
    ContainerStatus,
    PodStatus,
    PodView,
    age_s,
    condition,
    condition_is,
)
from lean_sandbox.local.script import Script, read_script
from lean_sandbox.model.times import format_rfc3339

# Addresses of a projected Pod: compressed starts look ahead before any address is taken.
_PROJECTED = ("192.0.2.1",)
_COUNTED_FROM_NOW = frozenset({"ready", "gates", "backoff", "restart"})
_FOLDED = {
    WritesPerStart.ONE: frozenset({"waiting", "network", "running", "ready"}),
    WritesPerStart.TWO: frozenset({"waiting", "network", "running"}),
}


class StepKind(Enum):
    """The request a step costs."""

    BIND = "POST pods/binding"
    STATUS = "PATCH pods/status"
    DELETE = "DELETE pods"


@dataclass(frozen=True, slots=True)
class Move:
    """One change of a Pod's status and the containers it concerns; see :mod:`podstatus`."""

    name: str
    targets: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Step:
    """One request to make after a delay counted from the moment the Pod was seen.

    Two steps with the same :attr:`key` are the same intent: a timer set for one serves the other.
    """

    kind: StepKind
    delay: Delay = AT_ONCE
    moves: tuple[Move, ...] = ()
    node: str = ""
    # The PodScheduled condition of a Pod that cannot be bound: (reason, message).
    verdict: tuple[str, str] | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Return what identifies the intent of the step."""
        return (self.kind, self.moves, self.node, self.verdict)

    @property
    def needs_addresses(self) -> bool:
        """Whether the Pod gets its addresses in this step."""
        return any(move.name == "network" for move in self.moves)


def next_step(pod: PodView, settings: KubeletSettings, now: datetime) -> Step | None:
    """Return the kubelet's next request for ``pod``, or None while it has nothing to do.

    Pods without a node are the scheduler's (:mod:`scheduling`), except for their deletion.
    """
    script = read_script(pod, settings)
    if script.is_ignored:
        return None
    if pod.is_deleting:
        return _deletion(pod, script, settings)
    if not pod.spec.nodeName:
        return None
    first = _next_move(pod, script, settings, now)
    if first is None:
        return None
    move, delay = first
    folded = _FOLDED.get(settings.writes_per_start, frozenset())
    moves, base_s, jitter_s = [move], delay.base_s, delay.jitter_s
    while moves[-1].name in folded:
        moment = podstatus.Moment(pod, script, settings, now, _PROJECTED)
        status = podstatus.advance(moment, pod.status, moves[-1].name, moves[-1].targets)
        pod = replace(pod, status=status)
        following = _next_move(pod, script, settings, now)
        if following is None or following[0].name not in folded:
            break
        moves.append(following[0])
        base_s, jitter_s = base_s + following[1].base_s, jitter_s + following[1].jitter_s
    return Step(StepKind.STATUS, Delay(base_s, jitter_s), tuple(moves))


def perform(
    pod: PodView,
    step: Step,
    settings: KubeletSettings,
    now: datetime,
    addresses: tuple[str, ...] = (),
) -> PodStatus:
    """Return the Pod's status after ``step``; ``addresses`` are used when the step needs them."""
    if step.verdict is not None:
        reason, message = step.verdict
        return _unscheduled(pod.status, now, reason, message)
    moment = podstatus.Moment(pod, read_script(pod, settings), settings, now, addresses)
    status = pod.status
    for move in step.moves:
        status = podstatus.advance(moment, status, move.name, move.targets)
    return status


def _unscheduled(status: PodStatus, now: datetime, reason: str, message: str) -> PodStatus:
    stamp = format_rfc3339(now)
    conditions = podstatus.set_condition(
        status.conditions, "PodScheduled", "False", stamp, reason=reason, message=message
    )
    return replace(status, conditions=conditions)


def _deletion(pod: PodView, script: Script, settings: KubeletSettings) -> Step | None:
    grace = pod.metadata.deletionGracePeriodSeconds
    if grace == 0:
        # The kubelet's part is done; what keeps the Pod are finalizers.
        return None
    if not pod.spec.nodeName:
        return Step(StepKind.DELETE)
    if _has_stopped(pod):
        return Step(StepKind.DELETE)
    wanted = settings.termination if script.termination_s is None else Delay(script.termination_s)
    most_s = math.inf if grace is None else float(max(grace, 0))
    base_s = min(wanted.base_s, most_s)
    everyone = frozenset(c.name for c in pod.spec.containers)
    delay = Delay(base_s, min(wanted.jitter_s, most_s - base_s))
    return Step(StepKind.STATUS, delay, (Move("stop", everyone),))


def _has_stopped(pod: PodView) -> bool:
    """Whether nothing of a Pod runs, so that its deletion leaves no status to tell of an end."""
    return pod.status.is_terminal or pod.status.startTime is None


def _next_move(
    pod: PodView, script: Script, settings: KubeletSettings, now: datetime
) -> tuple[Move, Delay] | None:
    """Return the move that is due first."""
    if pod.status.is_terminal:
        return None
    return min(
        _candidates(pod, script, settings, now), key=lambda found: found[1].base_s, default=None
    )


def _candidates(
    pod: PodView, script: Script, settings: KubeletSettings, now: datetime
) -> Iterator[tuple[Move, Delay]]:
    status = pod.status
    if status.startTime is None:
        yield Move("waiting"), settings.waiting
        return
    everyone = frozenset(c.name for c in pod.spec.containers)
    age = age_s(status.startTime, now)
    if script.evict_after_s is not None:
        yield Move("evict", everyone), _remaining(script.evict_after_s, age)
    if pod.spec.activeDeadlineSeconds is not None:
        yield Move("deadline", everyone), _remaining(pod.spec.activeDeadlineSeconds, age)
    if not status.podIPs:
        yield Move("network"), _later(settings.network, script.start_delay_s)
        return
    known = {c.name: c for c in status.containerStatuses}
    containers = tuple(known.get(n) or ContainerStatus(n) for n in sorted(everyone))
    unstarted = frozenset(c.name for c in containers if _is_unstarted(c))
    if unstarted:
        yield from _start(containers, unstarted, script, settings, age)
        return
    found = [
        *_readiness(pod, containers, script, settings, now),
        *_ends(pod, containers, script, settings, now),
    ]
    yield from found
    # Delays counted from the last write would never pass while churn keeps writing.
    is_settled = not any(move.name in _COUNTED_FROM_NOW for move, _ in found)
    if is_settled and podstatus.churned(status) < script.churn:
        bumped = everyone if script.churns_restarts else frozenset()
        yield Move("churn", bumped), Delay(script.churn_interval_s)


def _start(
    containers: tuple[ContainerStatus, ...],
    unstarted: frozenset[str],
    script: Script,
    settings: KubeletSettings,
    age: float,
) -> Iterator[tuple[Move, Delay]]:
    """Pull and run: the containers start together, and only once every image is there."""
    stuck = unstarted & script.unpullable
    if not stuck or script.pull_error_s is None or age >= script.pull_error_s:
        yield Move("running", unstarted), settings.running
        return
    if math.isfinite(script.pull_error_s):
        yield Move("running", unstarted), _remaining(script.pull_error_s, age)
    reason = next(c.waiting_reason for c in containers if c.name in stuck)
    if reason == "ErrImagePull":
        yield Move("pull-backoff", stuck), Delay(settings.error_shown_s)
    elif reason == "ImagePullBackOff":
        # Waiting as long as the Pod is old doubles the wait from one attempt to the next.
        wait_s = min(settings.backoff_cap_s, max(settings.backoff_s, age))
        yield Move("pull-error", stuck), Delay(wait_s)
    else:
        yield Move("pull-error", stuck), settings.running


def _readiness(
    pod: PodView,
    containers: tuple[ContainerStatus, ...],
    script: Script,
    settings: KubeletSettings,
    now: datetime,
) -> Iterator[tuple[Move, Delay]]:
    status = pod.status
    able = [c for c in containers if c.is_running and c.name not in script.never_ready]
    fresh = frozenset(c.name for c in able if not c.ready and not c.started)
    if fresh:
        yield Move("ready", fresh), _later(settings.ready, script.ready_delay_s)
    turned_s = age_s((condition(status, "Ready") or {}).get("lastTransitionTime"), now)
    if script.unready_after_s is not None:
        ready = frozenset(c.name for c in able if c.ready)
        lost = frozenset(c.name for c in able if not c.ready and c.started)
        if ready and not fresh:
            yield Move("unready", ready), _remaining(script.unready_after_s, turned_s)
        elif lost and script.unready_for_s is not None:
            yield Move("ready", lost), _remaining(script.unready_for_s, turned_s)
    # Readiness is judged from all that the status lists, were it a container twice.
    if containers and all(c.ready for c in (*containers, *status.containerStatuses)):
        is_ready = condition_is(status, "Ready", "True")
        if is_ready != podstatus.are_gates_open(pod, status):
            yield Move("gates"), AT_ONCE


def _ends(
    pod: PodView,
    containers: tuple[ContainerStatus, ...],
    script: Script,
    settings: KubeletSettings,
    now: datetime,
) -> Iterator[tuple[Move, Delay]]:
    """Ends of containers, the back-off after them, and the next start."""
    due: dict[float, set[str]] = {}
    for container in containers:
        end = script.exits.get(container.name)
        if end is not None and container.is_running:
            ran_s = age_s(container.state["running"].get("startedAt"), now)
            due.setdefault(max(0.0, end.after_s - ran_s), set()).add(container.name)
        ended = container.terminated
        if ended is not None and podstatus.restarts(pod.spec.restartPolicy, _exit_code(ended)):
            yield Move("backoff", frozenset({container.name})), Delay(settings.error_shown_s)
        if container.waiting_reason == podstatus.CRASH_LOOP:
            doubled = settings.backoff_s * 2.0 ** min(container.restartCount, 30)
            wait = Delay(min(settings.backoff_cap_s, doubled))
            yield Move("restart", frozenset({container.name})), wait
    if due:
        first = min(due)
        yield Move("exit", frozenset(due[first])), Delay(first)


def _is_unstarted(container: ContainerStatus) -> bool:
    if container.is_running or container.terminated is not None:
        return False
    return container.waiting_reason != podstatus.CRASH_LOOP


def _exit_code(ended: dict[str, object]) -> int:
    code = ended.get("exitCode")
    return code if isinstance(code, int) else 0


def _remaining(due_s: float, age: float) -> Delay:
    return Delay(max(0.0, due_s - age))


def _later(delay: Delay, extra_s: float) -> Delay:
    return Delay(delay.base_s + extra_s, delay.jitter_s)

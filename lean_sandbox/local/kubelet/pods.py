"""What a simulated kubelet does next with a Pod: one pure decision, and the status it writes.

:func:`next_step` looks at a Pod alone. All progress is read from the Pod's own status, so a
kubelet that starts again continues where another one stopped. :func:`perform` gives the status
after a step.

What a Pod does beyond starting, getting ready and going away when deleted is asked for by its
annotations under ``kubelet.lean-sandbox/``, which docs/local.md lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lean_sandbox.local.kubelet import podstatus
from lean_sandbox.local.kubelet.podview import (
    ContainerStatus,
    PodStatus,
    PodView,
    Stage,
    age_s,
    condition,
    condition_is,
    stage_of,
)
from lean_sandbox.model.times import format_rfc3339, parse_duration

PREFIX = "kubelet.lean-sandbox/"

# How long an error or an end is shown before the back-off that follows.
_ERROR_SHOWN_S = 2.0
_CRASH_AFTER_S = 1.0
_MOST_EXIT_CODE = 255


@dataclass(frozen=True, slots=True)
class Delay:
    """A wait of ``base_s`` seconds and a random part of up to ``jitter_s`` more."""

    base_s: float = 0.0
    jitter_s: float = 0.0


_AT_ONCE = Delay()


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """Options of the simulated Nodes, which are called ``<node_prefix>-<i>``; how long steps take.

    ``max_in_flight`` bounds the requests that are made at once.
    """

    nodes: int = 2
    node_prefix: str = "node"
    max_in_flight: int = 16

    schedule: Delay = Delay(0.02)
    waiting: Delay = Delay(0.02)
    network: Delay = Delay(0.1, 0.16)
    running: Delay = Delay(0.1, 0.16)
    ready: Delay = Delay(0.1, 0.16)
    termination: Delay = Delay(0.05)


@dataclass(frozen=True, slots=True)
class Script:
    """What annotations ask of a Pod. Durations in seconds; infinity means for ever, None never."""

    ready_delay: float = 0.0
    never_ready: bool = False
    unready_after: float | None = None
    unready_for: float | None = None
    image_pull_error: float | None = None
    crash_loop: float | None = None
    complete_after: float | None = None
    exit_code: int | None = None
    evict_after: float | None = None
    termination_delay: float | None = None
    mistakes: tuple[str, ...] = ()

    @property
    def ends_after(self) -> float | None:
        """Return how long containers run before they end by themselves."""
        return self.complete_after if self.crash_loop is None else self.crash_loop

    @property
    def end_code(self) -> int:
        """Return the code with which they end then."""
        if self.exit_code is not None:
            return self.exit_code
        return 0 if self.crash_loop is None else 1


_NOTHING = Script()


def read_script(annotations: Mapping[str, str] | None) -> Script:
    """Return what annotations ask for; what cannot be read is left out and told in ``mistakes``."""
    asked = {k: v for k, v in (annotations or {}).items() if k.startswith(PREFIX)}
    if not asked:
        return _NOTHING
    found: dict[str, Any] = {}
    mistakes = []
    for key, value in sorted(asked.items()):
        name = key.removeprefix(PREFIX)
        if name not in _READERS:
            mistakes.append(f"{key}: {name} is not the name of an annotation")
            continue
        read, meaning = _READERS[name]
        try:
            found[name.replace("-", "_")] = read(value.strip().lower())
        except ValueError:
            mistakes.append(f"{key}: {value!r} is not {meaning}")
    return Script(**found, mistakes=tuple(mistakes))


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = parse_duration(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(text)
    return value


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _spell(when_true: float) -> Callable[[str], float | None]:
    def read(text: str) -> float | None:
        if text == "false":
            return None
        return when_true if text == "true" else _seconds(text)

    return read


def _code(text: str) -> int:
    value = int(text)
    if not 0 <= value <= _MOST_EXIT_CODE:
        raise ValueError(text)
    return value


_DURATION = (_seconds, "a duration such as 1m30s, nor a number of seconds")
_READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "ready-delay": _DURATION,
    "never-ready": (_flag, "true or false"),
    "unready-after": _DURATION,
    "unready-for": _DURATION,
    "image-pull-error": (_spell(math.inf), "true, false or a duration such as 30s"),
    "crash-loop": (_spell(_CRASH_AFTER_S), "true, false or a duration such as 30s"),
    "complete-after": _DURATION,
    "exit-code": (_code, f"a number from 0 to {_MOST_EXIT_CODE}"),
    "evict-after": _DURATION,
    "termination-delay": _DURATION,
}


@dataclass(frozen=True, slots=True)
class PodStep:
    """One request to make after a delay counted from the moment the Pod was seen.

    Called "bind", "delete", "unschedulable", or as in the table of :mod:`podstatus`. ``detail`` is
    the Node, or what PodScheduled says of a Pod that cannot be bound. Equal steps are the same
    intent: time waited for one counts for the other.
    """

    name: str
    delay: Delay = field(default=_AT_ONCE, compare=False)
    detail: str = ""


def next_step(pod: PodView, settings: KubeletSettings, now: datetime) -> PodStep | None:
    """Return the next request of the kubelet of ``pod``, or None while it has nothing to do."""
    script = read_script(pod.metadata.annotations)
    if pod.is_deleting:
        return _deletion(pod, script, settings)
    if pod.status.is_terminal:
        return None
    candidates = _candidates(pod, script, settings, now)
    return min(candidates, key=lambda step: step.delay.base_s, default=None)


def perform(
    pod: PodView, step: PodStep, now: datetime, address: str = ""
) -> tuple[PodStatus, set[podstatus.Told]]:
    """Return the Pod's status after ``step``, and the Events that tell of it.

    A Pod gets ``address`` with the step "network".
    """
    stamp = format_rfc3339(now)
    if step.name == "unschedulable":
        return podstatus.refuse(pod, stamp, step.detail)
    code = read_script(pod.metadata.annotations).end_code
    return podstatus.advance(podstatus.Moment(pod, stamp, code, address), step.name)


def _deletion(pod: PodView, script: Script, settings: KubeletSettings) -> PodStep | None:
    grace = pod.metadata.deletion_grace_period_seconds
    if grace == 0:
        # The kubelet's part is done; what keeps the Pod are finalizers.
        return None
    # Nothing of it runs, so that its deletion leaves no status to tell of an end.
    if pod.status.is_terminal or pod.status.startTime is None:
        return PodStep("delete")
    wanted = settings.termination
    if script.termination_delay is not None:
        wanted = Delay(script.termination_delay)
    most_s = math.inf if grace is None else float(max(grace, 0))
    base_s = min(wanted.base_s, most_s)
    return PodStep("stop", Delay(base_s, min(wanted.jitter_s, most_s - base_s)))


def _candidates(
    pod: PodView, script: Script, settings: KubeletSettings, now: datetime
) -> Iterator[PodStep]:
    status = pod.status
    if status.startTime is None:
        yield PodStep("waiting", settings.waiting)
        return
    age = age_s(status.startTime, now)
    if script.evict_after is not None:
        yield _at("evict", script.evict_after, age)
    if pod.spec.activeDeadlineSeconds is not None:
        yield _at("deadline", pod.spec.activeDeadlineSeconds, age)
    if not status.podIPs:
        yield PodStep("network", settings.network)
        return
    known = {c.name: c for c in status.containerStatuses}
    containers = [known.get(c.name) or ContainerStatus(c.name) for c in pod.spec.containers]
    stages = [(stage_of(pod, container), container) for container in containers]
    unstarted = [container for stage, container in stages if stage is Stage.UNSTARTED]
    if unstarted:
        yield from _start(unstarted[0].waits_for, script, settings, age)
        return
    yield from _readiness(pod, containers, script, settings, now)
    # Ends of containers, the back-off after them, and the next start.
    for stage, container in stages:
        restarts = container.restartCount
        if stage is Stage.RUNNING and script.ends_after is not None:
            began = container.state["running"].get("startedAt")
            yield _at("exit", script.ends_after, age_s(began, now))
        elif stage is Stage.RESTARTING:
            # The first restart comes without a back-off.
            yield PodStep("backoff" if restarts else "restart", Delay(_ERROR_SHOWN_S))
        elif stage is Stage.CRASHED:
            yield PodStep("restart", Delay(podstatus.restart_delay_s(restarts)))


def _start(
    waits_for: str, script: Script, settings: KubeletSettings, age: float
) -> Iterator[PodStep]:
    """Pull and run: the containers start together, and only once every image is there."""
    if script.image_pull_error is None or age >= script.image_pull_error:
        yield PodStep("running", settings.running)
        return
    if math.isfinite(script.image_pull_error):
        yield _at("running", script.image_pull_error, age)
    if waits_for == "ErrImagePull":
        yield PodStep("pull-backoff", Delay(_ERROR_SHOWN_S))
    elif waits_for == "ImagePullBackOff":
        # Waiting as long as the Pod is old doubles the wait from one attempt to the next.
        wait_s = min(podstatus.BACKOFF_CAP_S, max(podstatus.BACKOFF_S, age))
        yield PodStep("pull-error", Delay(wait_s))
    else:
        yield PodStep("pull-error", settings.running)


def _readiness(
    pod: PodView,
    containers: list[ContainerStatus],
    script: Script,
    settings: KubeletSettings,
    now: datetime,
) -> Iterator[PodStep]:
    status = pod.status
    running = [c for c in containers if c.is_running]
    is_fresh = any(not c.ready and not c.started for c in running)
    if is_fresh and not script.never_ready:
        wanted = settings.ready
        yield PodStep("ready", Delay(wanted.base_s + script.ready_delay, wanted.jitter_s))
    turned_s = age_s(condition(status, "Ready").get("lastTransitionTime"), now)
    if script.unready_after is not None and not is_fresh:
        if any(c.ready for c in running):
            yield _at("unready", script.unready_after, turned_s)
        elif running and script.unready_for is not None:
            yield _at("ready", script.unready_for, turned_s)
    # Readiness is judged from all that the status lists, were it a container twice.
    if all(c.ready for c in (*containers, *status.containerStatuses)):
        is_ready = condition_is(status, "Ready", "True")
        if is_ready != podstatus.are_gates_open(pod, status):
            yield PodStep("gates")


def _at(name: str, due_s: float, age: float) -> PodStep:
    return PodStep(name, Delay(max(0.0, due_s - age)))

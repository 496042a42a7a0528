"""Pods as a simulated kubelet sees them, and what it does next: one pure decision.

Fields are those of the Kubernetes core/v1 API; decoding leaves out what no step needs. Conditions
and container states stay plain mappings: a kubelet that writes a whole array hands back what
other writers put into it, field by field.

:func:`next_step` looks at a Pod alone. All progress is read from the Pod's own status, so a
kubelet that starts again continues where another one stopped. What a Pod does beyond starting,
getting ready and going away when deleted is asked for by its annotations under
``kubelet.lean-sandbox/``, which docs/local.md lists.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import Enum, auto
from typing import Any

import msgspec

from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.times import parse_duration, parse_rfc3339

Json = dict[str, Any]

PREFIX = "kubelet.lean-sandbox/"


class Container(msgspec.Struct, frozen=True):
    """A container of a Pod's spec."""

    name: str = ""
    image: str = ""
    restartPolicy: str | None = None
    resources: Json | None = None

    @property
    def requests(self) -> Json:
        """Return the resources that the container asks for."""
        return (self.resources or {}).get("requests") or {}


class PodMeta(ObjectMeta, frozen=True, gc=False):
    """Metadata, and how long the Pod may take to stop."""

    deletion_grace_period_seconds: int | None = None


class PodSpec(msgspec.Struct, frozen=True):
    """The part of a Pod's spec that a scheduler and a kubelet act on."""

    nodeName: str = ""
    schedulerName: str = ""
    restartPolicy: str = "Always"
    hostNetwork: bool = False
    activeDeadlineSeconds: int | None = None
    nodeSelector: dict[str, str] | None = None
    affinity: Json | None = None
    tolerations: tuple[Json, ...] | None = None
    topologySpreadConstraints: tuple[Json, ...] | None = None
    resourceClaims: tuple[Json, ...] | None = None
    resources: Json | None = None
    overhead: Json | None = None
    schedulingGates: tuple[Json, ...] | None = None
    readinessGates: tuple[Json, ...] | None = None
    containers: tuple[Container, ...] = ()
    initContainers: tuple[Container, ...] | None = None


class ContainerStatus(msgspec.Struct, frozen=True):
    """The state of one container, written in full by each step."""

    name: str = ""
    image: str = ""
    imageID: str = ""
    ready: bool = False
    restartCount: int = 0
    started: bool | None = None
    containerID: str = ""
    state: dict[str, Json] = {}
    lastState: dict[str, Json] = {}

    @property
    def is_running(self) -> bool:
        """Whether the container runs."""
        return "running" in self.state

    @property
    def ended(self) -> Json | None:
        """Return how the container ended, or None while it has not."""
        return self.state.get("terminated")

    @property
    def exit_code(self) -> int:
        """Return the code with which the container ended; 0 without one."""
        code = (self.ended or {}).get("exitCode")
        return code if isinstance(code, int) else 0

    @property
    def waits_for(self) -> str:
        """Return why the container waits, or the empty string."""
        return str((self.state.get("waiting") or {}).get("reason") or "")


class PodStatus(msgspec.Struct, frozen=True):
    """The part of a Pod's status that a kubelet owns."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Json, ...] = ()
    hostIP: str = ""
    hostIPs: tuple[Json, ...] = ()
    podIP: str = ""
    podIPs: tuple[Json, ...] = ()
    startTime: str | None = None
    initContainerStatuses: tuple[ContainerStatus, ...] = ()
    containerStatuses: tuple[ContainerStatus, ...] = ()

    @property
    def is_terminal(self) -> bool:
        """Whether the Pod has ended for good."""
        return self.phase in ("Succeeded", "Failed")


class PodView(msgspec.Struct, frozen=True):
    """A Pod without what a simulated kubelet has no use for."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_deleting(self) -> bool:
        """Whether somebody asked for the Pod's deletion."""
        return self.metadata.deletion_timestamp is not None


class Stage(Enum):
    """How far a container is."""

    UNSTARTED = auto()
    RUNNING = auto()
    #: It has ended, and starts again.
    RESTARTING = auto()
    #: It has ended, and waits for its next start.
    CRASHED = auto()
    #: It has ended for good.
    ENDED = auto()


def stage_of(pod: PodView, container: ContainerStatus) -> Stage:
    """Return how far a container is, under the Pod's restart policy."""
    if container.is_running:
        return Stage.RUNNING
    if container.ended is None:
        is_crashed = container.waits_for == "CrashLoopBackOff"
        return Stage.CRASHED if is_crashed else Stage.UNSTARTED
    policy = pod.spec.restartPolicy
    restarts = policy == "Always" or (policy == "OnFailure" and container.exit_code != 0)
    return Stage.RESTARTING if restarts else Stage.ENDED


def condition(status: PodStatus, kind: str) -> Json:
    """Return the first condition of type ``kind``, empty without one."""
    return next((c for c in status.conditions if c.get("type") == kind), {})


def condition_is(status: PodStatus, kind: str, value: str) -> bool:
    """Whether the first condition of type ``kind`` has the status ``value``."""
    return condition(status, kind).get("status") == value


def age_s(stamp: object, now: datetime) -> float:
    """Return the whole seconds from the API timestamp ``stamp`` to ``now``, 0 if unreadable.

    API timestamps have whole seconds. ``now`` is cut to whole seconds too, so that the age of
    a timestamp written this very second is zero and a delay counted from it is not shortened.
    """
    try:
        then = parse_rfc3339(str(stamp))
    except ValueError:
        return 0.0
    return max(0.0, (now.replace(microsecond=0) - then).total_seconds())


# ------------------------------------------------------------------ what is next

# The first wait before a failed pull or a crashed container is tried again; it doubles.
BACKOFF_S = 10.0
BACKOFF_CAP_S = 300.0
# How long an error or an end is shown before the back-off that follows.
_ERROR_SHOWN_S = 2.0
_CRASH_AFTER_S = 1.0
_GRACE_S = 30


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
    """What annotations ask of a Pod, in seconds: infinity for ``true``, None for nothing."""

    image_pull_error: float | None = None
    ready_delay: float | None = None
    unready_after: float | None = None
    crash_loop: float | None = None
    complete_after: float | None = None
    evict_after: float | None = None
    termination_delay: float | None = None
    mistakes: tuple[str, ...] = ()

    @property
    def ends_after(self) -> float | None:
        """Return how long containers run before they end by themselves."""
        if self.crash_loop is None:
            return self.complete_after
        return _CRASH_AFTER_S if self.crash_loop == math.inf else self.crash_loop


_NAMES = {one.name.replace("_", "-"): one.name for one in fields(Script) if one.name != "mistakes"}
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
        if name not in _NAMES:
            mistakes.append(f"{key}: {name} is not the name of an annotation")
            continue
        try:
            found[_NAMES[name]] = _seconds(value.strip().lower())
        except ValueError:
            mistakes.append(f"{key}: {value!r} is not true, false or a duration such as 1m30s")
    return Script(**found, mistakes=tuple(mistakes))


def _seconds(text: str) -> float | None:
    if text in ("true", "false"):
        return math.inf if text == "true" else None
    try:
        value = float(text)
    except ValueError:
        value = parse_duration(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(text)
    return value


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
    first = min(candidates, key=lambda step: step.delay.base_s, default=None)
    return None if first is None or first.delay.base_s == math.inf else first


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
    most_s = float(_GRACE_S if grace is None else max(grace, 0))
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
            yield PodStep("restart", Delay(restart_delay_s(restarts)))


def _start(
    waits_for: str, script: Script, settings: KubeletSettings, age: float
) -> Iterator[PodStep]:
    """Pull and run: the containers start together, and only once every image is there."""
    if script.image_pull_error is None or age >= script.image_pull_error:
        yield PodStep("running", settings.running)
        return
    yield _at("running", script.image_pull_error, age)
    if waits_for == "ErrImagePull":
        yield PodStep("pull-backoff", Delay(_ERROR_SHOWN_S))
    elif waits_for == "ImagePullBackOff":
        # Waiting as long as the Pod is old doubles the wait from one attempt to the next.
        wait_s = min(BACKOFF_CAP_S, max(BACKOFF_S, age))
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
    if is_fresh:
        wanted = settings.ready
        base_s = wanted.base_s + (script.ready_delay or 0.0)
        yield PodStep("ready", Delay(base_s, wanted.jitter_s))
    elif script.unready_after is not None and any(c.ready for c in running):
        since = condition(status, "Ready").get("lastTransitionTime")
        yield _at("unready", script.unready_after, age_s(since, now))
    # Readiness is judged from all that the status lists, were it a container twice.
    if all(c.ready for c in (*containers, *status.containerStatuses)):
        is_ready = condition_is(status, "Ready", "True")
        if is_ready != are_gates_open(pod, status):
            yield PodStep("gates")


def _at(name: str, due_s: float, age: float) -> PodStep:
    return PodStep(name, Delay(max(0.0, due_s - age)))


def restart_delay_s(restarts: int) -> float:
    """Return how long a crashed container waits for its next start."""
    return float(min(BACKOFF_CAP_S, BACKOFF_S * 2.0 ** min(max(0, restarts - 1), 30)))


def are_gates_open(pod: PodView, status: PodStatus) -> bool:
    """Whether every readiness gate of the Pod has its condition True."""
    gates = pod.spec.readinessGates or ()
    return all(condition_is(status, gate.get("conditionType", ""), "True") for gate in gates)

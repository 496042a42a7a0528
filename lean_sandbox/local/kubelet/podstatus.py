"""What a kubelet and the scheduler write into the status of a Pod: one table, pure functions.

Conditions, reasons and messages are those of the Kubernetes core/v1 API and its kubelet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec
from msgspec.structs import replace

from lean_sandbox.kube.events import Severity
from lean_sandbox.local.kubelet.pods import (
    Container,
    ContainerStatus,
    Json,
    PodStatus,
    PodStep,
    PodView,
    Stage,
    are_gates_open,
    condition,
    read_script,
    restart_delay_s,
    stage_of,
)
from lean_sandbox.local.kubelet.scheduling import NODE_ADDRESS
from lean_sandbox.model.times import format_duration, format_rfc3339

FAILED_SCHEDULING = "FailedScheduling"
# The exit code of a container that was stopped by SIGKILL.
_KILLED = 137
_PULL = (
    'ailed to pull image "{image}": rpc error: code = NotFound desc = failed to resolve reference'
    ' "{image}": {image}: not found'
)
_HELD = 'Back-off pulling image "{image}"'
_LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 42Mi. "
_LATE = "Pod was active on the node longer than the specified deadline"

Told = tuple[Severity, str, str]
"""Type, reason and note of an Event."""
# Status, reason and message of a condition; the last two may be left out.
_Judgement = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything that a step looks at; ``stamp`` is the time as the API has it.

    ``exit_code`` is that of containers that end by themselves, ``address`` the Pod's.
    """

    pod: PodView
    stamp: str
    exit_code: int = 0
    address: str = ""

    def fill(self, text: str, container: ContainerStatus) -> str:
        """Return a text of the table with what it says of the Pod and a container."""
        meta = self.pod.metadata
        return text.format(
            name=container.name,
            image=container.image,
            pod=f"{meta.name}_{meta.namespace}({meta.uid})",
            wait=format_duration(restart_delay_s(container.restartCount)),
        )


_PodChange = tuple[Json, dict[str, _Judgement]]
_Change = Callable[[Moment, ContainerStatus], ContainerStatus]


@dataclass(frozen=True, slots=True)
class _Row:
    """What a step does: ``change`` to the containers at the ``stages``, ``pod`` to the Pod.

    ``pod`` returns fields of the status, and conditions. The Event is told once for each text that
    comes of the containers.
    """

    stages: tuple[Stage, ...] = ()
    change: _Change = lambda _moment, container: container
    pod: Callable[[Moment], _PodChange] = lambda _moment: ({}, {})
    event: Told | None = None


# What becomes of the Pod.


def _begin(moment: Moment) -> _PodChange:
    inits = moment.pod.spec.initContainers or ()
    text = f"containers with incomplete status: {_listed(inits)}"
    fields: Json = {
        "phase": "Pending",
        "startTime": moment.stamp,
        "hostIP": NODE_ADDRESS,
        "hostIPs": ({"ip": NODE_ADDRESS},),
        "initContainerStatuses": tuple(_created(moment.pod, c) for c in inits),
    }
    return fields, {
        "PodReadyToStartContainers": ("False",),
        "Initialized": ("False", "ContainersNotInitialized", text) if inits else ("True",),
        "PodScheduled": ("True",),
    }


def _connect(moment: Moment) -> _PodChange:
    fields: Json = {"podIP": moment.address, "podIPs": ({"ip": moment.address},)}
    return fields, {"PodReadyToStartContainers": ("True",)}


def _start(moment: Moment) -> _PodChange:
    sidecars = {c.name for c in moment.pod.spec.initContainers or () if c.restartPolicy == "Always"}

    def run(container: ContainerStatus) -> ContainerStatus:
        if container.ended is not None:
            return container
        running = replace(_run(moment, container), ready=True, started=True)
        # Whatever is no sidecar does its work at once; kubelets call that ready.
        is_sidecar = container.name in sidecars
        return running if is_sidecar else replace(_end(moment, running, 0), ready=True)

    inits = tuple(run(c) for c in moment.pod.status.initContainerStatuses)
    return {"phase": "Running", "initContainerStatuses": inits}, {"Initialized": ("True",)}


def _evict(_moment: Moment) -> _PodChange:
    fields = {"phase": "Failed", "reason": "Evicted", "message": _LOW}
    return fields, {"DisruptionTarget": ("True", "TerminationByKubelet", _LOW)}


def _expire(_moment: Moment) -> _PodChange:
    return {"phase": "Failed", "reason": "DeadlineExceeded", "message": _LATE}, {}


# What becomes of a container.


def _created(pod: PodView, container: Container) -> ContainerStatus:
    reason = "PodInitializing" if pod.spec.initContainers else "ContainerCreating"
    waiting: Json = {"waiting": {"reason": reason}}
    return ContainerStatus(container.name, container.image, started=False, state=waiting)


def _wait(reason: str, text: str) -> _Change:
    def change(moment: Moment, container: ContainerStatus) -> ContainerStatus:
        waiting = {"reason": reason, "message": moment.fill(text, container)}
        last = container.lastState if container.ended is None else container.state
        return replace(container, lastState=last, state={"waiting": waiting})

    return change


def _run(moment: Moment, container: ContainerStatus) -> ContainerStatus:
    image = container.image
    identity = f"{moment.pod.metadata.uid}/{container.name}/{container.restartCount}"
    return replace(
        container,
        ready=False,
        started=False,
        imageID=f"{image.partition('@')[0]}@sha256:{_digest(image)}",
        containerID=f"containerd://{_digest(identity)}",
        state={"running": {"startedAt": moment.stamp}},
    )


def _restart(moment: Moment, container: ContainerStatus) -> ContainerStatus:
    last = container.lastState if container.ended is None else container.state
    count = container.restartCount + 1
    return _run(moment, replace(container, lastState=last, restartCount=count))


def _kill(moment: Moment, container: ContainerStatus) -> ContainerStatus:
    return container if container.ended is not None else _end(moment, container, _KILLED)


def _stop(moment: Moment, container: ContainerStatus) -> ContainerStatus:
    before = {} if container.is_running else container.lastState.get("terminated", {})
    return _end(moment, container, before.get("exitCode", _KILLED))


def _end(moment: Moment, container: ContainerStatus, code: int) -> ContainerStatus:
    end = {
        "exitCode": code,
        "reason": "Error" if code else "Completed",
        "startedAt": container.state.get("running", {}).get("startedAt") or moment.stamp,
        "finishedAt": moment.stamp,
        "containerID": container.containerID,
    }
    return replace(container, ready=False, started=False, state={"terminated": end})


_UNSTARTED = (Stage.UNSTARTED,)
_RUNNING = (Stage.RUNNING,)
_GOING = (Stage.UNSTARTED, Stage.RUNNING, Stage.CRASHED)
_STEPS: dict[str, _Row] = {
    "waiting": _Row(pod=_begin),
    "network": _Row(pod=_connect),
    "pull-error": _Row(
        _UNSTARTED, _wait("ErrImagePull", f"f{_PULL}"), event=("Warning", "Failed", f"F{_PULL}")
    ),
    "pull-backoff": _Row(
        _UNSTARTED,
        _wait("ImagePullBackOff", f"{_HELD}: ErrImagePull: f{_PULL}"),
        event=("Normal", "BackOff", _HELD),
    ),
    "running": _Row(_UNSTARTED, _run, _start),
    "ready": _Row(_RUNNING, lambda _, c: replace(c, ready=True, started=True)),
    "unready": _Row(_RUNNING, lambda _, c: replace(c, ready=False)),
    # A readiness gate has opened or closed.
    "gates": _Row(),
    "exit": _Row(_RUNNING, lambda moment, c: _end(moment, c, moment.exit_code)),
    "backoff": _Row(
        (Stage.RESTARTING,),
        _wait("CrashLoopBackOff", "back-off {wait} restarting failed container={name} pod={pod}"),
        event=("Warning", "BackOff", "Back-off restarting failed container {name} in pod {pod}"),
    ),
    "restart": _Row((Stage.RESTARTING, Stage.CRASHED), _restart),
    "evict": _Row(tuple(Stage), _kill, _evict, ("Warning", "Evicted", _LOW)),
    "deadline": _Row(tuple(Stage), _kill, _expire, ("Normal", "DeadlineExceeded", _LATE)),
    # A deleted Pod ends: its last phase tells how its containers ended, whatever would restart.
    "stop": _Row(_GOING, _stop),
}


def advance(moment: Moment, step: str) -> tuple[PodStatus, set[Told]]:
    """Return the status after a step of the kubelet, and the Events that tell of it.

    Raises KeyError for a name that is no step.
    """
    pod = moment.pod
    row = _STEPS[step]
    fields, conditions = row.pod(moment)
    status = replace(pod.status, **fields)
    for kind, judgement in conditions.items():
        status = _with_condition(status, moment.stamp, kind, *judgement)
    known = {c.name: c for c in status.containerStatuses}
    containers = [known.get(c.name) or _created(pod, c) for c in pod.spec.containers]
    told: set[Told] = set()
    for at, container in enumerate(containers):
        if stage_of(pod, container) in row.stages:
            containers[at] = row.change(moment, container)
            if row.event is not None:
                severity, reason, note = row.event
                told.add((severity, reason, moment.fill(note, container)))
    going = (*_GOING, Stage.RESTARTING) if step != "stop" else _GOING
    if not status.is_terminal and all(stage_of(pod, c) not in going for c in containers):
        phase = "Failed" if any(c.exit_code for c in containers) else "Succeeded"
        status = replace(status, phase=phase)
    return _judge_readiness(moment, replace(status, containerStatuses=tuple(containers))), told


def refuse(pod: PodView, stamp: str, why: str) -> tuple[PodStatus, set[Told]]:
    """Return the status of a Pod that the scheduler cannot bind, and the Event that says why."""
    status = _with_condition(pod.status, stamp, "PodScheduled", "False", "Unschedulable", why)
    return status, {("Warning", FAILED_SCHEDULING, why)}


def status_patch(old: PodStatus, new: PodStatus) -> Json:
    """Return what of ``new`` differs from ``old`` as a JSON merge patch with whole arrays."""
    patch: Json = {}
    for field in PodStatus.__struct_fields__:
        value = getattr(new, field)
        if value != getattr(old, field):
            patch[field] = msgspec.to_builtins(value) if value else None
    return patch


def _judge_readiness(moment: Moment, status: PodStatus) -> PodStatus:
    """Set ContainersReady and Ready from the containers, the phase and the readiness gates."""
    unready = [c for c in status.containerStatuses if not c.ready]
    contained: _Judgement = ("True",)
    if status.is_terminal:
        contained = ("False", "PodCompleted" if status.phase == "Succeeded" else "PodFailed")
    elif unready:
        text = f"containers with unready status: {_listed(unready)}"
        contained = ("False", "ContainersNotReady", text)
    ready = contained
    if contained == ("True",) and not are_gates_open(moment.pod, status):
        text = "the status of pod readiness gates is not True"
        ready = ("False", "ReadinessGatesNotReady", text)
    status = _with_condition(status, moment.stamp, "Ready", *ready)
    return _with_condition(status, moment.stamp, "ContainersReady", *contained)


def _with_condition(
    status: PodStatus, stamp: str, kind: str, value: str, reason: str = "", message: str = ""
) -> PodStatus:
    """Return a status with a condition set; its time moves if its status does."""
    old = condition(status, kind)
    is_same = old.get("status") == value
    since = old.get("lastTransitionTime") if is_same else stamp
    new = {"type": kind, "lastProbeTime": None, **old, "status": value, "lastTransitionTime": since}
    for key, text in (("reason", reason), ("message", message)):
        new.pop(key, None)
        if text:
            new[key] = text
    known = status.conditions
    conditions = tuple(new if c is old else c for c in known) if old else (*known, new)
    return replace(status, conditions=conditions)


def _listed(containers: Iterable[Container | ContainerStatus]) -> str:
    return f"[{' '.join(c.name for c in containers)}]"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def perform(
    pod: PodView, step: PodStep, now: datetime, address: str = ""
) -> tuple[PodStatus, set[Told]]:
    """Return the Pod's status after ``step``, and the Events that tell of it.

    A Pod gets ``address`` with the step "network".
    """
    stamp = format_rfc3339(now)
    if step.name == "unschedulable":
        return refuse(pod, stamp, step.detail)
    code = 0 if read_script(pod.metadata.annotations).crash_loop is None else 1
    return advance(Moment(pod, stamp, code, address), step.name)

"""The status writes of a kubelet as pure functions: a status and a move, the next status.

Conditions, reasons and messages are those of the Kubernetes core/v1 API and its kubelet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from lean_sandbox.kube.events import EventType
from lean_sandbox.local.podview import (
    CRASH_LOOP,
    Container,
    ContainerStatus,
    Json,
    PodMeta,
    PodStatus,
    PodView,
    condition,
    condition_is,
)
from lean_sandbox.model.times import format_duration

FAILED_SCHEDULING = "FailedScheduling"
_UNREADY = "ContainersNotReady"
# The exit code of a container that was stopped by SIGKILL.
_KILLED = 137


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything that a move looks at besides the status; ``stamp`` is the time as the API has it.

    ``exit_code`` is that of containers that end by themselves; ``backoff_s`` is how long a crashed
    container waits for its restart, by its restarts so far.
    """

    pod: PodView
    stamp: str
    host: str
    exit_code: int
    backoff_s: Callable[[int], float]
    address: str = ""


_Move = Callable[[Moment, PodStatus], PodStatus]
_Change = Callable[[ContainerStatus], ContainerStatus]


def advance(moment: Moment, status: PodStatus, name: str) -> PodStatus:
    """Return ``status`` after the move ``name``. Raises KeyError for a name that is no move."""
    return _MOVES[name](moment, status)


def status_patch(old: PodStatus, new: PodStatus) -> Json:
    """Return what of ``new`` differs from ``old`` as a JSON merge patch with whole arrays."""
    patch: Json = {}
    for field in PodStatus.__struct_fields__:
        value = getattr(new, field)
        if value != getattr(old, field):
            patch[field] = msgspec.to_builtins(value) if value else None
    return patch


def set_condition(
    conditions: tuple[Json, ...],
    kind: str,
    status: str,
    stamp: str,
    *,
    reason: str = "",
    message: str = "",
) -> tuple[Json, ...]:
    """Return ``conditions`` with that of type ``kind`` set; its time moves if the status does."""
    old = next((c for c in conditions if c.get("type") == kind), None)
    same = old is not None and old.get("status") == status
    kept = {k: v for k, v in (old or {}).items() if k not in ("reason", "message")}
    new: Json = {"type": kind, "lastProbeTime": None, **kept, "status": status}
    new["lastTransitionTime"] = (old or {}).get("lastTransitionTime") if same else stamp
    if reason:
        new["reason"] = reason
    if message:
        new["message"] = message
    if old is None:
        return (*conditions, new)
    return tuple(new if c is old else c for c in conditions)


def will_restart(policy: str, container: ContainerStatus) -> bool:
    """Whether a container has ended and starts again under the Pod's restart policy."""
    if container.ended is None:
        return False
    return policy == "Always" or (policy == "OnFailure" and container.exit_code != 0)


def are_gates_open(pod: PodView, status: PodStatus) -> bool:
    """Whether every readiness gate of the Pod has its condition True."""
    gates = pod.spec.readinessGates or ()
    return all(condition_is(status, gate.get("conditionType", ""), "True") for gate in gates)


def troubles(pod: PodView) -> set[tuple[EventType, str, str]]:
    """Return what a Pod suffers from: type, reason and note of an Event each."""
    meta, status = pod.metadata, pod.status
    found: set[tuple[EventType, str, str]] = set()
    if status.reason == "Evicted":
        found.add(("Warning", status.reason, status.message))
    elif status.reason == "DeadlineExceeded":
        found.add(("Normal", status.reason, status.message))
    scheduled = condition(status, "PodScheduled")
    if scheduled.get("reason") == "Unschedulable":
        found.add(("Warning", FAILED_SCHEDULING, str(scheduled.get("message"))))
    for container in status.containerStatuses:
        name, image, waits_for = container.name, container.image, container.waits_for
        if waits_for == "ErrImagePull":
            found.add(("Warning", "Failed", f'Failed to pull image "{image}": {_not_found(image)}'))
        elif waits_for == "ImagePullBackOff":
            found.add(("Normal", "BackOff", f'Back-off pulling image "{image}"'))
        elif waits_for == CRASH_LOOP:
            text = f"Back-off restarting failed container {name} in pod {_described(meta)}"
            found.add(("Warning", "BackOff", text))
    return found


def _waiting(moment: Moment, status: PodStatus) -> PodStatus:
    inits = moment.pod.spec.initContainers or ()
    reason = "PodInitializing" if inits else "ContainerCreating"
    stamp = moment.stamp
    conditions = set_condition(status.conditions, "PodReadyToStartContainers", "False", stamp)
    conditions = set_condition(
        conditions,
        "Initialized",
        "False" if inits else "True",
        stamp,
        reason="ContainersNotInitialized" if inits else "",
        message=f"containers with incomplete status: {_listed(inits)}" if inits else "",
    )
    if not any(c.get("type") == "PodScheduled" for c in conditions):
        conditions = set_condition(conditions, "PodScheduled", "True", stamp)
    started = replace(
        status,
        phase="Pending",
        startTime=stamp,
        hostIP=moment.host,
        hostIPs=({"ip": moment.host},),
        conditions=conditions,
        initContainerStatuses=tuple(_created(c, reason) for c in inits),
        containerStatuses=tuple(_created(c, reason) for c in moment.pod.spec.containers),
    )
    return _judge_readiness(moment, started)


def _network(moment: Moment, status: PodStatus) -> PodStatus:
    conditions = set_condition(status.conditions, "PodReadyToStartContainers", "True", moment.stamp)
    addresses = ({"ip": moment.address},)
    return replace(status, podIP=moment.address, podIPs=addresses, conditions=conditions)


def _pull_error(moment: Moment, status: PodStatus) -> PodStatus:
    def fail(container: ContainerStatus) -> ContainerStatus:
        if not container.is_unstarted:
            return container
        text = f'failed to pull image "{container.image}": {_not_found(container.image)}'
        return replace(container, state=_wait("ErrImagePull", text))

    return _each(moment, status, fail)


def _pull_backoff(moment: Moment, status: PodStatus) -> PodStatus:
    def hold(container: ContainerStatus) -> ContainerStatus:
        if not container.is_unstarted:
            return container
        failure = (container.state.get("waiting") or {}).get("message")
        text = f'Back-off pulling image "{container.image}": ErrImagePull: {failure}'
        return replace(container, state=_wait("ImagePullBackOff", text))

    return _each(moment, status, hold)


def _running(moment: Moment, status: PodStatus) -> PodStatus:
    sidecars = {c.name for c in moment.pod.spec.initContainers or () if c.restartPolicy == "Always"}
    inits = tuple(
        _run(moment, c, ready=True) if c.name in sidecars else _complete(moment, c)
        for c in status.initContainerStatuses
    )
    conditions = set_condition(status.conditions, "Initialized", "True", moment.stamp)
    status = replace(status, phase="Running", initContainerStatuses=inits, conditions=conditions)
    return _each(moment, status, lambda c: _run(moment, c) if c.is_unstarted else c)


def _ready(moment: Moment, status: PodStatus) -> PodStatus:
    return _each(
        moment, status, lambda c: replace(c, ready=True, started=True) if c.is_running else c
    )


def _unready(moment: Moment, status: PodStatus) -> PodStatus:
    return _each(moment, status, lambda c: replace(c, ready=False))


def _exit(moment: Moment, status: PodStatus) -> PodStatus:
    return _each(
        moment, status, lambda c: _ended(moment, c, moment.exit_code) if c.is_running else c
    )


def _backoff(moment: Moment, status: PodStatus) -> PodStatus:
    def hold(container: ContainerStatus) -> ContainerStatus:
        if not will_restart(moment.pod.spec.restartPolicy, container):
            return container
        wait = format_duration(moment.backoff_s(container.restartCount))
        of = f"container={container.name} pod={_described(moment.pod.metadata)}"
        waiting = _wait(CRASH_LOOP, f"back-off {wait} restarting failed {of}")
        return replace(container, lastState=container.state, state=waiting)

    return _each(moment, status, hold)


def _restart(moment: Moment, status: PodStatus) -> PodStatus:
    def again(container: ContainerStatus) -> ContainerStatus:
        if will_restart(moment.pod.spec.restartPolicy, container):
            container = replace(container, lastState=container.state)
        elif container.waits_for != CRASH_LOOP:
            return container
        return _run(moment, replace(container, restartCount=container.restartCount + 1))

    return _each(moment, status, again)


def _evict(moment: Moment, status: PodStatus) -> PodStatus:
    message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 42Mi. "
    conditions = set_condition(
        status.conditions,
        "DisruptionTarget",
        "True",
        moment.stamp,
        reason="TerminationByKubelet",
        message=message,
    )
    return _fail(moment, replace(status, conditions=conditions), "Evicted", message)


def _deadline(moment: Moment, status: PodStatus) -> PodStatus:
    message = "Pod was active on the node longer than the specified deadline"
    return _fail(moment, status, "DeadlineExceeded", message)


def _fail(moment: Moment, status: PodStatus, reason: str, message: str) -> PodStatus:
    failed = replace(status, phase="Failed", reason=reason, message=message)
    return _each(moment, failed, lambda c: _ended(moment, c, _KILLED))


def _stop(moment: Moment, status: PodStatus) -> PodStatus:
    """End a deleted Pod: its last phase tells how its containers ended, whatever would restart."""

    def end(container: ContainerStatus) -> ContainerStatus:
        before = (container.lastState or {}).get("terminated", {})
        is_running = container.is_running or not before
        return _ended(moment, container, _KILLED if is_running else before.get("exitCode", 0))

    stopped = _each(moment, status, end)
    is_failed = any(c.exit_code for c in stopped.containerStatuses)
    return _judge_readiness(moment, replace(stopped, phase="Failed" if is_failed else "Succeeded"))


_MOVES: dict[str, _Move] = {
    "waiting": _waiting,
    "network": _network,
    "pull-error": _pull_error,
    "pull-backoff": _pull_backoff,
    "running": _running,
    "ready": _ready,
    "unready": _unready,
    "exit": _exit,
    "backoff": _backoff,
    "restart": _restart,
    "evict": _evict,
    "deadline": _deadline,
    "stop": _stop,
    "gates": lambda moment, status: _each(moment, status, lambda c: c),
}


def _each(moment: Moment, status: PodStatus, change: _Change) -> PodStatus:
    """Change the status of every container, then settle phase and readiness of the Pod."""
    known = {c.name: c for c in status.containerStatuses}
    containers = tuple(
        change(known.get(c.name) or _created(c, "ContainerCreating"))
        for c in moment.pod.spec.containers
    )
    status = replace(status, containerStatuses=containers)
    return _judge_readiness(moment, _judge_phase(moment, status))


def _judge_phase(moment: Moment, status: PodStatus) -> PodStatus:
    """Set Succeeded or Failed once every container has ended and none will start again."""
    policy, containers = moment.pod.spec.restartPolicy, status.containerStatuses
    if status.is_terminal or not containers:
        return status
    if any(c.ended is None or will_restart(policy, c) for c in containers):
        return status
    return replace(status, phase="Failed" if any(c.exit_code for c in containers) else "Succeeded")


def _judge_readiness(moment: Moment, status: PodStatus) -> PodStatus:
    """Set ContainersReady and Ready from the containers, the phase and the readiness gates."""
    unready = [c for c in status.containerStatuses if not c.ready]
    containers, gated = ("", ""), ("", "")
    if status.phase == "Succeeded":
        containers = gated = ("PodCompleted", "")
    elif status.phase == "Failed":
        containers = gated = ("PodFailed", "")
    elif unready:
        containers = gated = (_UNREADY, f"containers with unready status: {_listed(unready)}")
    elif not are_gates_open(moment.pod, status):
        text = "the status of pod readiness gates is not True"
        gated = ("ReadinessGatesNotReady", text)
    conditions = status.conditions
    for kind, (reason, message) in (("Ready", gated), ("ContainersReady", containers)):
        conditions = set_condition(
            conditions,
            kind,
            "False" if reason else "True",
            moment.stamp,
            reason=reason,
            message=message,
        )
    return replace(status, conditions=conditions)


def _created(container: Container, reason: str) -> ContainerStatus:
    return ContainerStatus(
        name=container.name, image=container.image, started=False, state=_wait(reason)
    )


def _run(moment: Moment, container: ContainerStatus, *, ready: bool = False) -> ContainerStatus:
    identity = f"{moment.pod.metadata.uid}/{container.name}/{container.restartCount}"
    return replace(
        container,
        ready=ready,
        started=ready,
        imageID=f"{container.image.partition('@')[0]}@sha256:{_digest(container.image)}",
        containerID=f"containerd://{_digest(identity)}",
        state={"running": {"startedAt": moment.stamp}},
    )


def _complete(moment: Moment, container: ContainerStatus) -> ContainerStatus:
    """Return the status of an init container that did its work; done ones stay as they are."""
    if container.ended is not None:
        return container
    return replace(_ended(moment, _run(moment, container), 0), ready=True)


def _ended(moment: Moment, container: ContainerStatus, code: int) -> ContainerStatus:
    if container.ended is not None:
        return container
    began = container.state.get("running", {}).get("startedAt") or moment.stamp
    end = {
        "exitCode": code,
        "reason": "Error" if code else "Completed",
        "startedAt": began,
        "finishedAt": moment.stamp,
        "containerID": container.containerID,
    }
    return replace(container, ready=False, started=False, state={"terminated": end})


def _wait(reason: str, message: str = "") -> dict[str, Json]:
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def _not_found(image: str) -> str:
    return (
        f'rpc error: code = NotFound desc = failed to resolve reference "{image}": {image}:'
        " not found"
    )


def _described(meta: PodMeta) -> str:
    return f"{meta.name}_{meta.namespace}({meta.uid})"


def _listed(containers: Iterable[Container | ContainerStatus]) -> str:
    return f"[{' '.join(c.name for c in containers)}]"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""The status writes of a kubelet as pure functions: a status and a move, the next status.

Names of conditions, reasons and messages are those of the Kubernetes core/v1 API and its kubelet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from lean_sandbox.local.kubelet_settings import KubeletSettings
from lean_sandbox.local.podview import (
    Condition,
    Container,
    ContainerStatus,
    PodIP,
    PodStatus,
    PodView,
    condition,
    condition_is,
)
from lean_sandbox.local.script import Script
from lean_sandbox.model.times import format_rfc3339

CHURN = "kubelet.lean-sandbox/Churn"
CRASH_LOOP = "CrashLoopBackOff"
_UNREADY = "ContainersNotReady"
# Reasons why a container waits, and of the Events about them.
_EVENTS = {"ErrImagePull": "Failed", "ImagePullBackOff": "BackOff", CRASH_LOOP: "BackOff"}
# The exit code of a container that was stopped by SIGKILL.
_KILLED = 137


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything one move may look at besides the status."""

    pod: PodView
    script: Script
    settings: KubeletSettings
    now: datetime
    addresses: tuple[str, ...] = ()

    @property
    def stamp(self) -> str:
        """Return the time as the API writes it."""
        return format_rfc3339(self.now)


_Move = Callable[[Moment, PodStatus, frozenset[str]], PodStatus]


def advance(moment: Moment, status: PodStatus, name: str, targets: frozenset[str]) -> PodStatus:
    """Return ``status`` after the move ``name`` on the containers ``targets``.

    Raises KeyError for a name that is no move.
    """
    return _MOVES[name](moment, status, targets)


def status_patch(old: PodStatus, new: PodStatus) -> dict[str, Any]:
    """Return what of ``new`` differs from ``old`` as a JSON merge patch with whole arrays."""
    patch: dict[str, Any] = {}
    for field in PodStatus.__struct_fields__:
        value = getattr(new, field)
        if value != getattr(old, field):
            patch[field] = msgspec.to_builtins(value) if value else None
    return patch


def set_condition(
    conditions: tuple[Condition, ...],
    kind: str,
    status: str,
    stamp: str,
    *,
    reason: str = "",
    message: str = "",
) -> tuple[Condition, ...]:
    """Return ``conditions`` with that of type ``kind`` set; its time moves if the status does."""
    old = next((c for c in conditions if c.get("type") == kind), None)
    same = old is not None and old.get("status") == status
    kept = {k: v for k, v in (old or {}).items() if k not in ("reason", "message")}
    new: Condition = {"type": kind, "lastProbeTime": None, **kept, "status": status}
    new["lastTransitionTime"] = (old or {}).get("lastTransitionTime") if same else stamp
    if reason:
        new["reason"] = reason
    if message:
        new["message"] = message
    if old is None:
        return (*conditions, new)
    return tuple(new if c is old else c for c in conditions)


def restarts(policy: str, exit_code: int) -> bool:
    """Whether a container that ended with ``exit_code`` starts again under the restart policy."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def are_gates_open(pod: PodView, status: PodStatus) -> bool:
    """Whether every readiness gate of the Pod has its condition True."""
    gates = pod.spec.readinessGates or ()
    return all(condition_is(status, gate.conditionType, "True") for gate in gates)


def churned(status: PodStatus) -> int:
    """Return how many churn writes the status has seen."""
    text = str((condition(status, CHURN) or {}).get("message") or "0")
    return int(text) if text.isdecimal() else 0


def _waiting(moment: Moment, status: PodStatus, _: frozenset[str]) -> PodStatus:
    inits = moment.pod.spec.initContainers or ()
    host = moment.settings.node_address
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
        hostIP=host,
        hostIPs=(PodIP(host),),
        conditions=conditions,
        initContainerStatuses=tuple(_created(c, reason) for c in inits),
        containerStatuses=tuple(_created(c, reason) for c in moment.pod.spec.containers),
    )
    return _judge_readiness(moment, started)


def _network(moment: Moment, status: PodStatus, _: frozenset[str]) -> PodStatus:
    return replace(
        status,
        podIP=moment.addresses[0],
        podIPs=tuple(PodIP(ip) for ip in moment.addresses),
        conditions=set_condition(
            status.conditions, "PodReadyToStartContainers", "True", moment.stamp
        ),
    )


def _pull_error(moment: Moment, status: PodStatus, targets: frozenset[str]) -> PodStatus:
    def fail(container: ContainerStatus) -> ContainerStatus:
        text = (
            f'failed to pull image "{container.image}": rpc error: code = NotFound desc = '
            f'failed to resolve reference "{container.image}": not found'
        )
        return replace(container, state=_wait("ErrImagePull", text))

    return _each(moment, status, targets, fail)


def _pull_backoff(moment: Moment, status: PodStatus, targets: frozenset[str]) -> PodStatus:
    def hold(container: ContainerStatus) -> ContainerStatus:
        text = f'Back-off pulling image "{container.image}"'
        return replace(container, state=_wait("ImagePullBackOff", text))

    return _each(moment, status, targets, hold)


def _running(moment: Moment, status: PodStatus, targets: frozenset[str]) -> PodStatus:
    stamp = moment.stamp
    sidecars = {c.name for c in moment.pod.spec.initContainers or () if c.restartPolicy == "Always"}
    inits = tuple(
        _run(moment, c, ready=True) if c.name in sidecars else _complete(moment, c)
        for c in status.initContainerStatuses
    )
    status = replace(
        status,
        phase="Running",
        initContainerStatuses=inits,
        conditions=set_condition(status.conditions, "Initialized", "True", stamp),
    )
    return _each(moment, status, targets, lambda c: _run(moment, c))


def _ready(moment: Moment, status: PodStatus, targets: frozenset[str]) -> PodStatus:
    return _each(moment, status, targets, lambda c: replace(c, ready=True, started=True))


def _unready(moment: Moment, status: PodStatus, targets: frozenset[str]) -> PodStatus:
    return _each(moment, status, targets, lambda c: replace(c, ready=False))


def _exit(moment: Moment, status: PodStatus, targets: frozenset[str]) -> PodStatus:
    def end(container: ContainerStatus) -> ContainerStatus:
        played = moment.script.exits.get(container.name)
        return _ended(moment, container, played.code if played else 0)

    return _each(moment, status, targets, end)


def _backoff(moment: Moment, status: PodStatus, targets: frozenset[str]) -> PodStatus:
    meta = moment.pod.metadata

    def hold(container: ContainerStatus) -> ContainerStatus:
        text = (
            f"back-off restarting failed container={container.name} "
            f"pod={meta.name}_{meta.namespace}({meta.uid})"
        )
        return replace(container, lastState=container.state, state=_wait(CRASH_LOOP, text))

    return _each(moment, status, targets, hold)


def _restart(moment: Moment, status: PodStatus, targets: frozenset[str]) -> PodStatus:
    def again(container: ContainerStatus) -> ContainerStatus:
        return _run(moment, replace(container, restartCount=container.restartCount + 1))

    return _each(moment, status, targets, again)


def _evict(moment: Moment, status: PodStatus, targets: frozenset[str]) -> PodStatus:
    message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 42Mi. "
    conditions = set_condition(
        status.conditions,
        "DisruptionTarget",
        "True",
        moment.stamp,
        reason="TerminationByKubelet",
        message=message,
    )
    failed = replace(
        status, phase="Failed", reason="Evicted", message=message, conditions=conditions
    )
    return _each(moment, failed, targets, lambda c: _ended(moment, c, _KILLED))


def _stop(moment: Moment, status: PodStatus, targets: frozenset[str]) -> PodStatus:
    """End a deleted Pod: its last phase tells how its containers ended, whatever would restart."""

    def end(container: ContainerStatus) -> ContainerStatus:
        before = (container.lastState or {}).get("terminated", {})
        is_running = container.is_running or not before
        return _ended(moment, container, _KILLED if is_running else before.get("exitCode", 0))

    stopped = _each(moment, status, targets, end)
    codes = [(c.terminated or {}).get("exitCode", 0) for c in stopped.containerStatuses]
    phase = "Failed" if any(codes) else "Succeeded"
    return _judge_readiness(moment, replace(stopped, phase=phase))


def _deadline(moment: Moment, status: PodStatus, targets: frozenset[str]) -> PodStatus:
    failed = replace(
        status,
        phase="Failed",
        reason="DeadlineExceeded",
        message="Pod was active on the node longer than the specified deadline",
    )
    return _each(moment, failed, targets, lambda c: _ended(moment, c, _KILLED))


def _gates(moment: Moment, status: PodStatus, _: frozenset[str]) -> PodStatus:
    return _judge_readiness(moment, status)


def _churn(moment: Moment, status: PodStatus, targets: frozenset[str]) -> PodStatus:
    beat = set_condition(
        status.conditions, CHURN, "True", moment.stamp, message=str(churned(status) + 1)
    )
    beat = tuple(
        {**c, "lastProbeTime": moment.stamp} if c.get("type") == CHURN else c for c in beat
    )
    containers = tuple(
        replace(c, restartCount=c.restartCount + 1) if c.name in targets else c
        for c in status.containerStatuses
    )
    return replace(status, conditions=beat, containerStatuses=containers)


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
    "gates": _gates,
    "churn": _churn,
}


def _each(
    moment: Moment,
    status: PodStatus,
    targets: frozenset[str],
    change: Callable[[ContainerStatus], ContainerStatus],
) -> PodStatus:
    """Change the statuses of ``targets``, then settle phase and readiness of the Pod."""
    known = {c.name: c for c in status.containerStatuses}
    containers = tuple(
        change(found) if c.name in targets else found
        for c in moment.pod.spec.containers
        for found in (known.get(c.name) or _created(c, "ContainerCreating"),)
    )
    status = replace(status, containerStatuses=containers)
    return _judge_readiness(moment, _judge_phase(moment, status))


def _judge_phase(moment: Moment, status: PodStatus) -> PodStatus:
    """Set Succeeded or Failed once every container has ended and none will start again."""
    if status.is_terminal or not status.containerStatuses:
        return status
    policy = moment.pod.spec.restartPolicy
    codes: list[int] = []
    for container in status.containerStatuses:
        end = container.terminated
        if end is None or restarts(policy, int(end.get("exitCode", 0))):
            return status
        codes.append(int(end.get("exitCode", 0)))
    return replace(status, phase="Failed" if any(codes) else "Succeeded")


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


def troubles(status: PodStatus) -> dict[str, str]:
    """Return the messages of what a Pod suffers from, by the reasons of their Events."""
    found = {"Evicted": status.message} if status.reason == "Evicted" else {}
    scheduled = condition(status, "PodScheduled") or {}
    if scheduled.get("reason") == "Unschedulable":
        found["FailedScheduling"] = str(scheduled.get("message"))
    for container in (*status.initContainerStatuses, *status.containerStatuses):
        reason = _EVENTS.get(container.waiting_reason)
        if reason is not None:
            found[reason] = str(container.state["waiting"].get("message"))
    return found


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
    if container.terminated is not None:
        return container
    return replace(_ended(moment, _run(moment, container), 0), ready=True)


def _ended(moment: Moment, container: ContainerStatus, code: int) -> ContainerStatus:
    if container.terminated is not None:
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


def _wait(reason: str, message: str = "") -> dict[str, dict[str, Any]]:
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def _listed(containers: Iterable[Container | ContainerStatus]) -> str:
    return f"[{' '.join(c.name for c in containers)}]"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""Printer columns: their classes, and how to derive them from an object that came without.

A Table watch brings the columns the server computes. A recorded log of full objects does not; for
such logs the same cells are derived here, so that a predicate on columns can be replayed over them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["condition_columns", "derive_columns", "pod_columns", "pod_status_class"]

NONE_CELL = "<none>"

_INIT_PROGRESS = re.compile(r"Init:\d+/\d+")
_WAITING = frozenset(
    {
        "Pending",
        "ContainerCreating",
        "PodInitializing",
        "ErrImagePull",
        "ImagePullBackOff",
        "Init:ErrImagePull",
        "Init:ImagePullBackOff",
        "Init:PodInitializing",
    }
)
_SUCCEEDED = frozenset({"Succeeded", "Completed"})


def pod_status_class(word: str) -> str:
    """Map a word of the Pod column Status to a class.

    The steps of starting become ``waiting``, both words for a clean end ``succeeded``; every other
    word, known or not, is a class of its own: what might be a failure, a deletion, a crash loop or
    a scheduling gate is never merged with anything. The word does not tell the phase in every case:
    a container that exited with an error reads ``Error`` before a restart and in a failed Pod.
    """
    if word in _WAITING or _INIT_PROGRESS.fullmatch(word):
        return "waiting"
    return "succeeded" if word in _SUCCEEDED else word


def derive_columns(obj: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the columns of a full object, ``None`` for metadata alone, which has none to give."""
    if "spec" not in obj and "status" not in obj:
        return None
    return pod_columns(obj) if obj.get("kind") == "Pod" else condition_columns(obj)


def condition_columns(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return status and reason of the condition Ready as the columns Ready and Reason."""
    ready = _condition(obj.get("status") or {}, "Ready")
    return {"Ready": str(ready.get("status") or ""), "Reason": str(ready.get("reason") or "")}


def pod_columns(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns Ready, Status, IP, Node and Readiness Gates of a full Pod."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    found = [*(status.get("containerStatuses") or ()), *_sidecar_statuses(spec, status)]
    total = len(spec.get("containers") or ()) + len(_sidecars(spec))
    ready = sum(
        1
        for container in found
        if container.get("ready") and _state(container, "running") is not None
    )
    ips = [entry.get("ip") for entry in status.get("podIPs") or ()] or [status.get("podIP")]
    return {
        "Ready": f"{ready}/{max(total, len(found))}",
        "Status": _status_word(pod, spec, status),
        "IP": str(ips[0] or NONE_CELL),
        "Node": str(spec.get("nodeName") or NONE_CELL),
        "Readiness Gates": _readiness_gates(spec, status),
    }


def _readiness_gates(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    gates = [gate.get("conditionType") for gate in spec.get("readinessGates") or ()]
    if not gates:
        return NONE_CELL
    open_gates = sum(1 for gate in gates if _condition(status, gate).get("status") == "True")
    return f"{open_gates}/{len(gates)}"


def _status_word(pod: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    phase = str(status.get("phase") or "")
    word = str(status.get("reason") or phase)
    if _condition(status, "PodScheduled").get("reason") == "SchedulingGated":
        word = "SchedulingGated"
    initializing = _init_word(spec, status)
    if initializing and _condition(status, "Initialized").get("status") != "True":
        word = initializing
    else:
        word = _containers_word(status, word)
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if phase not in {"Succeeded", "Failed"}:
            return "Terminating"
    return word


def _init_word(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Return how far the init containers are, empty when they are done."""
    total = len(spec.get("initContainers") or ())
    sidecars = _sidecars(spec)
    for position, container in enumerate(status.get("initContainerStatuses") or ()):
        ended = _state(container, "terminated")
        if ended is not None:
            if ended.get("exitCode") == 0:
                continue
            return f"Init:{_exit_word(ended)}"
        if container.get("name") in sidecars and container.get("started"):
            continue
        reason = (_state(container, "waiting") or {}).get("reason")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{position}/{total}"
    return ""


def _containers_word(status: Mapping[str, Any], word: str) -> str:
    one_runs = False
    # The first container has the last word, as in the server's own table.
    for container in reversed(status.get("containerStatuses") or ()):
        reason = (_state(container, "waiting") or {}).get("reason")
        ended = _state(container, "terminated")
        if reason:
            word = str(reason)
        elif ended is not None:
            word = _exit_word(ended)
        elif container.get("ready") and _state(container, "running") is not None:
            one_runs = True
    if word == "Completed" and one_runs:
        return "Running" if _condition(status, "Ready").get("status") == "True" else "NotReady"
    return word


def _exit_word(ended: Mapping[str, Any]) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _sidecars(spec: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(
        str(container.get("name"))
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    )


def _sidecar_statuses(
    spec: Mapping[str, Any], status: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    names = _sidecars(spec)
    found = status.get("initContainerStatuses") or ()
    return [container for container in found if container.get("name") in names]


def _state(container: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    state: Mapping[str, Any] | None = (container.get("state") or {}).get(name)
    return state


def _condition(status: Mapping[str, Any], kind: Any) -> Mapping[str, Any]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            found: Mapping[str, Any] = condition
            return found
    return {}

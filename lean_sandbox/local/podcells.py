"""The columns of Pods: one word for what their containers do, restarts, readiness."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from filters.events import condition_of, pod_columns, sidecars_of
from lean_sandbox.local.ages import since

Json = dict[str, Any]

_NONE: Final = "<none>"


def _state(container: Json, name: str) -> Json | None:
    state: Json | None = (container.get("state") or {}).get(name)
    return state


def _restarts(obj: Json, now: datetime) -> str:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    sidecars = sidecars_of(spec)
    starting = status.get("initContainerStatuses") or ()
    count, last = 0, ""
    for container in (
        *(status.get("containerStatuses") or ()),
        *(found for found in starting if found.get("name") in sidecars),
    ):
        count += container.get("restartCount", 0)
        ended = (container.get("lastState") or {}).get("terminated") or {}
        last = max(last, ended.get("finishedAt") or "")
    return f"{count} ({since(last, now)} ago)" if count and last else str(count)


def _readiness_gates(spec: Json, status: Json) -> str:
    gates = [gate.get("conditionType") for gate in spec.get("readinessGates") or ()]
    if not gates:
        return _NONE
    open_gates = sum(1 for gate in gates if condition_of(status, gate).get("status") == "True")
    return f"{open_gates}/{len(gates)}"


def _word(pod: Json) -> str:
    """Return the word in the column Status of a Pod."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    word = str(status.get("reason") or status.get("phase") or "")
    if condition_of(status, "PodScheduled").get("reason") == "SchedulingGated":
        word = "SchedulingGated"
    initializing = _init_word(spec, status)
    if initializing and condition_of(status, "Initialized").get("status") != "True":
        word = initializing
    else:
        word = _containers_word(status, initializing or word)
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in {"Succeeded", "Failed"}:
            return "Terminating"
    return word


def _init_word(spec: Json, status: Json) -> str:
    """Return how far the init containers are, empty when they are done."""
    total = len(spec.get("initContainers") or ())
    sidecars = sidecars_of(spec)
    for position, container in enumerate(status.get("initContainerStatuses") or ()):
        ended = _state(container, "terminated")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            continue
        if ended is not None:
            return f"Init:{_exit_word(ended)}"
        reason = (_state(container, "waiting") or {}).get("reason")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{position}/{total}"
    return ""


def _containers_word(status: Json, word: str) -> str:
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
        return "Running" if condition_of(status, "Ready").get("status") == "True" else "NotReady"
    return word


def _exit_word(ended: Json) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def pod_cells(obj: Json, now: datetime) -> list[Any]:
    """Return the cells of a Pod."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    columns = pod_columns(obj)
    return [
        obj["metadata"]["name"],
        columns["Ready"],
        _word(obj),
        _restarts(obj, now),
        since(obj["metadata"].get("creationTimestamp"), now),
        columns["IP"],
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _readiness_gates(spec, status),
    ]

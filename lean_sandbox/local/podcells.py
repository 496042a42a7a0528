"""The cells of a Pod, in the words of `kubectl get pods`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lean_sandbox.local.cells import NONE, age_of, name_of, since

Json = dict[str, Any]


def _is_restartable(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def _init_reason(obj: Json, statuses: list[Json]) -> str:
    """Return the word for a Pod whose init containers have not all ended, else empty."""
    declared = {item.get("name"): item for item in obj["spec"].get("initContainers") or ()}
    for index, status in enumerate(statuses):
        state = status.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if _is_restartable(declared.get(status.get("name"), {})) and status.get("started"):
            continue
        if ended is not None:
            if ended.get("reason"):
                return f"Init:{ended['reason']}"
            if ended.get("signal"):
                return f"Init:Signal:{ended['signal']}"
            return f"Init:ExitCode:{ended.get('exitCode', 0)}"
        if waiting and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(declared)}"
    return ""


def _container_reason(reason: str, statuses: list[Json], conditions: list[Json]) -> str:
    is_running = False
    for status in reversed(statuses):
        state = status.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None and ended.get("reason"):
            reason = ended["reason"]
        elif ended is not None:
            signal = ended.get("signal")
            reason = f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"
        elif status.get("ready") and state.get("running") is not None:
            is_running = True
    if reason == "Completed" and is_running:
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
        return "Running" if ready else "NotReady"
    return reason


def _pod_status(obj: Json) -> str:
    status = obj.get("status") or {}
    conditions = status.get("conditions") or []
    reason = status.get("reason") or status.get("phase") or ""
    for condition in conditions:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    initial = _init_reason(obj, status.get("initContainerStatuses") or [])
    initialized = any(
        c.get("type") == "Initialized" and c.get("status") == "True" for c in conditions
    )
    if initial:
        reason = initial
    if not initial or initialized:
        reason = _container_reason(reason, status.get("containerStatuses") or [], conditions)
    if obj["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return reason


def _restarts(obj: Json, now: datetime) -> str:
    status = obj.get("status") or {}
    statuses = status.get("containerStatuses") or []
    declared = {item.get("name"): item for item in obj["spec"].get("initContainers") or ()}
    sidecars = [
        item
        for item in status.get("initContainerStatuses") or ()
        if _is_restartable(declared.get(item.get("name"), {}))
    ]
    count, last = 0, ""
    for item in [*statuses, *sidecars]:
        count += item.get("restartCount", 0)
        finished = ((item.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        last = max(last, finished)
    return f"{count} ({since(last, now)} ago)" if count and last else str(count)


def _pod_ready(obj: Json) -> str:
    status = obj.get("status") or {}
    declared = obj["spec"].get("initContainers") or ()
    sidecars = {item.get("name") for item in declared if _is_restartable(item)}
    total = len(obj["spec"].get("containers") or ()) + len(sidecars)
    ready = sum(
        1
        for item in status.get("containerStatuses") or ()
        if item.get("ready") and (item.get("state") or {}).get("running") is not None
    )
    ready += sum(
        1
        for item in status.get("initContainerStatuses") or ()
        if item.get("name") in sidecars and item.get("ready")
    )
    return f"{ready}/{total}"


def _gates(obj: Json) -> str:
    gates = obj["spec"].get("readinessGates") or ()
    if not gates:
        return NONE
    held = {
        c.get("type")
        for c in (obj.get("status") or {}).get("conditions") or ()
        if c.get("status") == "True"
    }
    return f"{sum(1 for gate in gates if gate.get('conditionType') in held)}/{len(gates)}"


def pod_cells(obj: Json, now: datetime) -> list[Any]:
    """Return the cells of a Pod."""
    status = obj.get("status") or {}
    ips = status.get("podIPs") or ()
    return [
        name_of(obj),
        _pod_ready(obj),
        _pod_status(obj),
        _restarts(obj, now),
        age_of(obj, now),
        (ips[0].get("ip") if ips else "") or NONE,
        obj["spec"].get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(obj),
    ]

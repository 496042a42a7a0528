"""The printer columns of a Pod whose cells do not change with time alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from filters import events

Json: TypeAlias = Mapping[str, Any]

NONE_CELL = "<none>"


def pod_columns(pod: Json) -> dict[str, str]:
    """Return those columns of a Pod."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return {
        **events.pod_columns(pod),
        "Status": _status(pod, spec, status),
        "Node": str(spec.get("nodeName") or NONE_CELL),
        "Nominated Node": str(status.get("nominatedNodeName") or NONE_CELL),
        "Readiness Gates": _readiness_gates(spec, status),
    }


def _readiness_gates(spec: Json, status: Json) -> str:
    gates = [gate.get("conditionType") for gate in spec.get("readinessGates") or ()]
    if not gates:
        return NONE_CELL
    open_gates = sum(1 for gate in gates if _condition(status, gate).get("status") == "True")
    return f"{open_gates}/{len(gates)}"


def _status(pod: Json, spec: Json, status: Json) -> str:
    word = str(status.get("reason") or status.get("phase") or "")
    if _condition(status, "PodScheduled").get("reason") == "SchedulingGated":
        word = "SchedulingGated"
    initializing = _init_word(spec, status)
    if initializing and _condition(status, "Initialized").get("status") != "True":
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
    sidecars = _sidecars(spec)
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
        return "Running" if _condition(status, "Ready").get("status") == "True" else "NotReady"
    return word


def _exit_word(ended: Json) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _sidecars(spec: Json) -> frozenset[str]:
    """Return the names of the init containers that go on running beside the others."""
    return frozenset(
        str(container.get("name"))
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    )


def _state(container: Json, name: str) -> Json | None:
    state: Json | None = (container.get("state") or {}).get(name)
    return state


def _condition(status: Json, kind: Any) -> Json:
    conditions: Iterable[Json] = status.get("conditions") or ()
    return next((found for found in conditions if found.get("type") == kind), {})

"""What cells are made of: members of objects, ages, and what is said of Pods."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any, Final

from filters.events import condition_of, sidecars_of

Json = dict[str, Any]

NONE: Final = "<none>"


def at(obj: Json, path: str, default: Any = "") -> Any:
    """Return the member at a path, ``default`` where it is absent or empty text."""
    value: Any = obj
    for part in path.removeprefix(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return default if value is None or value == "" else value


# ------------------------------------------------------------------ ages

_DAY: Final = 24 * 3600
_YEAR: Final = 365 * _DAY
_AGES: Final = (
    (120, 1, "s", 0, ""),
    (10 * 60, 60, "m", 1, "s"),
    (3 * 3600, 60, "m", 0, ""),
    (8 * 3600, 3600, "h", 60, "m"),
    (2 * _DAY, 3600, "h", 0, ""),
    (8 * _DAY, _DAY, "d", 3600, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
    (sys.maxsize, _YEAR, "y", 0, ""),
)
"""Up to how many seconds an age is shown in a unit, and in which one what is left of it."""


def human_duration(seconds: float) -> str:
    """Return a duration with at most two units, as ages are shown."""
    total = int(seconds)
    if total < 0:
        return "0s" if total == -1 else "<invalid>"
    for limit, size, unit, rest_size, rest_unit in _AGES:
        if total < limit:
            rest = total % size // rest_size if rest_size else 0
            return f"{total // size}{unit}" + (f"{rest}{rest_unit}" if rest else "")
    return "<invalid>"


def since(text: str | None, now: datetime) -> str:
    """Return the time since a timestamp, `<unknown>` without one, `<invalid>` if it is none."""
    if not text:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return "<invalid>"
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return human_duration((now - moment).total_seconds())


# ------------------------------------------------------------------ Pods


def restarts(obj: Json, now: datetime) -> str:
    """Return how often the containers of a Pod were restarted, and when last."""
    sidecars = sidecars_of(obj.get("spec") or {})
    starting = at(obj, "status.initContainerStatuses", ())
    count = 0
    last = ""
    for container in (
        *at(obj, "status.containerStatuses", ()),
        *(found for found in starting if found.get("name") in sidecars),
    ):
        count += container.get("restartCount", 0)
        last = max(last, at(container, "lastState.terminated.finishedAt"))
    return f"{count} ({since(last, now)} ago)" if count and last else str(count)


def readiness_gates(obj: Json, _now: datetime) -> str:
    """Return how many of the readiness gates of a Pod are open."""
    gates = [gate.get("conditionType") for gate in at(obj, "spec.readinessGates", ())]
    if not gates:
        return NONE
    status = obj.get("status") or {}
    open_gates = sum(condition_of(status, gate).get("status") == "True" for gate in gates)
    return f"{open_gates}/{len(gates)}"


def pod_word(pod: Json, _now: datetime) -> str:
    """Return one word for what the containers of a Pod do."""
    spec = pod.get("spec") or {}
    status = pod.get("status") or {}
    word = str(status.get("reason") or status.get("phase") or "")
    if condition_of(status, "PodScheduled").get("reason") == "SchedulingGated":
        word = "SchedulingGated"
    initializing = _init_word(spec, status)
    if initializing and condition_of(status, "Initialized").get("status") != "True":
        word = initializing
    else:
        word = _containers_word(status, initializing or word)
    if at(pod, "metadata.deletionTimestamp"):
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
        ended = at(container, "state.terminated", None)
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            continue
        if ended is not None:
            return f"Init:{_exit_word(ended)}"
        reason = at(container, "state.waiting.reason")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{position}/{total}"
    return ""


def _containers_word(status: Json, word: str) -> str:
    one_runs = False
    # The first container has the last word, as in the server's own table.
    for container in reversed(status.get("containerStatuses") or ()):
        reason = at(container, "state.waiting.reason")
        ended = at(container, "state.terminated", None)
        if reason:
            word = str(reason)
        elif ended is not None:
            word = _exit_word(ended)
        elif container.get("ready") and at(container, "state.running", None) is not None:
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

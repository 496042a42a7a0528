"""Events: stored as core/v1, shown as events.k8s.io/v1 to who asks there; what is asked of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import checks, errors

Json = dict[str, Any]

_TO_EVENTS: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_TO_CORE: Final = {new: old for old, new in _TO_EVENTS.items()}
# Written in core/v1 even when empty.
_LEFT_OUT: Final = ("reportingComponent", "reportingInstance")
_LIMITS: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_REQUIRED: Final = ("eventTime", "reportingInstance", "action", "reason")
_MAY_CHANGE: Final = ("apiVersion", "kind", "metadata", "series")


def to_events(obj: Json) -> Json:
    """Return a core/v1 Event under the names of events.k8s.io/v1."""
    return {
        _TO_EVENTS.get(key, key): value
        for key, value in obj.items()
        if value != "" or key not in _LEFT_OUT
    }


def to_core(obj: Json) -> Json:
    """Return an events.k8s.io/v1 Event under the names of core/v1."""
    converted = {_TO_CORE.get(key, key): value for key, value in obj.items()}
    return {"source": {}, "firstTimestamp": None, "lastTimestamp": None, **converted}


def check_event_place(obj: Json, _where: str) -> Iterator[ErrorCause]:
    """Give what is wrong with where an Event is: beside the object it is about.

    Events about cluster-wide objects are in the default namespace.
    """
    here = obj["metadata"].get("namespace", "")
    there = (obj.get("involvedObject") or {}).get("namespace") or ""
    if there != here and (there or here != "default"):
        yield errors.invalid("involvedObject.namespace", there, "does not match event.namespace")


def check_event_change(obj: Json, old: Json) -> Iterator[ErrorCause]:
    """Give what events.k8s.io/v1 refuses in the change of an Event under its core names.

    The older core/v1 asks for none of it, and neither of what is new.
    """
    for key in sorted((obj.keys() | old.keys()) - set(_MAY_CHANGE)):
        if (obj.get(key) or None) != (old.get(key) or None):
            name = "reportingController" if key == "reportingComponent" else key
            yield errors.immutable(name, obj.get(key) or "")


def check_new_event(obj: Json) -> Iterator[ErrorCause]:
    """Give what events.k8s.io/v1 refuses in a new Event under its core names."""
    series = obj.get("series")
    if series is not None:
        if (series.get("count") or 0) < 2:
            yield errors.invalid("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield errors.required("series.lastObservedTime")
    controller = obj.get("reportingComponent") or ""
    if not controller:
        yield errors.required("reportingController")
    for text in checks.label_key_problems(controller):
        yield errors.invalid("reportingController", controller, text)
    yield from (errors.required(key) for key in _REQUIRED if not obj.get(key))
    for key, limit in _LIMITS.items():
        if len(obj.get(key) or "") > limit:
            yield errors.invalid(key, "", f"can have at most {limit} characters")
    kind = obj.get("type") or ""
    if kind not in ("Normal", "Warning"):
        yield errors.invalid("type", "", f"has invalid value: {kind}")

"""Events: what is required of them, and what of them never changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors, names

Json = dict[str, Any]

_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_REQUIRED = ("reportingInstance", "action", "reason")
_FIXED = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
    "type",
    "eventTime",
)
_PUBLIC = {"reportingComponent": "reportingController"}


def check_event_place(obj: Json, _old: Json | None) -> list[Cause]:
    """Return what is wrong with where an Event is: beside the object it is about.

    Events about cluster-wide objects are in the default namespace.
    """
    here = obj["metadata"].get("namespace", "")
    there = (obj.get("involvedObject") or {}).get("namespace") or ""
    if there == here or (not there and here == "default"):
        return []
    return [errors.invalid("involvedObject.namespace", there, "does not match event.namespace")]


def check_new_event(obj: Json, old: Json | None) -> list[Cause]:
    """Return what events.k8s.io/v1 refuses in an Event under its core names.

    The older core/v1 asks for none of it.
    """
    if old is not None:
        return [
            errors.immutable(_PUBLIC.get(key, key), obj.get(key) or "")
            for key in _FIXED
            if (obj.get(key) or None) != (old.get(key) or None)
        ]
    return list(_mistakes(obj))


def _mistakes(obj: Json) -> Iterator[Cause]:
    if not obj.get("eventTime"):
        yield errors.required("eventTime")
    series = obj.get("series")
    if series is not None:
        if (series.get("count") or 0) < 2:
            yield errors.invalid("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield errors.required("series.lastObservedTime")
    controller = obj.get("reportingComponent") or ""
    if not controller:
        yield errors.required("reportingController")
    for text in names.label_key_problems(controller):
        yield errors.invalid("reportingController", controller, text)
    for key in _REQUIRED:
        if not obj.get(key):
            yield errors.required(key)
    for key, limit in _LIMITS.items():
        if len(obj.get(key) or "") > limit:
            yield errors.invalid(key, "", f"can have at most {limit} characters")
    kind = obj.get("type") or ""
    if kind not in ("Normal", "Warning"):
        yield errors.invalid("type", "", f"has invalid value: {kind}")

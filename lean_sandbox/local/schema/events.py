"""Checks of Events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import always, needed

Json = dict[str, Any]

_LIMITS: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_REQUIRED: Final = ("eventTime", "reportingInstance", "action", "reason")
_MAY_CHANGE: Final = ("apiVersion", "kind", "metadata", "series")


def check_event(obj: Json, _where: str) -> Iterator[ErrorCause]:
    """Give what is wrong with an Event: it is beside the object it is about.

    Events about cluster-wide objects are in the default namespace. One that names the time it
    happened at is of the newer kind.
    """
    here = obj["metadata"].get("namespace", "")
    there = (obj.get("involvedObject") or {}).get("namespace") or ""
    if there != here and (there or here != "default"):
        yield causes.invalid("involvedObject.namespace", there, "does not match event.namespace")
    if obj.get("eventTime"):
        yield from _check_reporter(obj, "reportingComponent")


def _check_reporter(obj: Json, name: str) -> Iterator[ErrorCause]:
    controller = obj.get("reportingComponent") or ""
    yield from needed()(controller, name)
    yield from always(causes.label_key_problems)(controller, name)
    for key in _REQUIRED:
        yield from needed()(obj.get(key), key)
    for key, limit in _LIMITS.items():
        if len(obj.get(key) or "") > limit:
            yield causes.invalid(key, "", f"can have at most {limit} characters")


def check_event_change(obj: Json, old: Json) -> Iterator[ErrorCause]:
    """Give what events.k8s.io/v1 refuses in the change of an Event under its core names.

    The older core/v1 asks for none of it, and neither of what is new.
    """
    for key in sorted((obj.keys() | old.keys()) - set(_MAY_CHANGE)):
        if (obj.get(key) or None) != (old.get(key) or None):
            name = "reportingController" if key == "reportingComponent" else key
            yield causes.immutable(name, obj.get(key) or "")


def check_new_event(obj: Json) -> Iterator[ErrorCause]:
    """Give what events.k8s.io/v1 refuses in a new Event under its core names."""
    series = obj.get("series")
    if series is not None:
        if (series.get("count") or 0) < 2:
            yield causes.invalid("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield causes.required("series.lastObservedTime")
    yield from _check_reporter(obj, "reportingController")
    kind = obj.get("type") or ""
    if kind not in ("Normal", "Warning"):
        yield causes.invalid("type", "", f"has invalid value: {kind}")

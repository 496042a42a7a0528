"""The two faces of an Event: stored as core/v1, shown as events.k8s.io/v1 to who asks there."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

_NAMES: Final = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)
_CORE_TO_EVENTS: Final = dict(_NAMES)
# Written in core/v1 even when empty.
_LEFT_OUT: Final = ("reportingComponent", "reportingInstance")
_EVENTS_TO_CORE: Final = {new: old for old, new in _NAMES}


def to_events(obj: Json) -> Json:
    """Return a core/v1 Event under the names of events.k8s.io/v1."""
    return {
        _CORE_TO_EVENTS.get(key, key): value
        for key, value in obj.items()
        if value != "" or key not in _LEFT_OUT
    }


def to_core(obj: Json) -> Json:
    """Return an events.k8s.io/v1 Event under the names of core/v1."""
    converted = {_EVENTS_TO_CORE.get(key, key): value for key, value in obj.items()}
    converted.setdefault("source", {})
    converted.setdefault("firstTimestamp", None)
    converted.setdefault("lastTimestamp", None)
    return converted

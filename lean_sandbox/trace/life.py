"""What is remembered of an object, and the table in which a person reads it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec

from lean_sandbox.log import aligned
from lean_sandbox.model.times import format_micro_time
from lean_sandbox.watch.kind import Key

PATH: Final = "/debug/trace"
CLAIMS: Final = "sandboxclaims"
SANDBOXES: Final = "sandboxes"
PODS: Final = "pods"
POOLS: Final = "sandboxwarmpools"
NOUNS: Final = {CLAIMS: "claim", SANDBOXES: "sandbox", PODS: "pod", POOLS: "pool"}
#: How the answer begins if nothing is remembered of an object.
NOTHING: Final = "the controller remembers nothing"
#: Details of a condition.
READY: Final = "Ready is True"
NOT_READY: Final = "Ready is False"
#: The end of the detail of an event.
ALREADY_READY: Final = "; Ready"
# What the cache says of an object whose predecessor's end no event has shown.
_ANEW: Final = ", passed: re-created: "
# The steps of a claim as the metric lean_sandbox_claim_stage_seconds calls them.
_STAGES: Final = {
    "patch sandboxes": "adopt",
    "patch pods": "pod_metadata",
    "patch sandboxclaims/status": "status",
}
_HEAD: Final = ("     AT MS", "OBJECT", "WHAT", "   TOOK MS", "DETAIL")

Subject: TypeAlias = tuple[str, Key]
"""An object: the plural of its kind, its key."""


class TraceEntry(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to an object; ``at`` is monotonic, in seconds."""

    at: float
    plural: str
    key: Key
    #: An event of a watch, a reconcile, a request of one, or a change of the condition Ready.
    what: Literal["event", "reconcile", "request", "condition"]
    detail: str
    #: Of a reconcile or a request.
    took_s: float | None = None
    #: Of an event, kind/name of the owner that controls the object; empty for none.
    owner: str = ""


def summary(subject: Subject, entries: Sequence[TraceEntry], now: float) -> str:
    """Return how long an object took to become Ready, and where that time went.

    Times are in milliseconds, from its first event. Empty for kinds without the condition, and if
    the first event is overwritten.
    """
    own = [one for one in entries if (one.plural, one.key) == subject]
    first = _first_event(own)
    if subject[0] not in (CLAIMS, SANDBOXES) or first is None:
        return ""
    if first.detail.endswith(ALREADY_READY):
        return "was Ready when it was first seen"
    began = first.at
    ready = next((one.at for one in own if one.detail == READY and one.at >= began), None)
    if ready is None:
        return f"not Ready {(now - began) * 1000.0:.1f} ms after its first event"
    requests = [
        one
        for one in entries
        if one.what == "request" and began <= one.at and one.at + (one.took_s or 0.0) <= ready
    ]
    took = f"Ready after {(ready - began) * 1000.0:.1f} ms"
    if not requests:
        return f"{took}, by no request of this controller"
    parts = [f"{_step(one)} {(one.took_s or 0.0) * 1000.0:.1f}" for one in requests]
    parts.append(f"between them {(ready - began - _covered_s(requests)) * 1000.0:.1f}")
    return f"{took}: {', '.join(parts)}{_origin(requests)}"


def _first_event(own: Sequence[TraceEntry]) -> TraceEntry | None:
    """Return the first event of the last object of a name. Lists show an object again as ADDED."""
    first = None
    has_ended = True
    for one in own:
        if one.what != "event":
            continue
        if one.detail.startswith("DELETED"):
            has_ended = True
        elif _ANEW in one.detail or (has_ended and one.detail.startswith("ADDED")):
            first = one
            has_ended = False
    return first


def _step(request: TraceEntry) -> str:
    verb, _, asked = request.detail.partition(" ")
    resource, _, code = asked.partition(" ")
    plural, _, group = resource.partition(".")
    _, slash, subresource = group.partition("/")
    name = f"{verb} {plural}{slash}{subresource}"
    if request.plural == CLAIMS:
        name = _STAGES.get(name, name)
    return name if code.startswith("2") else f"{name} ({code})"


def _covered_s(requests: Sequence[TraceEntry]) -> float:
    """Return for how long at least one of the requests was under way; they are in order of time."""
    total_s = 0.0
    until = -math.inf
    for one in requests:
        end = one.at + (one.took_s or 0.0)
        total_s += max(0.0, end - max(one.at, until))
        until = max(until, end)
    return total_s


def _origin(requests: Sequence[TraceEntry]) -> str:
    steps = [_step(one) for one in requests if one.plural == CLAIMS]
    if "create sandboxes" in steps:
        return "; cold"
    return "; warm" if "adopt" in steps else ""


def table(
    subject: Subject,
    entries: list[TraceEntry],
    now: float,
    wall_clock_at: Callable[[float], datetime],
) -> str:
    """Return the summary, then a line for each entry.

    Times count from the first entry of the object itself.
    """
    own = (one.at for one in entries if (one.plural, one.key) == subject)
    start_s = min(own, default=entries[0].at)
    since = format_micro_time(wall_clock_at(start_s))
    took = summary(subject, entries, now)
    counted = f"{len(entries)} entries, 0 is {since}"
    header = "\n".join(filter(None, (took, counted)))
    head = f"{NOUNS[subject[0]]} {subject[1]}: {header}\n"
    rows = [
        (
            _ms(one.at - start_s),
            f"{NOUNS[one.plural]} {one.key.name}",
            one.what,
            "" if one.took_s is None else _ms(one.took_s),
            one.detail,
        )
        for one in entries
    ]
    return head + aligned(_HEAD, *rows)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000.0:10.3f}"

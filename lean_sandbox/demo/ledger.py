"""Counting what a stretch of the demo cost: requests, passes and events, as differences."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.manager.manager import Manager

_WRITES = frozenset({"create", "update", "patch", "delete"})
_READS = frozenset({"get", "list"})
_CONFLICT = 409


@dataclass(frozen=True, slots=True)
class EventCount:
    """What became of the watch events of one kind."""

    seen: int = 0
    passed: int = 0
    known: int = 0
    unchanged: int = 0
    by_leaf: Counter[str] = field(default_factory=Counter)

    def since(self, before: EventCount) -> EventCount:
        """Return what was counted after ``before``."""
        return EventCount(
            self.seen - before.seen,
            self.passed - before.passed,
            self.known - before.known,
            self.unchanged - before.unchanged,
            self.by_leaf - before.by_leaf,
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """What was counted up to a moment, or between two."""

    requests: Counter[tuple[str, str]]
    codes: Counter[int]
    sent_bytes: int
    received_bytes: int
    passes_by: Counter[str]
    events: dict[str, EventCount]

    def since(self, before: Cost) -> Cost:
        """Return what was counted after ``before``."""
        return Cost(
            self.requests - before.requests,
            self.codes - before.codes,
            self.sent_bytes - before.sent_bytes,
            self.received_bytes - before.received_bytes,
            self.passes_by - before.passes_by,
            {
                kind: count.since(before.events.get(kind, EventCount()))
                for kind, count in self.events.items()
            },
        )

    def count(self, verb: str, resource: str) -> int:
        """Return how many requests of one kind were made."""
        return self.requests[verb, resource]

    def requests_by_name(self) -> dict[str, int]:
        """Return the requests as ``verb resource``, in the order of the alphabet."""
        return {
            f"{verb} {resource}": number
            for (verb, resource), number in sorted(self.requests.items())
        }

    @property
    def writes(self) -> int:
        """Writes of objects; Events are counted by themselves."""
        return sum(
            number
            for (verb, resource), number in self.requests.items()
            if verb in _WRITES and not resource.startswith("events")
        )

    @property
    def reads(self) -> int:
        """GETs and LISTs; watches are not polls and not counted."""
        return sum(number for (verb, _), number in self.requests.items() if verb in _READS)

    @property
    def event_posts(self) -> int:
        """Events posted for people to read."""
        return sum(
            number
            for (verb, resource), number in self.requests.items()
            if verb in _WRITES and resource.startswith("events")
        )

    @property
    def passes(self) -> int:
        """Passes of all controllers."""
        return self.passes_by.total()

    @property
    def conflicts(self) -> int:
        """Requests answered with 409."""
        return self.codes[_CONFLICT]


class Ledger:
    """Collects the records of the controller's requests and takes snapshots."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._codes: Counter[int] = Counter()
        self.controller: Manager | None = None

    def observe(self, record: RequestRecord) -> None:
        """Count one finished request; given to the transport as its observer."""
        if record.verb == "watch":
            return
        self._requests[record.verb, record.resource] += 1
        self._codes[record.code] += 1

    def snapshot(self) -> Cost:
        """Return what was counted so far."""
        assert self.controller is not None
        counted = self.controller.statistics()
        return Cost(
            requests=Counter(self._requests),
            codes=Counter(self._codes),
            sent_bytes=counted.transport.sent_bytes,
            received_bytes=counted.transport.received_bytes,
            passes_by=Counter(self.controller.activity().passes),
            events={
                kind: EventCount(
                    seen=one.cache.seen,
                    passed=one.cache.passed,
                    known=one.cache.dropped_known,
                    unchanged=one.cache.dropped_unchanged,
                    by_leaf=Counter(one.passed_by_leaf),
                )
                for kind, one in counted.kinds.items()
            },
        )

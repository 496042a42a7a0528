"""Replay a recorded event log through a predicate: which leaf let each event pass, or why not.

A log has one JSON document a line: watch events as they come over the wire, or as recorded by
``kubectl get KIND --watch -o json --output-watch-events``, of full objects, PartialObjectMetadata
or Tables. Bare objects, lists and Tables without an envelope are taken for their current state.
Bookmarks and errors are counted; a broken line is reported with its number and does not end the
replay.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TextIO, TypeAlias

from filters.columns import derive_columns, pod_status_class
from filters.combine import Predicate, any_of, if_known
from filters.events import Change, EventType, ObservedObject, from_json, from_table_row
from filters.memory import Filter
from filters.predicates import annotation, column, deletion, generation, labels, owner

__all__ = [
    "Explained",
    "Outcome",
    "Summary",
    "default_predicate_for",
    "explain",
    "replay",
]

Line: TypeAlias = str | bytes

_NO_CHANGE = Change(0)

SANDBOX_ANNOTATIONS = ("agents.x-k8s.io/pod-name", "agents.x-k8s.io/sandbox-template-ref")
"""Annotations of a Sandbox that a decision depends on."""

_LISTED_LINES = 10


class Outcome(StrEnum):
    """What became of a line of the log."""

    PASSED = "passed"
    DROPPED = "dropped"
    BOOKMARK = "bookmark"
    ERROR = "error"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Explained:
    """One event of the log, or one line that is none, and what was decided about it."""

    line: int
    """Number of the line, from 1; the rows of one Table share it."""
    outcome: Outcome
    reason: str
    event_type: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    change: Change = _NO_CHANGE
    leaves: tuple[str, ...] = ()
    """Names of the leaves that let the event pass."""

    def text(self) -> str:
        """Return one line for a person to read."""
        subject = "/".join(part for part in (self.namespace, self.name) if part)
        version = f"@{self.resource_version}" if self.resource_version else ""
        reason = self.reason.removeprefix("dropped: ")
        words = (f"{self.line:>6}", f"{self.outcome:<8}", f"{self.event_type:<8}")
        return f"{' '.join(words)} {subject}{version}  {reason}".rstrip()

    def json(self) -> str:
        """Return one line of JSON."""
        document = {
            "line": self.line,
            "outcome": self.outcome.value,
            "type": self.event_type,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
            "change": [flag.name for flag in self.change],
            "leaves": list(self.leaves),
            "reason": self.reason,
        }
        return json.dumps(document)


@dataclass(slots=True)
class Summary:
    """Counts over a replay; grows with :meth:`add`."""

    counts: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    by_cause: dict[str, int] = field(default_factory=dict)
    """Passed events by leaf, and by ``first sight`` and the like for whole-object events."""
    broken_lines: list[int] = field(default_factory=list)

    @property
    def events(self) -> int:
        """Return the number of events that were judged."""
        return self.counts[Outcome.PASSED] + self.counts[Outcome.DROPPED]

    @property
    def dropped_share(self) -> float:
        """Return the share of judged events that were dropped, 0 without events."""
        return self.counts[Outcome.DROPPED] / self.events if self.events else 0.0

    def add(self, explained: Explained) -> None:
        """Count one more line."""
        self.counts[explained.outcome] += 1
        if explained.outcome is Outcome.BROKEN:
            self.broken_lines.append(explained.line)
        if explained.outcome is Outcome.PASSED:
            causes = explained.leaves or (explained.reason.partition(":")[0],)
            for cause in causes:
                self.by_cause[cause] = self.by_cause.get(cause, 0) + 1

    def text(self) -> str:
        """Return a few lines for a person to read."""
        counts = self.counts
        head = (
            f"{self.events} events: {counts[Outcome.PASSED]} passed, "
            f"{counts[Outcome.DROPPED]} dropped ({self.dropped_share:.0%}); "
            f"{counts[Outcome.BOOKMARK]} bookmarks, {counts[Outcome.ERROR]} errors, "
            f"{counts[Outcome.BROKEN]} broken lines"
        )
        lines = [head]
        if self.by_cause:
            ranked = sorted(self.by_cause.items(), key=lambda item: (-item[1], item[0]))
            lines.append(f"passed by: {', '.join(f'{cause} {count}' for cause, count in ranked)}")
        if self.broken_lines:
            listed = ", ".join(str(line) for line in self.broken_lines[:_LISTED_LINES])
            more = ", ..." if len(self.broken_lines) > _LISTED_LINES else ""
            lines.append(f"broken lines: {listed}{more}")
        return "\n".join(lines)

    def json(self) -> str:
        """Return one line of JSON."""
        document = {
            "events": self.events,
            **{outcome.value: count for outcome, count in self.counts.items()},
            "byCause": self.by_cause,
            "brokenLines": self.broken_lines,
        }
        return json.dumps({"summary": document})


def default_predicate_for(kind: str) -> Predicate:
    """Return the predicate that suits metadata or Table watches of ``Sandbox`` or ``Pod``.

    A Pod becoming unschedulable shows in none of its columns. Raises ValueError for other kinds.
    """
    if kind == "Sandbox":
        return any_of(
            generation(),
            deletion(),
            labels(exact=True),
            annotation(*SANDBOX_ANNOTATIONS),
            column("Ready"),
            column("Reason"),
        )
    if kind == "Pod":
        return any_of(
            deletion(),
            labels(exact=True),
            owner(),
            column("Ready"),
            column("Status", classify=pod_status_class),
            column("IP"),
            column("Node"),
            # A closed gate keeps a Pod unready without a trace in Ready; few Pods have any.
            if_known(column("Readiness Gates")),
        )
    raise ValueError(f"no default predicate for kind {kind!r}; there is one for Sandbox and Pod")


def replay(
    lines: Iterable[Line], predicate: Predicate, *, max_objects: int = 100_000
) -> Iterator[Explained]:
    """Yield for each event whether it passes and why, as the log is read."""
    memory = Filter(predicate, max_objects=max_objects)
    reader = _Reader()
    for number, line in enumerate((line.strip() for line in lines), start=1):
        if not line:
            continue
        # Only reading is guarded: an error inside a predicate is the predicate's and must show.
        try:
            documents = list(reader.read(line))
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
            yield Explained(number, Outcome.BROKEN, reason)
            continue
        for document in documents:
            if isinstance(document, _Note):
                yield Explained(number, document.outcome, document.reason, document.event_type)
            else:
                yield _judge(memory, number, *document)


def explain(
    lines: Iterable[Line],
    predicate: Predicate,
    *,
    out: TextIO | None = None,
    form: Literal["text", "json"] = "text",
) -> Summary:
    """Replay the log, write a line for each event and the summary at the end; return the summary.

    ``out`` is the standard output by default. The JSON form writes one document a line, the last
    of them under the key ``summary``.
    """
    stream = sys.stdout if out is None else out
    summary = Summary()
    for explained in replay(lines, predicate):
        summary.add(explained)
        stream.write(f"{explained.text() if form == 'text' else explained.json()}\n")
    stream.write(f"{summary.text() if form == 'text' else summary.json()}\n")
    return summary


@dataclass(frozen=True, slots=True)
class _Note:
    outcome: Outcome
    event_type: str
    reason: str


class _Reader:
    """Turns lines into events; remembers the column definitions, which come only once."""

    def __init__(self) -> None:
        self._definitions: Sequence[Mapping[str, Any]] | None = None

    def read(self, line: Line) -> Iterator[tuple[EventType, ObservedObject] | _Note]:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise TypeError("the line is not a JSON object")
        if "object" not in document or "type" not in document:
            yield from self._states(EventType.MODIFIED, document)
            return
        kind, obj = document["type"], document["object"]
        if kind == "BOOKMARK":
            self._learn(obj)
            yield _Note(Outcome.BOOKMARK, kind, "bookmark")
        elif kind == "ERROR":
            code, message = obj.get("code", "?"), obj.get("message", "")
            yield _Note(Outcome.ERROR, kind, f"{code} {message}".rstrip())
        else:
            yield from self._states(EventType(kind), obj)

    def _states(
        self, event_type: EventType, obj: Mapping[str, Any]
    ) -> Iterator[tuple[EventType, ObservedObject]]:
        if obj.get("kind") == "Table":
            self._learn(obj)
            for row in obj.get("rows") or ():
                yield event_type, from_table_row(self._definitions, row)
        elif isinstance(obj.get("items"), list):
            for item in obj["items"]:
                yield event_type, from_json(item, columns=derive_columns(item))
        else:
            yield event_type, from_json(obj, columns=derive_columns(obj))

    def _learn(self, obj: Mapping[str, Any]) -> None:
        if obj.get("kind") == "Table" and obj.get("columnDefinitions"):
            self._definitions = obj["columnDefinitions"]


def _judge(memory: Filter, number: int, event_type: EventType, obj: ObservedObject) -> Explained:
    verdict = memory.admit(event_type, obj)
    return Explained(
        line=number,
        outcome=Outcome.PASSED if verdict.passed else Outcome.DROPPED,
        reason=verdict.reason,
        event_type=event_type.value,
        namespace=obj.namespace,
        name=obj.name,
        uid=obj.uid,
        resource_version=obj.resource_version,
        change=verdict.change,
        leaves=verdict.leaves,
    )

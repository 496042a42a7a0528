"""Replays a recorded event log: which predicate let each event pass, or why it was dropped.

A log has one JSON document a line: watch events as they come over the wire, or as recorded by
``kubectl get KIND --watch -o json --output-watch-events``, of full objects, PartialObjectMetadata
or Tables. Bare objects, lists and Tables without an envelope are taken for their current state.
Bookmarks and errors are counted; a broken line is reported with its number and does not end the
replay.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TextIO, TypeAlias

from filters.detector import Decision
from filters.events import EventType, Observed, ObservedObject

Json: TypeAlias = Mapping[str, Any]
Columns: TypeAlias = Mapping[str, str]
Decide: TypeAlias = Callable[[EventType, Json, Columns | None], tuple[Observed, Decision]]
"""Takes an object of an event, with its columns if it came as the row of a Table."""

_LISTED_LINES = 10
_NO_OBJECT = ObservedObject(uid="")


class LineOutcome(StrEnum):
    """What became of a line of the log."""

    PASSED = "passed"
    DROPPED = "dropped"
    BOOKMARK = "bookmark"
    ERROR = "error"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Explained:
    """One event of the log, or a line without any, and the decision about it."""

    line: int
    """Number of the line, from 1; the objects of one list share it."""
    outcome: LineOutcome
    reason: str
    event_type: str = ""
    object: Observed = _NO_OBJECT
    leaves: tuple[str, ...] = ()
    """Names of the leaves that let the event pass."""

    def text(self) -> str:
        """Return one line for a person to read."""
        seen = self.object
        subject = "/".join(filter(None, (seen.namespace, seen.name)))
        version = f"@{seen.resource_version}" if seen.resource_version else ""
        words = (f"{self.line:>6}", f"{self.outcome:<8}", f"{self.event_type:<8}")
        return f"{' '.join(words)} {subject}{version}  {self.reason}".rstrip()


@dataclass(slots=True)
class Summary:
    """Counts over a replay; grows with :meth:`add`."""

    counts: Counter[LineOutcome] = field(default_factory=Counter)
    by_cause: Counter[str] = field(default_factory=Counter)
    """Passed events by leaf, and by ``first sight`` and the like for whole-object events."""
    broken_lines: list[int] = field(default_factory=list)

    @property
    def events(self) -> int:
        """The number of events that were decided on."""
        return self.counts[LineOutcome.PASSED] + self.counts[LineOutcome.DROPPED]

    def add(self, explained: Explained) -> None:
        """Count one more line."""
        self.counts[explained.outcome] += 1
        if explained.outcome is LineOutcome.BROKEN:
            self.broken_lines.append(explained.line)
        if explained.outcome is LineOutcome.PASSED:
            self.by_cause.update(explained.leaves or (explained.reason.partition(":")[0],))

    def text(self) -> str:
        """Return a few lines for a person to read."""
        counts = self.counts
        dropped = counts[LineOutcome.DROPPED]
        share = dropped / self.events if self.events else 0.0
        head = (
            f"{self.events} events: {counts[LineOutcome.PASSED]} passed, {dropped} dropped "
            f"({share:.0%}); {counts[LineOutcome.BOOKMARK]} bookmarks, "
            f"{counts[LineOutcome.ERROR]} errors, {counts[LineOutcome.BROKEN]} broken lines"
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


def replay(lines: Iterable[str | bytes], decide: Decide) -> Iterator[Explained]:
    """Yield for each event whether it passes and why, as the log is read.

    A ValueError of ``decide``, which means an unreadable object, is caught; nothing else is.
    """
    names: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = _read(number, line, names)
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            found = [_broken(number, error)]
        for event in found:
            if isinstance(event, Explained):
                yield event
                continue
            try:
                observed, decision = decide(*event)
            except ValueError as error:
                yield _broken(number, error)
                continue
            yield Explained(
                line=number,
                outcome=LineOutcome.PASSED if decision else LineOutcome.DROPPED,
                reason=decision.reason,
                event_type=event[0],
                object=observed,
                leaves=decision.leaves,
            )


def explain(lines: Iterable[str | bytes], decide: Decide, *, out: TextIO) -> Summary:
    """Replay a log; write a line for each event and at the end the summary, which is returned.

    Only the first few broken lines are written: a file that is not a log has nothing else.
    """
    summary = Summary()
    for explained in replay(lines, decide):
        summary.add(explained)
        if (
            explained.outcome is not LineOutcome.BROKEN
            or len(summary.broken_lines) <= _LISTED_LINES
        ):
            out.write(f"{explained.text()}\n")
    out.write(f"{summary.text()}\n")
    return summary


def _read(
    number: int, line: str | bytes, names: list[str]
) -> Sequence[Explained | tuple[EventType, Json, Columns | None]]:
    """Return the events of a line; keep the ``names`` of the columns, which are sent only once."""
    document = json.loads(line.strip())
    if not isinstance(document, dict):
        raise TypeError("the line is not a JSON object")
    kind = EventType.MODIFIED
    obj = document
    if "object" in document and "type" in document:
        kind = document["type"]
        obj = document["object"]
    is_table = obj.get("kind") == "Table"
    if is_table and obj.get("columnDefinitions"):
        names[:] = [str(definition["name"]) for definition in obj["columnDefinitions"]]
    if kind == "BOOKMARK":
        return [Explained(number, LineOutcome.BOOKMARK, "bookmark", kind)]
    if kind == "ERROR":
        reason = f"{obj.get('code', '?')} {obj.get('message', '')}".rstrip()
        return [Explained(number, LineOutcome.ERROR, reason, kind)]
    event_type = EventType(kind)
    if is_table:
        rows = obj.get("rows") or ()
        found = [(event_type, row["object"], _columns(row, names)) for row in rows]
    else:
        items = obj["items"] if isinstance(obj.get("items"), list) else [obj]
        found = [(event_type, item, None) for item in items]
    if not all(isinstance(state, dict) for _, state, _ in found):
        raise TypeError("an object is not a JSON object")
    if not found:
        return [Explained(number, LineOutcome.BROKEN, "no object in the line", event_type)]
    return found


def _columns(row: Json, names: list[str]) -> Columns | None:
    cells = row.get("cells")
    if not names or not isinstance(cells, list) or len(cells) != len(names):
        return None
    texts = ("" if cell is None else str(cell) for cell in cells)
    return dict(zip(names, texts, strict=True))


def _broken(number: int, error: Exception) -> Explained:
    return Explained(number, LineOutcome.BROKEN, f"{type(error).__name__}: {error}")

"""The life of an object as Chrome trace JSON, which Perfetto and chrome://tracing open.

Each object is a process of its own there, with a row of events, one of passes for each controller,
and rows of requests: slices of one row may not overlap, so requests at the same time take several.
Source of the format: the Trace Event Format of the Chromium project.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.manager.flight import CLAIMS, PODS, SANDBOXES, Asked, Entry, Ran, Saw, Subject
from lean_sandbox.manager.trace_endpoint import Life

Json = dict[str, Any]

NOUNS: Final = {CLAIMS: "claim", SANDBOXES: "sandbox", PODS: "pod"}
_US: Final = 1_000_000.0
_EVENTS: Final = "events"


def chrome(life: Life) -> Json:
    """Return the trace; times are microseconds since the first entry."""
    first_s = min((one.at for one in life.entries), default=life.now_s)
    threads = _Threads()
    events = [_event(one, first_s, threads) for one in life.entries]
    return {
        "displayTimeUnit": "ms",
        "otherData": {"kind": life.kind, "object": str(life.key), "taken at": life.now},
        "traceEvents": [*threads.names(), *events],
    }


class _Threads:
    """Numbers objects as processes and their rows as threads, from 1 in the order of sight."""

    def __init__(self) -> None:
        self._rows: dict[Subject, dict[str, int]] = {}
        self._busy_until: dict[tuple[Subject, str], float] = {}

    def place(self, entry: Entry) -> tuple[int, int]:
        """Return process and thread of an entry."""
        subject = (entry.plural, entry.key)
        rows = self._rows.setdefault(subject, {_EVENTS: 1})
        row = self._row(subject, entry)
        return list(self._rows).index(subject) + 1, rows.setdefault(row, len(rows) + 1)

    def _row(self, subject: Subject, entry: Entry) -> str:
        if isinstance(entry, Saw):
            return _EVENTS
        name = f"passes of {entry.controller}" if isinstance(entry, Ran) else "requests"
        number, row = 1, name
        while self._busy_until.get((subject, row), entry.at) > entry.at:
            number += 1
            row = f"{name} {number}"
        self._busy_until[subject, row] = entry.at + entry.took_s
        return row

    def names(self) -> Iterator[Json]:
        """Yield what the processes and threads are called."""
        for pid, ((plural, key), rows) in enumerate(self._rows.items(), start=1):
            yield _meta("process_name", pid, 0, f"{NOUNS[plural]} {key}")
            for row, tid in rows.items():
                yield _meta("thread_name", pid, tid, row)


def _meta(what: str, pid: int, tid: int, name: str) -> Json:
    return {"name": what, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": {"name": name}}


def _event(entry: Entry, first_s: float, threads: _Threads) -> Json:
    pid, tid = threads.place(entry)
    args: Json
    made: Json = {"ts": max(0.0, (entry.at - first_s) * _US), "pid": pid, "tid": tid}
    match entry:
        case Saw():
            name = f"{entry.type}, {'passed' if entry.passed else 'dropped'}"
            args = {"reason": entry.reason, "resourceVersion": entry.version, "owner": entry.owner}
            return {"name": name, "cat": "event", "ph": "i", "s": "t", **made, "args": args}
        case Ran():
            name, category = f"pass: {entry.outcome}", "pass"
            args = {
                "reasons": ", ".join(entry.reasons),
                "waited_ms": entry.waited_s * 1000.0,
                "failed_before": entry.attempts,
                "next_s": entry.next_s,
                "error": entry.error,
            }
        case Asked():
            name, category = f"{entry.verb} {entry.resource}", "request"
            args = {"code": entry.code, "error": entry.error}
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        **made,
        "dur": max(0.0, entry.took_s * _US),
        "args": args,
    }

"""The life of one object on ``/debug/trace``, as JSON; imported only when it is switched on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.http.server import Answer, Handler, Request, not_found, text
from lean_sandbox.manager.flight import CLAIMS, SANDBOXES, Entry, Subject, TraceBuffer
from lean_sandbox.model.times import format_micro_time
from lean_sandbox.watch.store import Key

PATH: Final = "/debug/trace"
KINDS: Final = {"sandbox": SANDBOXES, "claim": CLAIMS}


class Life(msgspec.Struct, frozen=True):
    """The answer. ``now_s`` is the moment ``now`` on the clock of the entries."""

    kind: str
    key: Key
    now: str
    now_s: float
    # How many entries the ring takes, how many were kept ever, and when its oldest is from.
    most: int
    recorded: int
    oldest_s: float | None
    entries: list[Entry]


def lives(
    recorder: TraceBuffer, clock: Clock, related: Callable[[Subject], Iterable[Subject]]
) -> Handler:
    """Return what answers for ``kind`` (sandbox or claim), ``namespace`` and ``name``."""

    async def handle(request: Request) -> Answer:
        if request.path != PATH:
            return not_found(request)
        query = request.query
        kind = query.get("kind", "")
        plural = KINDS.get(kind)
        if plural is None or not query.get("namespace") or not query.get("name"):
            known = " or ".join(KINDS)
            return text(400, f"say kind ({known}), namespace and name in the query\n")
        key = Key(query["namespace"], query["name"])
        oldest = next(iter(recorder), None)
        life = Life(
            kind=kind,
            key=key,
            now=format_micro_time(clock.now()),
            now_s=clock.monotonic(),
            most=recorder.most,
            recorded=recorder.recorded,
            oldest_s=oldest.at if oldest is not None else None,
            entries=recorder.about((plural, key), related),
        )
        return Answer(200, msgspec.json.encode(life), "application/json")

    return handle

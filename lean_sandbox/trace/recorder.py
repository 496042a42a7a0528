"""Records the last events, reconciles and requests of a controller, which does not know of it.

A ring: the oldest entry is overwritten. A request belongs to the object whose reconcile makes it;
requests outside of reconciles (watches, Events, the Lease) are not kept. Off by default: names of
objects are shown to everybody who can reach the metrics.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias

import anyio
import anyio.lowlevel
import msgspec

from filters import Decision, EventType
from lean_sandbox.clock import Clock
from lean_sandbox.http.server import Answer, Request, not_found, text
from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.kube.transport import Transport
from lean_sandbox.log import as_json
from lean_sandbox.model import names
from lean_sandbox.model.conditions import is_true
from lean_sandbox.model.meta import ObjectMeta, OwnerReference
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import Item
from lean_sandbox.runtime.workers import ReconcileResult
from lean_sandbox.trace.life import (
    ALREADY_READY,
    CLAIMS,
    NOT_READY,
    NOTHING,
    NOUNS,
    PATH,
    PODS,
    READY,
    SANDBOXES,
    Subject,
    TraceEntry,
    table,
)
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

_PLURALS: Final = {noun: plural for plural, noun in NOUNS.items()}
# The kind of the owner in a child's owner reference, and the plural of the children.
_CHILDREN: Final = {CLAIMS: ("SandboxClaim", SANDBOXES), SANDBOXES: ("Sandbox", PODS)}
# Reasons and errors may quote what users wrote.
_LONGEST_TEXT: Final = 200
# A kind of ours and a name.
_LONGEST_OWNER: Final = 280
# Entries that are looked at without a pause, a millisecond, and those that one answer shows.
_PIECE: Final = 2000
_MOST_SHOWN: Final = 2000

_subject: ContextVar[Subject | None] = ContextVar("subject", default=None)


ConditionedEntry: TypeAlias = ClaimEntry | SandboxEntry


class Recorder:
    """The ring, what feeds it, and the handler that answers about one object."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._clock = clock
        self._caches: dict[str, Cache[Any]] = {}
        self.entries: deque[TraceEntry] = deque(maxlen=most)
        # The claims and Sandboxes that are known to be Ready.
        self._ready: set[Subject] = set()
        # One walk at a time, however many ask.
        self._answering = anyio.Lock()

    def follow(
        self,
        caches: Iterable[Cache[Any]],
        controllers: Iterable[Controller[Any]],
        transport: Transport,
    ) -> None:
        """Record what happens in these from now on; to be called before they run."""
        # Companions have caches of their own, with other names and smaller entries.
        for cache in caches:
            name = cache.kind.name
            if name in NOUNS:
                self._caches[name] = cache
                cache.observer = self._event
                if name in (CLAIMS, SANDBOXES):
                    cache.listeners.append(partial(self._condition, name))
        for controller in controllers:
            if controller.cache.kind.name in NOUNS:
                self._follow_reconciles(controller, controller.cache.kind.name)
        transport.observer = self.observe

    def _event(
        self, plural: str, event_type: EventType, row: ObjectMeta, decision: Decision
    ) -> None:
        key = Key(row.namespace, row.name)
        held = self._caches[plural].get(key)
        owner = row.controller
        reason = decision.reason[:_LONGEST_TEXT]
        verdict = "passed" if decision.passed else "dropped"
        if reason.startswith("nothing of ["):
            reason = "nothing that matters changed"
        if event_type is EventType.ADDED and (plural, key) in self._ready:
            reason += ALREADY_READY
        self.entries.append(
            TraceEntry(
                self._clock.monotonic(),
                plural,
                # Texts that the cache holds, or that are interned, cost no further memory.
                held.key if held is not None else key,
                "event",
                sys.intern(f"{event_type}, {verdict}: {reason}"),
                owner=sys.intern(_name_of(owner)) if owner is not None else "",
            )
        )

    def _condition(
        self, plural: str, old: ConditionedEntry | None, new: ConditionedEntry | None
    ) -> None:
        entry = new or old
        assert entry is not None
        subject = (plural, entry.key)
        is_known_ready = subject in self._ready
        if new is None:
            self._ready.discard(subject)
        # A status that is not known just now says nothing.
        elif new.status is not None:
            is_ready = is_true(new.status.conditions, names.READY)
            if is_ready != is_known_ready:
                (self._ready.add if is_ready else self._ready.discard)(subject)
                # An object that was Ready before says so in its first event.
                if old is not None:
                    detail = READY if is_ready else NOT_READY
                    now = self._clock.monotonic()
                    self.entries.append(TraceEntry(now, plural, entry.key, "condition", detail))

    def _follow_reconciles(self, controller: Controller[Any], plural: str) -> None:
        def begun(item: Item[Key]) -> None:
            # A worker keeps its context: what is set here holds until its next reconcile begins.
            _subject.set((plural, item.key))

        def ended(report: ReconcileResult[Key]) -> None:
            began = self._clock.monotonic() - report.took_s
            waited_s = max(0.0, began - report.item.enqueued_at)
            detail = "; ".join(_of_reconcile(controller.name, report, waited_s))
            key = report.item.key
            self.entries.append(TraceEntry(began, plural, key, "reconcile", detail, report.took_s))

        controller.workers.on_begin.append(begun)
        controller.workers.on_end.append(ended)

    def observe(self, record: RequestRecord) -> None:
        """Record a request, if a reconcile made it; an observer for a transport."""
        subject = _subject.get()
        # A watch that a reconcile has started inherits its context and outlives it.
        if subject is None or record.verb in ("list", "watch"):
            return
        plural, key = subject
        began = self._clock.monotonic() - record.latency_s
        detail = f"{record.verb} {record.resource} {record.code or record.error}"
        self.entries.append(
            TraceEntry(began, plural, key, "request", sys.intern(detail), record.latency_s)
        )

    async def about(self, subject: Subject) -> list[TraceEntry]:
        """Return the entries of an object and of those it controls, in the order of time.

        Lets other tasks run between pieces. Of very many entries the latest are returned.
        """
        plural, key = subject
        keys = {key}
        family = {plural: keys}
        kept = list(self.entries)
        while plural in _CHILDREN:
            keys = await self._owned_by(plural, keys, kept)
            _, plural = _CHILDREN[plural]
            family[plural] = keys
        found: deque[TraceEntry] = deque(maxlen=_MOST_SHOWN)
        async for piece in _in_pieces(kept):
            found.extend(one for one in piece if one.key in family.get(one.plural, ()))
        # A reconcile is recorded at its end, but sorted before what happened in it.
        return sorted(found, key=lambda one: (one.at, one.what != "reconcile"))

    async def _owned_by(self, plural: str, keys: set[Key], kept: list[TraceEntry]) -> set[Key]:
        # Events show children that have ended, the caches those whose events are overwritten.
        kind, child = _CHILDREN[plural]
        owners = {(key.namespace, f"{kind}/{key.name}") for key in keys}
        found: set[Key] = set()
        async for piece in _in_pieces(kept):
            found.update(
                one.key
                for one in piece
                if one.plural == child and (one.key.namespace, one.owner) in owners
            )
        cache = self._caches.get(plural)
        for held in filter(None, map(cache.get, keys)) if cache is not None else ():
            owned = self._caches[child].owned_by(held.key.namespace, held.uid)
            found |= {one.key for one in owned}
        return found

    async def handle(self, request: Request) -> Answer:
        """Answer for ``kind``, ``namespace`` and ``name``; ``output=json`` gives the entries."""
        if request.path != PATH:
            return not_found(request)
        query = request.query
        kind = query.get("kind", "")
        key = Key(query.get("namespace", ""), query.get("name", ""))
        plural = _PLURALS.get(kind)
        if plural is None or not all(key):
            known = " or ".join(_PLURALS)
            return text(400, f"say kind ({known}), and namespace and name of an object\n")
        async with self._answering:
            found = await self.about((plural, key))
        if not found:
            return text(404, f"{NOTHING} of {kind} {key}{self._why_nothing()}\n")
        if query.get("output") == "json":
            shown = msgspec.json.format(as_json(found))
            return Answer(200, f"{shown}\n".encode(), "application/json")
        return text(200, table((plural, key), found, self._clock.monotonic(), self._wall_clock_at))

    def _wall_clock_at(self, at: float) -> datetime:
        return self._clock.now() - timedelta(seconds=self._clock.monotonic() - at)

    def _why_nothing(self) -> str:
        most = self.entries.maxlen
        if not self.entries:
            return ": nothing has happened since it started"
        if len(self.entries) == most:
            reach_s = self._clock.monotonic() - self.entries[0].at
            return (
                f": its last {most} entries reach back {reach_s:.0f} s; --trace-entries keeps more"
            )
        return ", and it has forgotten nothing since its start: look at name and namespace"


def _name_of(owner: OwnerReference) -> str:
    # A user may write an owner reference with a name of any length.
    return f"{owner.kind}/{owner.name}"[:_LONGEST_OWNER]


async def _in_pieces(entries: list[TraceEntry]) -> AsyncIterator[list[TraceEntry]]:
    """Yield pieces of a list, and let other tasks run between them."""
    for at in range(0, len(entries), _PIECE):
        yield entries[at : at + _PIECE]
        await anyio.lowlevel.checkpoint()


def _of_reconcile(controller: str, report: ReconcileResult[Key], waited_s: float) -> Iterator[str]:
    yield f"{controller} {report.outcome.value}"
    if report.item.reasons:
        yield f"for {', '.join(report.item.reasons)}"
    yield f"waited {waited_s * 1000.0:.3f} ms"
    if report.item.attempts:
        yield f"failed {report.item.attempts} times before"
    if report.next_s is not None:
        yield f"again in {report.next_s:.3f} s"
    if report.error is not None:
        yield str(report.error)[:_LONGEST_TEXT]

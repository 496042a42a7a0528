"""Watches: what each watcher is to see of every change, and the stream it is sent on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
from aiohttp import web

from lean_sandbox.clock import Clock
from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.http.faults import Faults
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.read.represent import Accepted, Renderer
from lean_sandbox.local.request import AuditEntry
from lean_sandbox.local.store import Collection, Entry, Event

Matches = Callable[[Entry], bool]
Change = tuple[Event, str, Entry]
"""An event, and what one watcher sees of it: type and object."""
BACKLOG: Final = 50_000
"""Events a watcher may lag behind before its connection is cut."""


@dataclass(slots=True)
class WatchPlan:
    """What a watch request asked for, already checked."""

    kind: Kind
    collection: Collection
    form: Accepted
    namespace: str
    matches: Matches | None
    bookmarks: bool
    start: int
    """Version the stream begins at."""
    timeout_s: float
    initial: Sequence[Entry] = ()
    """The present objects, which are sent as if they were new."""
    ends_initial: bool = False
    """Mark the end of the initial events by a bookmark."""
    backlog: Sequence[Event] = ()
    """Events since the version asked for."""
    failure: StatusError | None = None
    """Sent as the only event."""


class Watch:
    """One watcher: its selection, what waits to be sent, and why it has to end."""

    def __init__(self, plan: WatchPlan, transport: asyncio.BaseTransport | None) -> None:
        self.plan = plan
        self._transport = transport
        self._pending: deque[Change] = deque()
        self.wake = anyio.Event()
        self.has_begun = False
        """Something has been sent: the columns of a table come once, with the first event."""
        self.is_cut = False
        self.is_over = False
        """The stream ends in good order as soon as nothing waits to be sent."""
        self.is_bookmark_due = False
        """A bookmark is to be sent at once, whatever the interval."""

    def deliver(self, event: Event) -> None:
        """Take in one change; called while the change is made, so it must not block."""
        if self.is_cut or event.version <= self.plan.start:  # asked for a version still to come
            return
        chosen = self.choose(event)
        if chosen is None:
            return
        self._pending.append((event, *chosen))
        if len(self._pending) > BACKLOG:
            self.cut()
        self.wake.set()

    def choose(self, event: Event) -> tuple[str, Entry] | None:
        """Return what this watcher sees of a change: type and object, None for nothing.

        An object that begins to match is ADDED, one that ceases to match is DELETED and shown as
        it last matched.
        """
        plan = self.plan
        if plan.namespace and event.entry.namespace != plan.namespace:
            return None
        if plan.matches is None:
            return event.type, event.entry
        did = event.prev is not None and plan.matches(event.prev)
        if event.type == "DELETED":
            return ("DELETED", event.entry) if did else None
        does = plan.matches(event.entry)
        if does:
            return ("MODIFIED" if did else "ADDED"), event.entry
        return ("DELETED", event.left()) if did else None

    def take(self, most: int | None = None) -> list[Change]:
        """Return and forget what waits to be sent, at most as many as given."""
        count = len(self._pending) if most is None else min(most, len(self._pending))
        return [self._pending.popleft() for _ in range(count)]

    async def woken(self) -> None:
        """Wait for whatever comes next."""
        self.wake = anyio.Event()
        await self.wake.wait()

    def end(self) -> None:
        """End the stream after what waits to be sent."""
        self.is_over = True
        self.wake.set()

    def cut(self) -> None:
        """Break the connection without a word, also while its client does not read."""
        self.is_cut = True
        self._pending.clear()
        self.wake.set()
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()


class Watches:
    """All open watches."""

    def __init__(
        self,
        renderer: Renderer,
        clock: Clock,
        version: Callable[[], int],
        *,
        faults: Faults,
        bookmark_interval_s: float,
    ) -> None:
        self._version = version
        self._faults = faults
        faults.wake = self._wake
        self._renderer = renderer
        self._clock = clock
        self._interval_s = bookmark_interval_s
        # In the order in which they were opened.
        self._open: dict[Watch, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def drop_all(self) -> int:
        """Cut every watch connection; return how many there were."""
        for watch in list(self._open):
            watch.cut()
        return len(self._open)

    def _wake(self, plural: str) -> None:
        for watch in self._open:
            if watch.plan.kind.plural == plural:
                watch.wake.set()

    def bookmark_all(self) -> None:
        """Send a bookmark of the store's newest version to every watcher that takes one.

        Every change up to it has been delivered to the watchers already, so a watcher that sees the
        bookmark has seen all.
        """
        for watch in self._open:
            watch.is_bookmark_due = True
            watch.wake.set()

    async def serve(
        self, request: web.BaseRequest, plan: WatchPlan, audit: AuditEntry
    ) -> web.StreamResponse:
        """Stream events until the client leaves, the timeout passes, or the watch is cut."""
        watch = Watch(plan, request.transport)
        # Registered before the first await: no change can slip between the state and the stream.
        plan.collection.watchers[watch.deliver] = watch.end
        self._open[watch] = None
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            await self._run(response, watch, audit)
            if not watch.is_cut:
                await response.write_eof()
        except ConnectionError:
            pass  # the client left; nobody is there to be told
        finally:
            del plan.collection.watchers[watch.deliver]
            del self._open[watch]
        return response

    async def _run(self, response: web.StreamResponse, watch: Watch, audit: AuditEntry) -> None:
        plan = watch.plan
        clock = self._clock
        end = clock.monotonic() + plan.timeout_s
        next_bookmark = clock.monotonic() + self._interval_s

        async def send(data: bytes) -> None:
            audit.response_bytes += len(data)
            await response.write(data)

        while self._faults.events_held(plan.kind.plural) is not None and not watch.is_cut:
            await watch.woken()
        if watch.is_cut:
            return
        if opening := self._opening(watch):
            await send(opening)
        if plan.failure is not None:
            return
        sent_while_held = 0
        while not watch.is_cut:
            held = self._faults.events_held(plan.kind.plural)
            if held is None:
                sent_while_held = 0
            batch = watch.take(None if held is None else held.allowed - sent_while_held)
            if batch:
                sent_while_held += len(batch)
                await send(self._lines(watch, batch))
            now = clock.monotonic()
            if batch and (held is not None or now < end):
                continue
            if held is not None:
                # Nothing may be sent, not even that the stream ends in good order.
                await watch.woken()
            elif watch.is_over or now >= end:
                return
            elif plan.bookmarks and (watch.is_bookmark_due or now >= next_bookmark):
                watch.is_bookmark_due = False
                next_bookmark = now + self._interval_s
                # One that was opened at a version of the future gets none before that is reached.
                # Nothing waits to be sent, so the stream stands where the store does.
                if self._version() >= plan.start:
                    await send(self._renderer.bookmark(plan.kind, self._version(), plan.form))
            else:
                watch.wake = anyio.Event()
                until = min(end, next_bookmark) if plan.bookmarks else end
                await clock.wait(watch.wake, until - now)

    def _opening(self, watch: Watch) -> bytes:
        plan = watch.plan
        renderer = self._renderer
        if plan.failure is not None:
            return b'{"type":"ERROR","object":%s}\n' % plan.failure.body()
        parts = [
            renderer.event(plan.kind, "ADDED", entry, plan.form, first=not position)
            for position, entry in enumerate(plan.initial)
        ]
        watch.has_begun = bool(parts)
        if plan.ends_initial:
            parts.append(renderer.bookmark(plan.kind, plan.start, plan.form, ends_initial=True))
        chosen = ((event, watch.choose(event)) for event in plan.backlog)
        batch = [(event, *found) for event, found in chosen if found is not None]
        return b"".join(parts) + self._lines(watch, batch)

    def _lines(self, watch: Watch, batch: list[Change]) -> bytes:
        plan = watch.plan
        lines = [
            self._renderer.shared(plan.kind, change, plan.form, first=not (watch.has_begun or at))
            for at, change in enumerate(batch)
        ]
        watch.has_begun |= bool(lines)
        return b"".join(lines)

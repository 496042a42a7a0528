"""A reflector lists and watches one kind to keep its cache up to date.

Without a version it lists, by pages. With a version it watches until the stream ends, and resumes
from the last version it saw. When that version is too old, it lists again.

Versions go backwards when etcd is restored from a backup. A reflector notices that by an event or
bookmark below the version it watched from, by the error "too large resource version", or, after a
watch without any event, by asking the server for its version. In each case it lists again. A list
names no version, and so contains every write made before it was requested, even when an API server
lags behind another. A list below the versions known before it began therefore comes from a restored
store, and replaces the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio

from lean_sandbox.clock import Clock
from lean_sandbox.kube import errors
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.http1 import LineSplitter
from lean_sandbox.turns import RANK, Rank
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.decode import EventDecoder, WentBackError
from lean_sandbox.watch.failures import Failure, Failures, why_unserved
from lean_sandbox.watch.kind import Entry, Representation
from lean_sandbox.watch.lister import Lister
from lean_sandbox.watch.source import Source
from lean_sandbox.watch.states import (
    SERVER_TIMEOUT_S,
    SILENCE_S,
    TIMEOUT_SPREAD,
    Listed,
    Listing,
    State,
    Watching,
)

E = TypeVar("E", bound=Entry)

# A watch that ends before this age, or a version that expires this soon after a list, counts as a
# failure, so that a server that closes at once is not asked in a loop.
_HASTY_END_S = 5.0
# A watch that lived for this long starts the pauses over. Load balancers cut what is idle for less
# than the minute between two bookmarks.
_HEALTHY_S = 30.0
# The time from a list to the next one, which is compared with the cache; up to a tenth longer.
_RESYNC_S = 36_000.0
# How often to try a kind that the server does not know: its definition may be applied soon.
_SERVED_AGAIN_S = 5.0


class Reflector(Generic[E]):
    """Keeps the cache of one kind up to date, for one namespace or for all.

    ``run`` never returns and raises nothing but cancellation. Failures, bugs included, are logged
    and counted, and the attempt is repeated with backoff; ``problem`` is the last failure, ``None``
    while the watch works. ``synced`` is set after the first complete list.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache[E],
        *,
        clock: Clock,
        uniform: Callable[[], float],
        namespace: str | None = None,
        field_selector: str = "",
        shard_selector: str = "",
        page_size: int = 250,
    ) -> None:
        """A page of a list has at most ``page_size`` objects; see :class:`.source.Source`."""
        self._resource = cache.kind.resource
        self._clock = clock
        self._uniform = uniform
        self.source = Source(
            client,
            cache.kind,
            clock=clock,
            namespace=namespace,
            field_selector=field_selector,
            shard_selector=shard_selector,
        )
        self._state: State = Listing(compare_at=math.inf)
        self.synced = anyio.Event()
        #: Whether the server has refused the first list for want of a right.
        self.is_forbidden = False
        self._decoder = EventDecoder(cache, namespace=namespace)
        self._lister = Lister(self.source, cache, self._decoder, page_size)
        self._log = self._decoder.log
        self._failures = Failures(clock, uniform, self._log)
        #: How often each step was done, by the names in ``STEPS``.
        self.steps = self._decoder.steps

    @property
    def problem(self) -> str | None:
        """The last failure, ``None`` while the watch works."""
        return self._failures.problem

    async def run(self) -> None:
        """List and watch until cancelled."""
        # Nothing is reconciled before the first list is complete.
        RANK.set(Rank.CLIENT)
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._guard)
            while True:
                await self._attempt()

    def list_anew(self) -> None:
        """Begin anew with a list of full objects, as at the start; ``synced`` is set after it."""
        self.synced = anyio.Event()
        if isinstance(self._state, Watching):
            self._state.scope.cancel()
        self._state = Listing(compare_at=self._clock.monotonic())

    def _list_again(self) -> None:
        self._state = Listing(self._state.compare_at)
        self.steps["relist"] += 1

    async def _attempt(self) -> None:
        try:
            failure = await self._list_and_watch()
        except Exception as error:  # noqa: BLE001 -- a bug here must not end the other watches
            failure = self._after(error)
        if failure is not None:
            self.steps["failure"] += 1
            await self._failures.pause(failure)

    async def _list_and_watch(self) -> Failure | None:
        while not isinstance(self._state, Listed) or self._is_resync_due:
            await self._list()
        began_at = self._clock.monotonic()
        received_before = self.source.received_bytes
        if not await self._watch():
            return None
        if self._clock.monotonic() - began_at < _HASTY_END_S:
            return Failure("the server ended the watch at once")
        if self.source.received_bytes == received_before:
            # A watch from a version that the server has yet to reach is silent and ends in time, as
            # any other does. Where bookmarks arrive, this LIST of one object is not needed.
            self._decoder.check_list(await self.source.page(1))
        self._failures.recovered()
        self._failures.start_over()
        await self._clock.sleep(0.1 * self._uniform())
        return None

    def _after(self, error: Exception) -> Failure | None:
        """Enter the state that follows an error; return what has failed, ``None`` for nothing."""
        match error:
            case errors.Gone() | WentBackError():
                # The server does not have the version: only a list helps, no retry.
                state = self._state
                self._list_again()
                if isinstance(state, Listed) and self._clock.monotonic() - state.at >= _HASTY_END_S:
                    return None
            case errors.NotAcceptable():
                if error.asked.verb == "watch" and self.source.can_fall_back:
                    self._fall_back(str(error))
                    return None
            case errors.NotServed() | errors.NotFound():
                # Without the kind there are no objects, and the version means nothing.
                self._state = Listing(self._state.compare_at)
                problem = why_unserved(self._resource) or str(error)
                return Failure(problem, at_most_s=_SERVED_AGAIN_S)
            case errors.ControlPlaneError():
                return self._after_refusal(error)
            case _:
                self._log.exception("watch_panicked")
                return Failure(f"{type(error).__name__}: {error}"[:200])
        return Failure(str(error))

    def _after_refusal(self, error: errors.ControlPlaneError) -> Failure:
        if isinstance(error, errors.ApiError) and error.has_cause("ResourceVersionTooLarge"):
            self._list_again()
        if isinstance(error, errors.TransportError) and self._decoder.version is not None:
            self._state = Listing(compare_at=self._clock.monotonic())
        self.is_forbidden = isinstance(error, errors.Forbidden)
        return Failure(str(error), at_least_s=error.retry_after_s or 0.0)

    @property
    def _is_resync_due(self) -> bool:
        return self._clock.monotonic() >= self._state.compare_at

    def _fall_back(self, why: str) -> None:
        refused = self.source.fall_back()
        self.steps["fallback"] += 1
        self._log.warning(
            "representation_refused",
            refused=refused.value,
            using=self.source.representation.value,
            why=why,
        )

    async def _list(self) -> None:
        state = self._state
        if not isinstance(state, Listing):
            state = self._state = Listing(self._state.compare_at)
        await self._lister.read(state, initial=not self.synced.is_set(), resync=self._is_resync_due)
        if self._state is not state:
            # Another list was asked for meanwhile.
            return
        spread = 1.0 + TIMEOUT_SPREAD * self._uniform()
        now = self._clock.monotonic()
        self._state = Listed(at=now, resync_at=now + spread * _RESYNC_S)
        self.is_forbidden = False
        self.synced.set()

    async def _watch(self) -> bool:
        """Apply the lines of a watch until it ends; return whether the server ended it.

        Raises RequestTimeout for a watch that is silent for too long.
        """
        listed = self._state
        assert isinstance(listed, Listed)
        self._decoder.begin_watch()
        self.steps["watch"] += 1
        with anyio.CancelScope() as scope:
            now = self._clock.monotonic()
            watching = self._state = Watching(listed, scope, now, self.steps["bookmark"])
            try:
                await self._receive(watching)
            finally:
                if self._state is watching:
                    self._state = listed
        if scope.cancelled_caught and self._is_silent(watching):
            longest_s = watching.longest_silence_s(self.steps["bookmark"])
            problem = f"the watch of {self._resource.plural} was silent for {longest_s:g} s"
            raise errors.RequestTimeout(problem)
        return not scope.cancelled_caught

    async def _receive(self, watching: Watching) -> None:
        is_full = self.source.representation is Representation.FULL
        apply = self._decoder.full_line if is_full else self._decoder.line
        splitter = LineSplitter()
        timeout_s = SERVER_TIMEOUT_S * (1.0 + TIMEOUT_SPREAD * self._uniform())
        async with self.source.watch(self._decoder.version, timeout_s) as response:
            watching.listed.lost_at = math.inf
            self.source.note(b"")
            if self.problem is not None:
                self._group.start_soon(self._confirm, watching)

            def take(chunk: bytes) -> None:
                self.source.note(chunk)
                for line in splitter.feed(chunk):
                    apply(line)

            try:
                await response.feed(take)
            finally:
                now = watching.listed.lost_at = self._clock.monotonic()
                if now - watching.began_at >= _HEALTHY_S:
                    self._failures.start_over()

    async def _confirm(self, watching: Watching) -> None:
        await self._clock.sleep(_HASTY_END_S)
        if self._state is watching:
            self._failures.recovered()

    async def _guard(self) -> None:
        """Cancel a watch that was silent for too long, or end it when a resync is due."""
        while True:
            await self._clock.sleep(SILENCE_S / 3)
            state = self._state
            if isinstance(state, Watching) and (self._is_silent(state) or self._is_resync_due):
                state.scope.cancel()

    def _is_silent(self, watching: Watching) -> bool:
        since = max(self.source.heard_at, watching.began_at)
        longest_s = watching.longest_silence_s(self.steps["bookmark"])
        return self._clock.monotonic() - since >= longest_s

"""When each key of a work queue may run: after its delay, and then in its turn."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

import anyio
import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.turns import Rank, Slots

K = TypeVar("K", bound=Hashable)

# Stale entries of the heap are skipped later; with more than this many it is rebuilt.
_LEFTOVERS_TOLERATED: Final = 64


class Waiters:
    """Tasks that wait to be called; the last to wait is the first to be called."""

    def __init__(self) -> None:
        self._events: list[anyio.Event] = []

    def __bool__(self) -> bool:
        return bool(self._events)

    async def wait(self) -> None:
        """Wait to be called. If that is cancelled when it has been called, another is."""
        called = anyio.Event()
        self._events.append(called)
        try:
            await called.wait()
        except BaseException:
            if called.is_set():
                self.call_one()
            else:
                self._events.remove(called)
            raise

    def call_one(self) -> None:
        """Call one task, if there is any."""
        if self._events:
            self._events.pop().set()


class Scheduled(msgspec.Struct, Generic[K], gc=False, eq=False):
    """A key that waits: among the delays until it is ``due``, then in the line of its rank."""

    key: K
    rank: Rank
    #: Monotonic, in seconds.
    due: float
    #: Number of its entry among the delays, 0 without one; its other entries are stale.
    ticket: int = 0


class Delays(Generic[K]):
    """A heap by due times; adding or taking costs O(log n) at worst."""

    def __init__(self) -> None:
        # Time, ticket, and what waits. An entry whose ticket is another than that is stale.
        self._heap: list[tuple[float, int, Scheduled[K]]] = []
        self._tickets = itertools.count(1)
        self._count = 0

    def add(self, one: Scheduled[K]) -> bool:
        """Let something wait until it is due; return whether it is the first now."""
        one.ticket = next(self._tickets)
        self._count += 1
        heap = self._heap
        heapq.heappush(heap, (one.due, one.ticket, one))
        if len(heap) > 2 * self._count + _LEFTOVERS_TOLERATED:
            heap[:] = [entry for entry in heap if entry[2].ticket == entry[1]]
            heapq.heapify(heap)
        return heap[0][2] is one

    def remove(self, one: Scheduled[K]) -> None:
        """Take something out whose time may not have come; its entry stays in the heap, stale."""
        one.ticket = 0
        self._count -= 1

    @property
    def first_due(self) -> float | None:
        """When the first is due."""
        heap = self._heap
        while heap and heap[0][2].ticket != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now: float) -> Iterator[Scheduled[K]]:
        """Take out what is due, one after the other in the order of due times."""
        while (due := self.first_due) is not None and due <= now:
            first = self._heap[0][2]
            self.remove(first)
            yield first


class Schedule(Generic[K]):
    """The keys that may not run yet, those that may, and how many are worked on.

    ``group_of`` returns the group of a key. ``waiting`` are the tasks that wait for a key: one is
    called for each that may run. At most ``most_running`` keys are worked on at once, and an eighth
    more of other groups.
    """

    def __init__(
        self,
        clock: Clock,
        group_of: Callable[[K], Hashable],
        waiting: Waiters,
        most_running: int,
    ) -> None:
        self._clock = clock
        self._group_of = group_of
        self._waiting = waiting
        # The keys that are worked on, and those that may run now.
        self._turns: Slots[K] = Slots(most_running, most_running + max(1, most_running // 8))
        # The keys that may not run yet.
        self._delays: Delays[K] = Delays()
        # Set when the first delay now ends earlier than keep_time knows.
        self._is_earlier = anyio.Event()

    @property
    def depths(self) -> dict[Rank, int]:
        """How many keys may run now, by rank."""
        return {rank: self._turns.waiting(rank) for rank in Rank}

    @property
    def is_idle(self) -> bool:
        """Whether no key is worked on, and none may run now."""
        return self._turns.is_idle

    def place(self, one: Scheduled[K], now: float) -> None:
        """Let a key wait until it is due, or line it up if it is."""
        if one.due > now:
            if self._delays.add(one):
                self._is_earlier.set()
            return
        # Keys that have fallen due since the last check come first.
        self.release_due(now)
        self._line_up(one)

    def leave(self, one: Scheduled[K]) -> None:
        """Take a key out, which waits; :meth:`place` puts it back."""
        if one.ticket:
            self._delays.remove(one)
        else:
            self._turns.leave(one.rank, self._group_of(one.key), one.key)

    def release_due(self, now: float) -> None:
        """Line up the keys whose time has come."""
        for one in self._delays.take_due(now):
            self._line_up(one)

    def take_next(self, now: float) -> K | None:
        """Return the key that goes first, which is worked on from now; ``None`` if none may run."""
        self.release_due(now)
        if (chosen := self._turns.next()) is None:
            return None
        self._turns.take(*chosen)
        # The last CLIENT has left the line: the share of SPARE grows.
        if chosen[0] is Rank.CLIENT and not self._turns.waiting(Rank.CLIENT):
            free = self._turns.spare - self._turns.held[Rank.SPARE]
            for _ in range(min(self._turns.waiting(Rank.SPARE), free)):
                self._waiting.call_one()
        return chosen[2]

    def give_back(self, rank: Rank, key: K) -> None:
        """Note that a key is not worked on any more; ``rank`` is that at which it was taken."""
        self._turns.give_back(rank, self._group_of(key))

    async def keep_time(self, closed: anyio.Event) -> None:
        """Line up each key as its time comes, until ``closed`` is set and :meth:`wake` called."""
        while not closed.is_set():
            now = self._clock.monotonic()
            self.release_due(now)
            self._is_earlier = anyio.Event()
            due = self._delays.first_due
            await self._clock.wait(self._is_earlier, None if due is None else due - now)

    def wake(self) -> None:
        """Let :meth:`keep_time` check again at once."""
        self._is_earlier.set()

    def _line_up(self, one: Scheduled[K]) -> None:
        self._turns.join(one.rank, self._group_of(one.key), one.key)
        if self._waiting and self._turns.next() is not None:
            self._waiting.call_one()

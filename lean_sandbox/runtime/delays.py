"""What waits until its time has come."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

import msgspec

# Stale entries of the heap are skipped later; with more than this many it is rebuilt.
_LEFTOVERS_TOLERATED: Final = 64


class Delayed(msgspec.Struct, gc=False, eq=False, kw_only=True):
    """What may wait among delays; ``due`` is monotonic, in seconds."""

    due: float
    #: Number of its entry among the delays, 0 without one; its other entries are stale.
    ticket: int = 0


D = TypeVar("D", bound=Delayed)


class Delays(Generic[D]):
    """A heap by due times; adding or taking costs O(log n) at worst."""

    def __init__(self) -> None:
        # Time, ticket, and what waits. An entry whose ticket is another than that is stale.
        self._heap: list[tuple[float, int, D]] = []
        self._tickets = itertools.count(1)
        self._count = 0

    def add(self, one: D) -> bool:
        """Let something wait until it is due; return whether it is the first now."""
        one.ticket = next(self._tickets)
        self._count += 1
        heap = self._heap
        heapq.heappush(heap, (one.due, one.ticket, one))
        if len(heap) > 2 * self._count + _LEFTOVERS_TOLERATED:
            heap[:] = [entry for entry in heap if entry[2].ticket == entry[1]]
            heapq.heapify(heap)
        return heap[0][2] is one

    def remove(self, one: D) -> None:
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

    def take_due(self, now: float) -> Iterator[D]:
        """Take out what is due, one after the other in the order of due times."""
        while (due := self.first_due) is not None and due <= now:
            first = self._heap[0][2]
            self.remove(first)
            yield first

"""Many timers and one waiter: a heap of due times on an injected clock."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio

from lean_sandbox.clock import Clock

T = TypeVar("T")


class Timers(Generic[T]):
    """Rings for things at their time.

    A timer is known by its number; the owner of a thing keeps the number of the one that counts,
    and lets older ones ring unheard.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, T]] = []
        self._numbers = itertools.count(1)
        self._wake = anyio.Event()

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, thing: T, delay_s: float) -> int:
        """Ring for ``thing`` in ``delay_s`` seconds; return the timer's number, never zero."""
        number = next(self._numbers)
        due = self._clock.monotonic() + max(0.0, delay_s)
        heapq.heappush(self._heap, (due, number, thing))
        if self._heap[0][1] == number:
            self._wake.set()
        return number

    async def run(self, ring: Callable[[T, int], None]) -> None:
        """Call ``ring`` with each thing and its timer's number when due, until cancelled."""
        while True:
            # Set anew before looking: a timer that comes in between is seen or wakes.
            self._wake = anyio.Event()
            now = self._clock.monotonic()
            while self._heap and self._heap[0][0] <= now:
                _, number, thing = heapq.heappop(self._heap)
                ring(thing, number)
            await self._clock.wait(self._wake, self._heap[0][0] - now if self._heap else None)

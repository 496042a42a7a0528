"""Debounce with a bound: wait for a quiet moment, but never longer than a cap.

A pure object: the caller brings the time, as seconds on any clock that does not go backwards.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Debounce(Generic[K]):
    """A trailing window with a hard cap from the first offer.

    A key is due ``window_s`` after its last offer, at the latest ``cap_s`` after its first: offers
    that never pause delay a key but cannot starve it. The first offer after a key came due starts
    anew. Costs O(log n) an offer, memory for pending keys only.
    """

    __slots__ = ("_cap_s", "_heap", "_offers", "_pending", "_window_s")

    def __init__(self, window_s: float, cap_s: float) -> None:
        """Start empty. Raises ValueError unless ``0 <= window_s <= cap_s``."""
        if not 0 <= window_s <= cap_s:
            raise ValueError("the window must lie between zero and the cap")
        self._window_s = window_s
        self._cap_s = cap_s
        # By key: when it is due, and the latest that this may become.
        self._pending: dict[K, tuple[float, float]] = {}
        # One entry for each pending key, at a time not after its due time: an offer that moves a
        # key out leaves the heap alone, and the entry is put right when it reaches the top. The
        # number in the middle keeps keys from being compared.
        self._heap: list[tuple[float, int, K]] = []
        self._offers = 0

    def __len__(self) -> int:
        return len(self._pending)

    def offer(self, key: K, now: float) -> float:
        """Take a key in, or push it out; return the time at which it is due."""
        due = now + self._window_s
        held = self._pending.get(key)
        if held is not None:
            earlier, latest = held
            due = max(earlier, min(due, latest))
            self._pending[key] = (due, latest)
            return due
        self._offers += 1
        self._pending[key] = (due, now + self._cap_s)
        heapq.heappush(self._heap, (due, self._offers, key))
        return due

    def due(self, now: float) -> list[K]:
        """Return the keys that are due and let go of them, the earliest first."""
        keys = []
        while (next_due := self.next_due()) is not None and next_due <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._pending[key]
            keys.append(key)
        return keys

    def next_due(self) -> float | None:
        """Return when the next key is due, ``None`` when nothing is pending."""
        while self._heap:
            time, number, key = self._heap[0]
            due, _ = self._pending[key]
            if due <= time:
                return time
            heapq.heapreplace(self._heap, (due, number, key))
        return None

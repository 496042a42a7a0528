"""Debounce with a bound: wait for a quiet moment, but never longer than a cap.

A pure object: the caller brings the time, as seconds on any clock that does not go backwards.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Debounce"]

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Pending:
    deadline: float
    due: float
    ticket: int


class Debounce(Generic[K]):
    """A trailing window with a hard cap from the first offer.

    A key is due ``window_s`` after its last offer, at the latest ``cap_s`` after its first: offers
    that never pause delay a key but cannot starve it. The first offer after a key came due starts
    anew. Costs O(log n) an offer, memory for pending keys only.
    """

    __slots__ = ("_cap_s", "_heap", "_pending", "_ticket", "_window_s")

    def __init__(self, window_s: float, cap_s: float) -> None:
        """Start empty. Raises ValueError unless ``0 <= window_s <= cap_s``."""
        if not 0 <= window_s <= cap_s:
            raise ValueError("the window must lie between zero and the cap")
        self._window_s = window_s
        self._cap_s = cap_s
        self._pending: dict[K, _Pending] = {}
        # One entry for each pending key, at a time not after its due time: an offer that moves a
        # key out leaves the heap alone, and the entry is put right when it reaches the top.
        self._heap: list[tuple[float, int, K]] = []
        self._ticket = 0

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, key: object) -> bool:
        return key in self._pending

    def offer(self, key: K, now: float) -> float:
        """Take a key in, or push it out; return the time at which it is due."""
        pending = self._pending.get(key)
        due = now + self._window_s
        if pending is not None:
            pending.due = max(pending.due, min(due, pending.deadline))
            return pending.due
        self._ticket += 1
        self._pending[key] = _Pending(now + self._cap_s, due, self._ticket)
        heapq.heappush(self._heap, (due, self._ticket, key))
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
            time, ticket, key = self._heap[0]
            pending = self._pending.get(key)
            if pending is None or pending.ticket != ticket:
                heapq.heappop(self._heap)
            elif pending.due > time:
                heapq.heapreplace(self._heap, (pending.due, ticket, key))
            else:
                return time
        return None

    def discard(self, key: K) -> bool:
        """Let go of a key before it is due; return whether it was pending."""
        if self._pending.pop(key, None) is None:
            return False
        if len(self._heap) > 2 * len(self._pending) + 64:
            # Keys that are offered and discarded all the time must not pile up.
            self._heap = [
                (pending.due, pending.ticket, held) for held, pending in self._pending.items()
            ]
            heapq.heapify(self._heap)
        return True

"""Debounce with a bound: wait for a quiet moment, but never longer than a cap."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Debounce(Generic[K]):
    """A trailing window with a hard cap from the first offer.

    A key is due ``window_s`` after its last offer, at the latest ``cap_s`` after its first: offers
    that never pause delay a key but cannot starve it. The first offer after a key came due starts
    anew. Only pending keys take memory; ``due`` and ``next_due`` look at all of them. ``now`` is in
    seconds of any clock that does not go backwards.
    """

    __slots__ = ("_cap_s", "_pending", "_window_s")

    def __init__(self, window_s: float, cap_s: float) -> None:
        """Start empty. Raises ValueError unless ``0 <= window_s <= cap_s``."""
        if not 0 <= window_s <= cap_s:
            raise ValueError("the window must lie between zero and the cap")
        self._window_s = window_s
        self._cap_s = cap_s
        # By key: when it is due, and the latest that this may become.
        self._pending: dict[K, tuple[float, float]] = {}

    def offer(self, key: K, now: float) -> float:
        """Add a key, or postpone it; return the time at which it is due."""
        due = now + self._window_s
        earlier, latest = self._pending.get(key, (due, now + self._cap_s))
        due = max(earlier, min(due, latest))
        self._pending[key] = (due, latest)
        return due

    def due(self, now: float) -> list[K]:
        """Remove and return the keys that are due, the earliest first."""
        found = [key for key, (due, _) in self._pending.items() if due <= now]
        found.sort(key=lambda key: self._pending[key][0])
        for key in found:
            del self._pending[key]
        return found

    def next_due(self) -> float | None:
        """Return when the next key is due, ``None`` when nothing is pending."""
        return min((due for due, _ in self._pending.values()), default=None)

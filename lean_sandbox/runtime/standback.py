"""Standing back: work that nobody waits for lets work go first that somebody does.

Bounded for each key, so that a steady stream of urgent work delays the rest and never starves it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from lean_sandbox.clock import Clock

K = TypeVar("K", bound=Hashable)


class StandBack(Generic[K]):
    """Tells which keys have to wait while ``is_busy`` says that something more urgent runs.

    ``longest_s``: a key waits no longer than this from the first time it was held back. Then it is
    let through once, and the next wait begins anew.
    """

    def __init__(self, is_busy: Callable[[], bool], clock: Clock, *, longest_s: float) -> None:
        self._is_busy = is_busy
        self._clock = clock
        self._longest_s = longest_s
        self._since: dict[K, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def must_wait(self, key: K) -> bool:
        """Return whether ``key`` has to come back later."""
        if not self._is_busy():
            self._since.pop(key, None)
            return False
        now = self._clock.monotonic()
        if now - self._since.setdefault(key, now) < self._longest_s:
            return True
        del self._since[key]
        return False

    def forget(self, key: K) -> None:
        """Drop a key that is no more."""
        self._since.pop(key, None)

"""How fast a pool is refilled: the hold after a drop, the token bucket, and groups of requests.

The two objects belong to one pool and one process. Moments are passed in, in seconds of a monotonic
clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple


def slow_start_groups(total: int, initial: int = 1) -> Iterator[int]:
    """Yield the sizes of the groups in which ``total`` requests are sent: 1, 2, 4... and the rest.

    A group runs in parallel and whole; after one with an error no further one starts.
    """
    size = initial
    while total > 0:
        group = min(size, total)
        yield group
        total -= group
        size *= 2


def creation_deficit(desired: int, total: int, batch_size: int) -> int:
    """Return how many members one pass may create; ``total`` counts the terminating ones too."""
    return max(0, min(desired - total, batch_size))


class ReplenishHold:
    """Puts refilling off for a while after members left the pool; a delay <= 0 never does."""

    __slots__ = ("_defer_until_s", "_delay_s", "_last_members")

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        # None before the first look: an initial fill or a restart is no drop.
        self._last_members: int | None = None
        self._defer_until_s: float | None = None

    def observe(self, current: int, desired: int, now_s: float) -> float:
        """Note the number of active members and return the seconds still to wait, 0 for none."""
        if self._delay_s <= 0:
            return 0.0
        last, self._last_members = self._last_members, current
        if current >= desired:
            self._defer_until_s = None
        elif last is not None and current < last:
            self._defer_until_s = now_s + self._delay_s
        if self._defer_until_s is None:
            return 0.0
        return max(0.0, self._defer_until_s - now_s)

    def created(self, count: int) -> None:
        """Note that members were created, so that losing them again counts as a drop."""
        if self._last_members is not None:
            self._last_members += count


class Grant(NamedTuple):
    """How many creates are allowed now; when none, how long until one is."""

    granted: int
    wait_s: float = 0.0


class TokenBucket:
    """Limits creates per second; a rate of 0 grants everything. Full at first use."""

    __slots__ = ("_capacity", "_filled_at_s", "_rate", "_tokens")

    def __init__(self, rate: float) -> None:
        if not (math.isfinite(rate) and rate >= 0):
            raise ValueError("the refill rate must be finite and not negative")
        self._rate = rate
        self._capacity = max(1.0, rate)
        self._tokens = self._capacity
        self._filled_at_s: float | None = None

    def take(self, wanted: int, now_s: float) -> Grant:
        """Take up to ``wanted`` tokens."""
        if self._rate == 0 or wanted <= 0:
            return Grant(max(0, wanted))
        elapsed_s = 0.0 if self._filled_at_s is None else max(0.0, now_s - self._filled_at_s)
        self._filled_at_s = now_s
        self._tokens = min(self._capacity, self._tokens + elapsed_s * self._rate)
        # A sum of fractions that misses a whole token by rounding is that token.
        granted = min(wanted, math.floor(self._tokens + 1e-9))
        self._tokens = max(0.0, self._tokens - granted)
        if granted:
            return Grant(granted)
        return Grant(0, math.ceil((1 - self._tokens) / self._rate * 1e9) / 1e9)

    def give_back(self, count: int) -> None:
        """Return tokens of creates that were never tried; those of failed ones are spent."""
        if self._rate:
            self._tokens = min(self._capacity, self._tokens + count)

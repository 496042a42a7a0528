"""How many things may be done a second, where users set that."""

from __future__ import annotations

import math
from typing import Final

# A sum of fractions that misses a whole token by rounding is that token.
_ROUNDING: Final = 1e-9
# Thirty years: with a smaller rate, times would be infinite.
_LONGEST_S: Final = 1e9


class TokenBucket:
    """Tokens that flow in at ``rate`` a second, ``burst`` at most; full at first.

    A rate of 0 grants everything. Without a ``burst`` the bucket holds what a second brings, at
    least one. Times are monotonic, in seconds.
    """

    def __init__(self, rate: float, burst: float = 0.0) -> None:
        self._capacity = max(1.0, burst or rate)
        #: Seconds between two tokens, 0 without a limit.
        self.interval_s = min(1.0 / rate, _LONGEST_S) if rate else 0.0
        # When the bucket is full again, if nothing is taken until then.
        self._full_at = -math.inf

    def wait_s(self, now: float) -> float:
        """Return the seconds until there is a token; 0 if there is one."""
        missing = 1.0 - self._tokens(now)
        return missing * self.interval_s if missing > _ROUNDING else 0.0

    def take(self, wanted: int, now: float) -> tuple[int, float]:
        """Take up to ``wanted`` tokens; return how many, and for none how long until one."""
        if not self.interval_s:
            return wanted, 0.0
        granted = min(wanted, math.floor(self._tokens(now) + _ROUNDING))
        if granted <= 0:
            return 0, self.wait_s(now)
        self._full_at = max(self._full_at, now) + granted * self.interval_s
        return granted, 0.0

    def give_back(self, count: int) -> None:
        """Return tokens that were not used."""
        self._full_at -= count * self.interval_s

    def _tokens(self, now: float) -> float:
        if not self.interval_s:
            return self._capacity
        return self._capacity - max(0.0, self._full_at - now) / self.interval_s

"""Pauses between attempts to list or watch.

Jittered exponential, 0.8 s doubling to 30 s; back to the start once the peer has been healthy for
two minutes. The jitter spreads the reconnects of many clients after a server restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable


class Backoff:
    """Counts failures in a row and says how long to wait.

    ``uniform`` returns a number in [0, 1) and is injected so that tests are exact.
    """

    __slots__ = ("_base_s", "_cap_s", "_failures", "_healthy_s", "_uniform")

    def __init__(
        self,
        uniform: Callable[[], float],
        *,
        base_s: float = 0.8,
        cap_s: float = 30.0,
        healthy_s: float = 120.0,
    ) -> None:
        self._uniform = uniform
        self._base_s = base_s
        self._cap_s = cap_s
        self._healthy_s = healthy_s
        self._failures = 0

    @property
    def failures(self) -> int:
        """Failures in a row so far."""
        return self._failures

    def after(
        self, lived_s: float, *, at_least_s: float = 0.0, at_most_s: float = math.inf
    ) -> float:
        """Return the seconds to wait after an attempt that lived for ``lived_s`` seconds.

        ``at_least_s`` is what the server asked for (Retry-After), ``at_most_s`` a cap below the
        usual one. An attempt that was healthy for long enough starts the sequence over.
        """
        if lived_s >= self._healthy_s:
            self._failures = 0
        doubled_s = self._base_s * 2.0 ** min(self._failures, 16)
        pause_s = min(self._cap_s, at_most_s, doubled_s)
        self._failures += 1
        jittered_s = pause_s * (0.5 + self._uniform() * 0.5)
        return max(jittered_s, at_least_s)

    def reset(self) -> None:
        """Forget the failures; the next pause is the shortest."""
        self._failures = 0

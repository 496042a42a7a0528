"""How long a key that failed waits before its next pass."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

# What the reference controller does: 5 ms, doubled with each failure, at most 1000 s.
BACKOFF_BASE_S: Final = 0.005
BACKOFF_CAP_S: Final = 1000.0
# 2^63 times any sensible base is beyond every cap; a larger exponent would only overflow a float.
_MAX_DOUBLINGS: Final = 63

K = TypeVar("K", bound=Hashable)


class KeyBackoff(Generic[K]):
    """Exponential backoff per key: ``base_s * 2^(n-1)`` after the n-th failure in a row.

    Holds one number for each key that is failing now, nothing for the others.
    """

    __slots__ = ("_base_s", "_cap_s", "_failures", "_jitter", "_random")

    def __init__(
        self,
        *,
        base_s: float = BACKOFF_BASE_S,
        cap_s: float = BACKOFF_CAP_S,
        jitter: float = 0.0,
        random: Callable[[], float] | None = None,
    ) -> None:
        """With ``random`` (in [0, 1)), lengthen each delay by up to the share ``jitter``."""
        self._base_s = base_s
        self._cap_s = cap_s
        self._jitter = jitter
        self._random = random
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        """Return the number of keys that are failing."""
        return len(self._failures)

    def failures(self, key: K) -> int:
        """Return how often ``key`` failed since it was last forgotten."""
        return self._failures.get(key, 0)

    def fail(self, key: K) -> float:
        """Count a failure of ``key``; return the seconds to wait for the next try."""
        earlier = self._failures.get(key, 0)
        self._failures[key] = earlier + 1
        delay_s = self._base_s * 2.0 ** min(earlier, _MAX_DOUBLINGS)
        if self._random is not None:
            delay_s *= 1.0 + self._jitter * self._random()
        return min(delay_s, self._cap_s)

    def forget(self, key: K) -> None:
        """Let the next failure of ``key`` count as its first."""
        self._failures.pop(key, None)

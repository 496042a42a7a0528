"""Counting values into fixed buckets, with nothing allocated per value."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import msgspec

# The bounds dashboards for Kubernetes controllers expect, so that existing queries keep working.
# Multiplied up as there, for a bound is a text in those queries and has their rounding errors.
WORKQUEUE_BUCKETS_S: Final[tuple[float, ...]] = tuple(
    accumulate(range(11), lambda bound, _: bound * 10.0, initial=1e-8)
)
RECONCILE_BUCKETS_S: Final[tuple[float, ...]] = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0),
    *(6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)


class HistogramSnapshot(msgspec.Struct, frozen=True, gc=False):
    """The state of a histogram at one moment.

    ``counts[i]`` is the number of values at most ``bounds[i]`` and above the bound before; the last
    of ``counts`` (one more than there are bounds) holds the values above every bound.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float
    count: int


class Histogram:
    """Counts of values per bucket, and their sum."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Count into buckets that end at the rising ``bounds``."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def snapshot(self) -> HistogramSnapshot:
        """Return what was counted so far."""
        return HistogramSnapshot(
            bounds=self._bounds,
            counts=tuple(self._counts),
            total=self._total,
            count=sum(self._counts),
        )

"""The arithmetic of the bench: percentiles, windows, growth, arrivals, and what is called flat."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

import msgspec

WINDOW_S: Final = 10.0
"""Width of a window of arrivals."""
FLAT_FACTOR: Final = 1.3
"""How much slower the last 10 s of a load may be than its first."""
_NEVER: Final = ("conflicts", "doubly_bound", "caught_by_net", "not_usable")
_DRAINED: Final = 0.1
_STEP: Final = 1.5
_NEAR: Final = 1.15
Figures = Mapping[str, float | None]


class Window(msgspec.Struct, frozen=True):
    """What claims waited to be usable that arrived within the window that begins at ``from_s``."""

    from_s: float
    claims: int
    p50_ms: float
    p99_ms: float


def percentile(values: Iterable[float | None], share: float) -> float | None:
    """Return the smallest value that ``share`` percent of those measured do not exceed, if any."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None
    rank = math.ceil(share / 100 * len(ordered))
    return ordered[min(len(ordered), max(1, rank)) - 1]


def per_item(total: float | None, items: float) -> float | None:
    """Return a total for each item, to a hundredth; None where it was not measured."""
    return None if total is None or items <= 0 else round(total / items, 2)


def medians(runs: Sequence[Figures]) -> Figures:
    """Return the median of each figure over several runs; of what must never be, the highest."""
    shares = {name: 100 if name in _NEVER else 50 for name in runs[0]}
    return {name: percentile((one.get(name) for one in runs), shares[name]) for name in shares}


def windows(latencies: Iterable[tuple[float, float]]) -> list[Window]:
    """Sort (arrival in s, latency in ms) pairs into windows of arrival; empty ones are left out."""
    found: dict[float, list[float]] = defaultdict(list)
    for arrived_s, latency_ms in latencies:
        found[arrived_s // WINDOW_S * WINDOW_S].append(latency_ms)
    return [
        Window(from_s, len(ms), percentile(ms, 50) or 0.0, percentile(ms, 99) or 0.0)
        for from_s, ms in sorted(found.items())
    ]


def medians_of_ends(
    pairs: Sequence[tuple[float, float]], seconds: float
) -> tuple[float | None, float | None]:
    """Return the medians of (moment, value) ``pairs`` of the first and the last 10 s, if any.

    Of less than 20 seconds they are those of the first and the last half.
    """
    width_s = min(WINDOW_S, seconds / 2)
    return (
        percentile((value for at, value in pairs if at < width_s), 50),
        percentile((value for at, value in pairs if at >= seconds - width_s), 50),
    )


STEADY: Final[Mapping[str, tuple[float, float]]] = {
    # An allocator keeps pages that are nearly free, and interned texts come in blocks.
    "rss_mib": (1.02, 1.0),
    # Connections of a crowd stay open for a while.
    "fds": (1.0, 4.0),
    "queued": (1.5, 5.0),
    # How many objects are alive at a look is a matter of chance.
    "cached": (1.25, 20.0),
    # A code or a reason that has not been seen before makes a series, or those of a histogram.
    "series": (1.01, 20.0),
}
"""By how much, as a factor and beyond it, a measure may be larger without having grown."""


def growth(samples: Sequence[tuple[float, Mapping[str, float]]], seconds: float) -> Figures:
    """Compare the means of the last and the middle third of (moment, what is held) ``samples``."""
    figures: dict[str, float] = {}
    grown = 0
    for name, (factor, beyond) in STEADY.items():
        thirds = [[held[name] for at, held in samples if at * 3 // seconds == n] for n in (1, 2)]
        middle, last = (round(fmean(values), 1) for values in thirds)
        grown += last > middle * factor + beyond
        figures |= {f"{name}_middle": middle, f"{name}_last": last}
    return {"growing": grown, **figures}


def arrivals(rate: float, seconds: float, *, seed: int = 7) -> list[float]:
    """Return times of Poisson arrivals within ``seconds``, at least one; a seed repeats them."""
    chance = random.Random(seed)  # noqa: S311 - load, not secrets
    found: list[float] = []
    at = chance.expovariate(rate)
    while at < seconds:
        found.append(at)
        at += chance.expovariate(rate)
    return found or [0.0]


def next_rate(tried: Sequence[tuple[float, bool]], *, most: float) -> float | None:
    """Return the rate to try after those that were ``tried``, with whether flat; None when done.

    Rates grow by half until one is not flat or ``most`` is reached, shrink by half until one is;
    then the gap between the two is halved until it is within 15 percent.
    """
    not_flat = min((rate for rate, is_flat in tried if not is_flat), default=None)
    flat = max(
        (rate for rate, is_flat in tried if is_flat and (not_flat is None or rate < not_flat)),
        default=None,
    )
    if flat is None:
        # Below one claim in two seconds there is nothing to be called a load.
        return None if not_flat is None or not_flat <= 0.5 else round(not_flat / 2, 2)
    if not_flat is None:
        return None if flat >= most else min(most, round(flat * _STEP, 2))
    return None if not_flat / flat <= _NEAR else round(math.sqrt(flat * not_flat), 2)


def is_flat(figures: Figures) -> bool:
    """Return whether a load was carried to its end as at its beginning.

    Every claim became usable, the median of the last 10 s is at most 1.3 times that of the first,
    the pool has as many ready members as at first but for a tenth, and nothing is left over.
    """
    first = figures["first_usable_p50_ms"]
    last = figures["last_usable_p50_ms"]
    members = figures["first_members"]
    members_last = figures["last_members"]
    if first is None or last is None or members is None or members_last is None:
        return False
    return (
        figures["not_usable"] == 0
        and last <= FLAT_FACTOR * first
        and members_last >= members - _DRAINED * (figures["pool"] or 0.0)
        and figures["left_over"] == 0
    )

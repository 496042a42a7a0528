"""Arithmetic of the bench, as pure functions: percentiles, windows, arrivals, search for a rate.

Latencies and times are seconds here; whoever shows them multiplies.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

WINDOW_S = 10.0
"""Width of a window of arrivals."""
_STEP = 1.5
_NEAR = 1.15


class Window(msgspec.Struct, frozen=True):
    """What claims that arrived within one window waited; ``from_s`` is where it begins."""

    from_s: float
    claims: int
    p50_ms: float
    p99_ms: float


class Flatness(msgspec.Struct, frozen=True):
    """The median of the first arrivals beside that of the last; None where nothing arrived."""

    first_p50_ms: float | None
    last_p50_ms: float | None


def percentile(values: Iterable[float], share: float) -> float | None:
    """Return the smallest value that ``share`` percent of the values do not exceed.

    None of nothing. The rule is the nearest rank: what is returned was measured.
    """
    ordered = sorted(values)
    if not ordered:
        return None
    rank = math.ceil(share / 100 * len(ordered))
    return ordered[min(len(ordered), max(1, rank)) - 1]


def milliseconds(seconds: float) -> float:
    """Return seconds as milliseconds, to a tenth."""
    return round(seconds * 1000, 1)


def in_ms(values: Iterable[float], share: float) -> float | None:
    """Return a percentile of seconds in milliseconds, to a tenth; None of nothing."""
    found = percentile(values, share)
    return None if found is None else milliseconds(found)


def per_item(total: float | None, items: int) -> float | None:
    """Return a total for each item, to a hundredth; None where it was not measured."""
    return None if total is None or items <= 0 else round(total / items, 2)


def windows(latencies: Iterable[tuple[float, float]], *, width_s: float = WINDOW_S) -> list[Window]:
    """Sort (arrival, latency) pairs into windows of arrival, in order; empty ones are left out."""
    sorted_in: dict[int, list[float]] = defaultdict(list)
    for arrived_s, latency_s in latencies:
        sorted_in[int(arrived_s // width_s)].append(latency_s)
    return [
        Window(number * width_s, len(found), in_ms(found, 50) or 0.0, in_ms(found, 99) or 0.0)
        for number, found in sorted(sorted_in.items())
    ]


def flatness(
    latencies: Iterable[tuple[float, float]], seconds: float, *, width_s: float = WINDOW_S
) -> Flatness:
    """Compare arrivals of the first and the last ``width_s`` of ``seconds``.

    Where the whole lasts less than two windows, its first and last half are compared.
    """
    width_s = min(width_s, seconds / 2)
    pairs = list(latencies)
    return Flatness(
        in_ms((latency for at, latency in pairs if at < width_s), 50),
        in_ms((latency for at, latency in pairs if at >= seconds - width_s), 50),
    )


def arrivals(rate: float, seconds: float, *, seed: int = 7) -> list[float]:
    """Return the times of Poisson arrivals within ``seconds``: the same ones for the same seed.

    At least one, so that a short trial measures something.
    """
    chance = random.Random(seed)  # noqa: S311 - load, not secrets
    found: list[float] = []
    at = chance.expovariate(rate)
    while at < seconds:
        found.append(at)
        at += chance.expovariate(rate)
    return found or [0.0]


def next_rate(tried: Sequence[tuple[float, bool]], *, most: float) -> float | None:
    """Return the rate to try next in the search for the highest that stays flat, None when done.

    ``tried`` holds (rate, was flat). Rates grow by half until one is not flat or ``most`` is
    reached, shrink by half until one is, and then the gap between the highest flat rate below the
    lowest that was not is halved until it is within 15 percent.
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

"""The bounds of docs/security.md, with the numbers that stand there."""

from __future__ import annotations

import pytest

from lean_sandbox.metrics.registry import (
    Counters,
    Exposition,
    Family,
    Histograms,
    Living,
    dropped_series,
    line_bytes,
)
from tests.support.world import NS

COUNTER = Family("lean_sandbox_probe_total", ("namespace", "name"), "Of a test.")
HISTOGRAM = Family("lean_sandbox_probe_seconds", ("namespace", "name"), "Of a test.", (1.0,))


def held(series: Counters | Histograms, living: Living | None = None) -> list[tuple[str, ...]]:
    """Return the labels of the series that a scrape finds."""
    into = Exposition()
    into.living = living
    series.collect(into)
    return [labels for _, found in into.families.values() for labels, _ in found]


def test_a_family_has_ten_thousand_series_at_most() -> None:
    """The one more takes the place of the one counted longest ago, and that is counted."""
    counters = Counters(COUNTER)
    before = dropped_series()
    for number in range(10_000):
        counters.add(NS, str(number))
    counters.add(NS, "0")
    assert (len(held(counters)), dropped_series() - before) == (10_000, 0)
    counters.add(NS, "more")
    assert (len(held(counters)), dropped_series() - before) == (10_000, 1)
    assert (NS, "0") in held(counters)
    assert (NS, "1") not in held(counters)


def test_a_histogram_has_two_thousand_series_at_most() -> None:
    """Each has a line for every bucket."""
    histograms = Histograms(HISTOGRAM)
    before = dropped_series()
    for number in range(2_001):
        histograms.observe(0.5, NS, str(number))
    assert len(held(histograms)) == 2_000
    assert (NS, "0") not in held(histograms)
    assert dropped_series() - before == 1


@pytest.mark.parametrize("place", ["namespace", "sandbox_template"])
def test_the_series_of_what_has_no_sandbox_go_after_an_hour(place: str) -> None:
    """By its namespace, or by its template where the family has none; one that is back stays."""
    counters = Counters(Family("a_total", ("x", place), "Counts."))
    for name in ("here", "away", "back"):
        counters.add("x", name)

    def shown(now_s: float, *names: str) -> list[str]:
        living = Living(now_s, *[frozenset(names)] * 2)
        return sorted(labels[1] for labels in held(counters, living))

    assert shown(0.0, "here") == ["away", "back", "here"]
    assert shown(3599.0, "here", "back") == ["away", "back", "here"]
    assert shown(3600.0, "here") == ["back", "here"]
    assert shown(7199.0, "here") == ["back", "here"]
    assert shown(7200.0, "here") == ["here"]


@pytest.mark.parametrize(("size", "most"), [(1024, 4096), (1023, 4100), (4 * 1024 * 1024 + 1, 1)])
def test_lines_of_one_size_are_as_many_as_four_mib_hold(size: int, most: int) -> None:
    """Not one more, and not one less; of those that are larger there is one."""
    counters = Counters(COUNTER)
    rest = "x" * (size - line_bytes(COUNTER, (NS, "00000")))
    for number in range(most + 2):
        counters.add(NS, f"{number:05}{rest}")
    assert len(held(counters)) == most

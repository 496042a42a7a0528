"""The arithmetic of the bench, and its bounds: one table, judged from the figures of a run."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.bench.arithmetic import (
    STEADY,
    arrivals,
    growth,
    is_flat,
    medians_of_ends,
    next_rate,
    per_item,
    percentile,
    windows,
)
from lean_sandbox.bench.command import parse, wanted
from lean_sandbox.bench.report import BOUNDS, COMMANDS, FIGURES, Bound, judge

_SECONDS = st.floats(min_value=0, max_value=1000, allow_nan=False)
_PAIRS = st.lists(st.tuples(st.floats(min_value=0, max_value=119), _SECONDS), max_size=60)


@given(st.lists(_SECONDS, min_size=1, max_size=200), st.floats(min_value=0, max_value=100))
def test_a_percentile_was_measured_and_has_its_share_at_or_below(
    values: list[float], share: float
) -> None:
    """It is one of the values, enough values do not exceed it, and no smaller value would do."""
    found = percentile(values, share)
    assert found in values
    at_or_below = sum(value <= found for value in values)
    assert at_or_below >= share / 100 * len(values) - 1e-9
    below = sum(value < found for value in values)
    assert below < max(1, math.ceil(share / 100 * len(values)))


@given(
    st.lists(_SECONDS, min_size=1, max_size=50),
    st.lists(st.floats(min_value=0, max_value=100), min_size=2, max_size=5),
)
def test_percentiles_grow_with_their_share(values: list[float], shares: list[float]) -> None:
    """A larger share never has a smaller value; the ends are the extremes."""
    found = [percentile(values, share) for share in sorted(shares)]
    assert all(sooner <= later for sooner, later in pairwise(found))  # type: ignore[operator]
    assert percentile(values, 100) == max(values)
    assert percentile(values, 0) == min(values)


def test_there_is_no_percentile_of_nothing() -> None:
    """Nothing measured is None, and not a zero that looks fast."""
    assert percentile([], 50) is None


@given(_PAIRS)
def test_windows_hold_every_claim_once_in_order(pairs: list[tuple[float, float]]) -> None:
    """Counts add up, the windows are apart and in order, none is empty, p50 is within p99."""
    found = windows(pairs)
    assert sum(one.claims for one in found) == len(pairs)
    assert all(later.from_s - sooner.from_s >= 10 for sooner, later in pairwise(found))
    assert all(one.claims > 0 and one.p50_ms <= one.p99_ms for one in found)
    for one in found:
        inside = [at for at, _ in pairs if one.from_s <= at < one.from_s + 10]
        assert len(inside) == one.claims


@given(_PAIRS, st.floats(min_value=2, max_value=120))
def test_flatness_looks_at_the_ends_only(pairs: list[tuple[float, float]], seconds: float) -> None:
    """What arrives between the first and the last window changes nothing."""
    width_s = min(10.0, seconds / 2)
    ends = [pair for pair in pairs if not width_s <= pair[0] < seconds - width_s]
    assert medians_of_ends(pairs, seconds) == medians_of_ends(ends, seconds)


def test_flatness_compares_the_medians_of_the_first_and_the_last_ten_seconds() -> None:
    """A load that slows down shows; a window in which nothing arrived is None."""
    pairs = [(1.0, 0.01), (2.0, 0.03), (3.0, 0.02), (15.0, 9.0), (31.0, 0.5), (39.0, 0.7)]
    assert medians_of_ends(pairs, 40) == (0.02, 0.5)
    assert medians_of_ends([(1.0, 0.01)], 40) == (0.01, None)


@given(st.floats(min_value=0.1, max_value=50), st.floats(min_value=1, max_value=60), st.integers())
def test_arrivals_lie_within_the_time_in_order_and_repeat_with_the_seed(
    rate: float, seconds: float, seed: int
) -> None:
    """At least one; never outside; the same seed is the same load."""
    found = arrivals(rate, seconds, seed=seed)
    assert found
    assert found == sorted(found)
    assert all(0 <= at < seconds for at in found)
    assert found == arrivals(rate, seconds, seed=seed)


def test_arrivals_come_at_the_rate() -> None:
    """Over a long time their number is near rate times seconds: within five deviations."""
    found = len(arrivals(8, 2000))
    assert abs(found - 16_000) < 5 * math.sqrt(16_000)


@given(
    st.floats(min_value=0.6, max_value=300),
    st.floats(min_value=1, max_value=60),
    st.floats(min_value=100, max_value=200),
)
def test_the_search_ends_beside_the_limit(limit: float, first: float, most: float) -> None:
    """Whatever the limit is, the search ends, never above ``most``, and within 15 percent of it."""
    tried: list[tuple[float, bool]] = []
    rate: float | None = first
    while rate is not None:
        assert len(tried) < 40
        assert rate not in [known for known, _ in tried]
        assert 0 < rate <= most
        tried.append((rate, rate <= limit))
        rate = next_rate(tried, most=most)
    flat = max((known for known, is_flat in tried if is_flat), default=None)
    if flat is None:
        assert min(known for known, _ in tried) <= 0.5
    else:
        assert flat <= limit
        assert flat == most or limit <= flat * 1.16


def test_a_search_without_any_flat_rate_gives_up() -> None:
    """It halves until there is no load to speak of."""
    assert next_rate([(8.0, False)], most=200) == 4.0
    assert next_rate([(8.0, False), (0.5, False)], most=200) is None


@pytest.mark.parametrize(
    ("total", "items", "each"), [(12, 5, 2.4), (None, 5, None), (3, 0, None), (0, 4, 0.0)]
)
def test_what_was_not_measured_has_no_share(
    total: float | None, items: int, each: float | None
) -> None:
    """None stays None, and nothing is divided by nothing."""
    assert per_item(total, items) == each


@pytest.mark.parametrize(
    ("changes", "carried"),
    [
        ({}, True),
        ({"last_usable_p50_ms": 13.0}, True),
        ({"last_usable_p50_ms": 13.1}, False),
        ({"last_usable_p50_ms": None}, False),
        ({"last_members": 90.0}, True),
        ({"last_members": 89.0}, False),
        ({"last_members": None}, False),
        ({"not_usable": 1.0}, False),
        ({"left_over": 1.0}, False),
    ],
)
def test_a_load_is_carried_when_it_ends_as_it_began(
    changes: dict[str, float | None], *, carried: bool
) -> None:
    """No slower by a third, its pool not drained by a tenth, every claim usable, nothing left."""
    figures: dict[str, float | None] = {"not_usable": 0.0, "left_over": 0.0}
    figures |= {"pool": 100.0, "first_members": 100.0, "last_members": 97.0}
    figures |= {"first_usable_p50_ms": 10.0, "last_usable_p50_ms": 12.0}
    assert is_flat(figures | changes) is carried


_BOUND = Bound("burst", "p50_ms", 1.5, over="floor.p50_ms")
_POSITIVE = st.floats(min_value=0.01, max_value=1e6)


@pytest.mark.parametrize(
    ("name", "last", "growing"),
    [
        ("rss_mib", 43.0, 1),
        ("rss_mib", 41.5, 0),
        ("fds", 45.0, 1),
        ("queued", 65.0, 0),
        ("cached", 71.0, 1),
        ("series", 60.0, 0),
        ("series", 10.0, 0),
    ],
)
def test_a_measure_that_is_higher_in_the_last_third_than_in_the_middle_has_grown(
    name: str, last: float, growing: int
) -> None:
    """By more than what it is allowed; what it was in the first third is warming up."""
    level = dict.fromkeys(STEADY, 40.0)
    held = [{**level, name: 1.0}, {**level, name: 1.0}, level, level, *[{**level, name: last}] * 2]
    found = growth([*zip(range(0, 60, 10), held, strict=True)], 60.0)
    assert found["growing"] == growing
    assert (found[f"{name}_middle"], found[f"{name}_last"]) == (40.0, last)


def test_every_bound_names_a_figure_and_a_command_that_can_be_run() -> None:
    """What a bound is a multiple of is measured by its command too."""
    for bound in BOUNDS:
        assert bound.figure in FIGURES
        program, bench, *words = COMMANDS[bound.scenario].split()
        assert (program, bench) == ("lean-sandbox", "bench")
        scenarios = wanted(parse(words))
        assert bound.scenario in scenarios
        if bound.over:
            scenario, _, figure = bound.over.partition(".")
            assert scenario in scenarios
            assert figure in FIGURES


@given(_POSITIVE, _POSITIVE)
def test_a_multiple_is_kept_up_to_its_bound(value: float, base: float) -> None:
    """The bound is the multiple, to a hundredth; what is compared is what is shown."""
    (judged,) = judge({"burst": {"p50_ms": value}, "floor": {"p50_ms": base}}, [_BOUND])
    assert judged.bound is not None
    assert judged.bound == pytest.approx(1.5 * base, abs=0.0051)
    assert judged.is_met is (round(value, 2) <= judged.bound)
    assert judged.multiple == pytest.approx(value / base, abs=0.0051)


def test_what_was_not_measured_is_neither_kept_nor_missed() -> None:
    """Without the floor, or without the figure, there is no verdict."""
    (judged,) = judge({"burst": {"p50_ms": 3.0}}, [_BOUND])
    assert (judged.value, judged.bound, judged.is_met) == (3.0, None, None)
    assert judged.multiple is None
    (judged,) = judge({"burst": {"p50_ms": None}, "floor": {"p50_ms": 2.0}}, [_BOUND])
    assert (judged.value, judged.bound, judged.is_met) == (None, 3.0, None)


def test_only_scenarios_that_ran_are_judged() -> None:
    """A run of one scenario shows its bounds alone."""
    assert {judged.scenario for judged in judge({"idle": {}})} == {"idle"}


def test_zero_is_a_bound() -> None:
    """One answer 409 is one too many."""
    bound = Bound("burst", "conflicts", 0)
    assert [judge({"burst": {"conflicts": n}}, [bound])[0].is_met for n in (0, 1)] == [True, False]

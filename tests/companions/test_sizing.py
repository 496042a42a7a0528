"""How many free members a pool is to have, by what is remembered of its claims and members."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.companions.sizing import (
    BEFORE_DOWN_S,
    LONGEST_START_S,
    RECENT_S,
    Bounds,
    Demand,
    Past,
    enough_for,
    plan,
)

AGES = st.floats(0.0, 2 * 3600.0)
NOW_S = 1e9


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    """Draw what is remembered of a pool."""
    demand = Demand()
    for age_s in draw(st.lists(AGES, max_size=30)):
        demand.note_claim(NOW_S - age_s)
    for took_s in draw(st.lists(st.floats(-10.0, 4000.0), max_size=25)):
        demand.note_start(took_s)
    demand.forget_before(NOW_S)
    return Past(
        draw(st.integers(0, 200)),
        NOW_S - draw(AGES),
        demand,
        sized_s=NOW_S - draw(AGES),
        is_ours=draw(st.booleans()),
    )


@given(past=pasts(), least=st.integers(0, 50), more=st.integers(0, 50))
def test_a_new_size_is_between_the_bounds_or_nearer_to_them(
    past: Past, least: int, more: int
) -> None:
    """And a smaller one comes late, by a quarter at most, unless the bound is lower."""
    bounds = Bounds(least, max(1, least + more))
    found = plan(past, bounds, NOW_S)
    if found.size == past.size:
        return
    assert found.size <= bounds.most or past.size > found.size
    assert found.size >= bounds.least
    if found.size < past.size <= bounds.most:
        assert NOW_S - past.sized_s >= BEFORE_DOWN_S
        assert NOW_S - past.since_s >= RECENT_S
        assert found.size >= min(past.size - 1, math.floor(past.size * 0.75))


@given(past=pasts(), bounds=st.just(Bounds(1, 100)))
def test_a_pool_at_rest_is_not_looked_at(past: Past, bounds: Bounds) -> None:
    """Only one that has its least size, and of which no claims are remembered."""
    found = plan(past, bounds, NOW_S)
    if found.look_s is None:
        assert found.size == bounds.least
        assert not past.demand
    else:
        assert found.look_s > 0.0


@given(
    ages=st.lists(st.floats(0.0, RECENT_S - 20.0), min_size=1, max_size=40),
    start_s=st.floats(0.0, LONGEST_START_S),
)
def test_there_are_members_for_whatever_came_while_one_started(
    ages: list[float], start_s: float
) -> None:
    """For the most claims in any such time of the last minutes, and one more."""
    demand = Demand()
    demand.note_start(start_s)
    for age_s in ages:
        demand.note_claim(NOW_S - age_s)
    most = max(sum(end <= age <= end + start_s for age in ages) for end in ages)
    assert demand.needed(NOW_S) > most


@given(load=st.floats(0.0, 200.0))
def test_few_claims_that_come_by_chance_find_no_member(load: float) -> None:
    """One in 200 at most, by Erlang's sum; and one member fewer would not do."""

    def missed(size: int) -> float:
        terms = [1.0]
        for number in range(1, size + 1):
            terms.append(terms[-1] * load / number)
        return terms[-1] / sum(terms)

    size = enough_for(load)
    assert missed(size) <= 0.005 * (1 + 1e-9)
    assert size == 1 or missed(size - 1) > 0.005 * (1 - 1e-9)


def test_a_steady_load_has_more_than_what_the_last_minutes_saw() -> None:
    """A claim each minute for an hour, and members that start in five: twelve, and not seven."""
    demand = Demand()
    demand.note_start(300.0)
    for minute in range(60):
        demand.note_claim(NOW_S - 60.0 * minute)
    assert demand.peak(NOW_S) < 10
    assert demand.needed(NOW_S) == enough_for(5.0) == 12


@given(ages=st.lists(st.floats(3800.0 + LONGEST_START_S, 1e6), max_size=40))
def test_what_is_too_old_is_forgotten(ages: list[float]) -> None:
    """So that a pool takes no more memory the longer it is sized."""
    demand = Demand()
    for age_s in ages:
        demand.note_claim(NOW_S - age_s)
    demand.forget_before(NOW_S)
    assert not demand
    assert demand.needed(NOW_S) == 0

"""How fast a pool is refilled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.warmpool import (
    MemberOutcomes,
    ReplacementPace,
    ReplenishHold,
    slow_start_groups,
)
from lean_sandbox.rates import TokenBucket


@pytest.mark.pool_case(19)
def test_groups_double() -> None:
    """Pool case 19: 14 requests go as 1, 2, 4, 7."""
    assert list(slow_start_groups(14)) == [1, 2, 4, 7]
    assert list(slow_start_groups(0)) == []


@given(st.integers(0, 2000))
def test_groups_cover_everything(total: int) -> None:
    """Groups add up, and each but the last is twice the one before."""
    groups = list(slow_start_groups(total))
    assert sum(groups) == total
    assert groups[:-1] == [2**n for n in range(len(groups[:-1]))]


# --- the hold ------------------------------------------------------------------------------------


@pytest.mark.pool_case(93)
def test_no_delay_no_hold() -> None:
    """Pool case 93: with the delay off a drop is refilled at once."""
    for delay_s in (0, -1):
        hold = ReplenishHold(delay_s)
        assert [hold.observe(n, 5, 0) for n in (5, 3)] == [0, 0]


@pytest.mark.pool_case(97)
def test_first_fill_restart_and_a_full_pool_are_not_held() -> None:
    """Pool case 97: the first reconcile is no drop, and a full pool ends a hold."""
    hold = ReplenishHold(10)
    hold.created(3)
    assert hold.observe(0, 5, 100) == 0
    hold.created(5)
    assert hold.observe(5, 5, 101) == 0
    assert hold.observe(4, 5, 102) == 10
    assert hold.observe(4, 4, 103) == 0
    assert hold.observe(4, 5, 104) == 0


def test_losing_what_was_just_created_is_a_drop() -> None:
    """Members that were created and claimed before they were ever counted still count."""
    hold = ReplenishHold(10)
    hold.observe(2, 5, 100)
    hold.created(3)
    assert hold.observe(4, 5, 101) == 10


# --- the bucket ----------------------------------------------------------------------------------


@pytest.mark.pool_case(98)
def test_tokens_at_two_a_second() -> None:
    """Pool case 98: 2, none for half a second, then 1, and after two seconds 2."""
    bucket = TokenBucket(2)
    assert bucket.take(5, 100) == (2, 0.0)
    assert bucket.take(3, 100) == (0, 0.5)
    assert bucket.take(3, 100.5) == (1, 0.0)
    assert bucket.take(2, 102.5) == (2, 0.0)


@pytest.mark.pool_case(99)
def test_very_slow_and_very_fast() -> None:
    """Pool case 99: half a token a second, and more than any integer holds."""
    slow = TokenBucket(0.5)
    assert slow.take(2, 0) == (1, 0.0)
    assert slow.take(2, 0) == (0, 2)
    assert slow.take(2, 2) == (1, 0.0)
    assert TokenBucket(1e12).take(2**31, 0) == (2**31, 0.0)
    assert TokenBucket(0).take(700, 0) == (700, 0.0)


@pytest.mark.pool_case(100)
def test_tokens_come_back_from_a_refused_reconcile() -> None:
    """Pool case 100: what was not tried is spendable, never beyond the capacity."""
    bucket = TokenBucket(2)
    bucket.take(2, 0)
    bucket.give_back(2)
    assert bucket.take(5, 0) == (2, 0.0)
    bucket.give_back(50)
    assert bucket.take(5, 0) == (2, 0.0)


@pytest.mark.pool_case(101)
def test_a_hold_leaves_the_bucket_alone() -> None:
    """Pool case 101: after the hold the tokens are all there."""
    hold = ReplenishHold(10)
    bucket = TokenBucket(2)
    hold.observe(5, 5, 0)
    assert hold.observe(2, 5, 0) == 10
    assert hold.observe(2, 5, 10) == 0
    assert bucket.take(3, 10) == (2, 0.0)


@given(
    st.floats(0.01, 50),
    st.lists(st.tuples(st.integers(1, 20), st.floats(0, 5)), min_size=1, max_size=30),
)
def test_a_bucket_never_gives_more_than_its_rate(
    rate: float, steps: list[tuple[int, float]]
) -> None:
    """Over any time: at most the capacity plus what flowed in; and the wait it names is enough."""
    bucket = TokenBucket(rate)
    now_s = 0.0
    total = 0
    for wanted, pause_s in steps:
        now_s += pause_s
        granted, wait_s = bucket.take(wanted, now_s)
        total += granted
        assert granted <= wanted
        if not granted:
            now_s += wait_s
            assert bucket.take(1, now_s + 1e-6) == (1, 0.0)
            total += 1
    assert total <= max(1.0, rate) + rate * now_s + 1e-3


@pytest.mark.parametrize(
    ("steps", "wait_s"),
    [
        ([], 0.0),
        ([(0.0, 1000.0)], 10.0),
        ([(0.0, 1000.0), (1000.0, 1010.0)], 20.0),
        # A date has whole seconds: one may seem a little older than it is.
        ([(0.0, 1000.0), (994.0, 1010.0)], 20.0),
        ([(0.0, 1000.0), (993.5, 1010.0)], 10.0),
        ([(0.0, 1000.0), (1000.0, 1599.0)], 20.0),
        ([(0.0, 1000.0), (1000.0, 1600.0)], 10.0),
    ],
)
def test_a_replacement_of_one_made_since_the_last_waits_longer(
    steps: list[tuple[float, float]], wait_s: float
) -> None:
    """Unless that was long ago."""
    pace = ReplacementPace()
    for created_s, now_s in steps:
        pace.replaced(created_s, now_s)
    now_s = steps[-1][1] if steps else 0.0
    assert pace.wait_s(now_s) == wait_s
    assert pace.wait_s(now_s + wait_s) == 0.0


def test_members_that_all_end_are_replaced_after_pauses_that_double_to_five_minutes() -> None:
    """At once, then after 10 s; a member from before the last replacement begins anew."""
    pace = ReplacementPace()
    now_s = 1000.0
    assert pace.wait_s(now_s) == 0.0
    pace.replaced(now_s - 100.0, now_s)
    for pause_s in (10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0):
        assert pace.wait_s(now_s) == pause_s
        now_s += pause_s
        assert pace.wait_s(now_s) == 0.0
        pace.replaced(now_s, now_s)
    pace.replaced(now_s - 1000.0, now_s + 300.0)
    assert pace.wait_s(now_s + 300.0) == 10.0
    # The server's clock is set back: that lengthens no pause.
    assert pace.wait_s(now_s) == 0.0


def test_the_newest_failure_is_told_until_one_as_new_is_ready_or_it_is_old() -> None:
    """A failure of an older member tells nothing new but that there still are some."""
    outcomes = MemberOutcomes()
    assert outcomes.failure(0.0, lasts_s=60.0) == ""
    outcomes.failed("2026-01-02T03:04:05Z", "first", 0.0)
    outcomes.failed("2026-01-02T03:04:05Z", "second", 0.0)
    outcomes.failed("2026-01-02T03:04:04Z", "older", 10.0)
    assert outcomes.failure(70.0, lasts_s=60.0) == "second"
    assert outcomes.failure(70.5, lasts_s=60.0) == ""
    outcomes.ready("2026-01-02T03:04:04Z")
    assert outcomes.failure(10.0, lasts_s=60.0) == "second"
    outcomes.ready("2026-01-02T03:04:05Z")
    outcomes.ready("2026-01-02T03:04:03Z")
    assert outcomes.newest_ready == "2026-01-02T03:04:05Z"
    assert outcomes.failure(10.0, lasts_s=60.0) == ""

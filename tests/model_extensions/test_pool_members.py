"""Members of a pool: how they do, which go first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.warmpool import (
    Member,
    Readiness,
    is_waiting_on_scheduling,
    jittered_requeue_s,
    judge_readiness,
    victims,
)
from tests.model_extensions.support import condition

NOW_S = 1_000_000.0
GRACE_S = 300.0


def aged(age_s: float, **fields: Any) -> Member:
    """Return a member of that age."""
    return Member("m", created_s=NOW_S - age_s, **fields)


def judged(member: Member, grace_s: float = GRACE_S) -> Readiness:
    """Return the readiness of a member."""
    return judge_readiness(member, NOW_S, grace_s).readiness


# --- readiness -----------------------------------------------------------------------------------


@pytest.mark.pool_case(62, 63)
def test_a_young_member_is_kept_and_looked_at_later() -> None:
    """Pool cases 62, 63: at 2 of 5 minutes the look is due in 3m2s, spread by up to a half."""
    found = judge_readiness(aged(120), NOW_S, GRACE_S)
    assert found == (Readiness.YOUNG, 182)
    assert judge_readiness(aged(120, is_ready=True), NOW_S, GRACE_S) == (Readiness.READY, None)
    assert jittered_requeue_s(182, 0) == 182
    assert jittered_requeue_s(182, 0.999) < 273


@pytest.mark.pool_case(64)
def test_the_end_of_grace_belongs_to_it() -> None:
    """Pool case 64: exactly at the end it is kept, one tick later it is not."""
    assert judged(aged(300)) is Readiness.YOUNG
    assert judged(aged(300.001)) is Readiness.STUCK


@pytest.mark.pool_case(61, 65, 69, 71, 73, 74)
def test_past_its_grace_only_a_waiting_member_stays() -> None:
    """Pool cases 61, 65, 69, 71, 73, 74: the age of the object counts, whatever it was before."""
    assert judged(aged(600)) is Readiness.STUCK
    assert judged(aged(600, is_waiting=True)) is Readiness.HELD
    assert judged(aged(360), grace_s=600) is Readiness.YOUNG
    assert judged(aged(3600, is_ready=True)) is Readiness.READY
    assert judge_readiness(Member("m"), NOW_S, GRACE_S) == (Readiness.YOUNG, None)


@pytest.mark.pool_case(65, 66, 67, 70, 71)
@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([condition("PodScheduled", "False", "Unschedulable")], True),
        ([condition("PodScheduled", "False", "SchedulingGated")], True),
        ([condition("PodScheduled", "False", "Other")], False),
        ([condition("PodScheduled", "Unknown", "Unschedulable")], False),
        ([condition("PodScheduled", "True", "Unschedulable")], False),
        ([condition("Ready", "False", "Unschedulable")], False),
        ([], False),
    ],
)
def test_waiting_is_told_by_the_mirrored_condition(conditions: Any, expected: bool) -> None:  # noqa: FBT001
    """Pool cases 65, 66, 67, 70, 71: False with one of two reasons."""
    assert is_waiting_on_scheduling(conditions) is expected


# --- scale down ----------------------------------------------------------------------------------


@pytest.mark.pool_case(38)
def test_the_newest_of_the_ready_goes_first() -> None:
    """Pool case 38: four ready ones of different ages, one too many."""
    members = [Member(f"m{age}", created_s=NOW_S - age, is_ready=True) for age in (3, 1, 4, 2)]
    assert [member.name for member in victims(members, 1)] == ["m1"]


@pytest.mark.pool_case(39)
def test_a_member_that_is_not_ready_goes_before_any_ready_one() -> None:
    """Pool case 39: even when it is the oldest."""
    members = [Member(f"m{age}", created_s=NOW_S - age, is_ready=age < 9) for age in (1, 2, 3, 9)]
    assert [member.name for member in victims(members, 1)] == ["m9"]


@pytest.mark.pool_case(40, 41)
def test_as_many_as_asked_for_go() -> None:
    """Pool cases 40, 41: all when all are too many, at most a batch, none for none."""
    members = [Member(f"m{n}") for n in range(700)]
    assert len(victims(members, 300)) == 300
    assert len(victims(members, 900)) == 700
    assert victims(members, 0) == victims(members, -1) == []


MEMBERS = st.lists(
    st.builds(
        Member,
        st.text("abc", min_size=1, max_size=3),
        created_s=st.none() | st.integers(0, 5).map(float),
        is_ready=st.booleans(),
    ),
    unique_by=lambda member: member.name,
)


@given(MEMBERS, st.integers(0, 10), st.randoms())
def test_the_choice_of_victims_is_total_and_fair(
    members: list[Member], count: int, random: Any
) -> None:
    """The order of listing is no matter, and nobody stays who should have gone before a victim."""
    chosen = victims(members, count)
    shuffled = list(members)
    random.shuffle(shuffled)

    assert victims(shuffled, count) == chosen
    left = [member for member in members if member not in chosen]
    for gone in chosen:
        for kept in left:
            assert gone.is_ready <= kept.is_ready
            if gone.is_ready == kept.is_ready:
                assert (gone.created_s or 0) >= (kept.created_s or 0)

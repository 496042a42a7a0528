"""No overshoot while our own creations and deletions are still on their way."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lean_sandbox.run.expectations import EXPECTATIONS_TIMEOUT_S, Expectations, Pending
from tests.running.hand_clock import HandClock

POOL = ("default", "pool")


@pytest.fixture
def clock() -> HandClock:
    """Return a clock that stands still."""
    return HandClock()


@pytest.fixture
def expected(clock: HandClock) -> Expectations[tuple[str, str]]:
    """Return a tracker that expects nothing."""
    return Expectations(clock)


Tracker = Expectations[tuple[str, str]]


def test_an_owner_is_satisfied_when_each_creation_was_seen(expected: Tracker) -> None:
    """Every answer needs its event, and then a new batch may be recorded."""
    assert expected.expect_creations(POOL, 2)
    assert not expected.satisfied(POOL)
    for uid in ("u1", "u2"):
        expected.created(POOL, uid)
        assert not expected.satisfied(POOL)
    assert expected.observe_creation("u1") == POOL
    assert not expected.satisfied(POOL)
    assert expected.observe_creation("u2") == POOL
    assert expected.satisfied(POOL)


def test_recording_creations_is_a_gate(expected: Tracker) -> None:
    """Check and record are one step: of many passes only one may create."""
    assert [expected.expect_creations(POOL, 5) for _ in range(16)].count(True) == 1
    assert not expected.expect_creations(("default", "other"), 0)


def test_failed_creations_lower_the_expectation(expected: Tracker) -> None:
    """What was not created will not be seen."""
    expected.expect_creations(POOL, 3)
    expected.creation_failed(POOL, 2)
    expected.created(POOL, "u1")
    expected.observe_creation("u1")
    assert expected.satisfied(POOL)
    expected.creation_failed(POOL, 5)
    assert expected.pending(POOL) == Pending(0, 0)


def test_an_event_that_overtakes_its_answer_counts(expected: Tracker) -> None:
    """Event and answer may come in either order."""
    expected.expect_creations(POOL, 1)
    assert expected.observe_creation("u1") is None
    assert not expected.satisfied(POOL)
    expected.created(POOL, "u1")
    assert expected.satisfied(POOL)


def test_a_foreign_object_does_not_lower_the_expectation(expected: Tracker) -> None:
    """Only the very objects that were created count."""
    expected.expect_creations(POOL, 1)
    expected.observe_creation("foreign")
    expected.created(POOL, "u1")
    expected.observe_creation("foreign")
    assert not expected.satisfied(POOL)


def test_a_member_seen_only_after_its_adoption_does_not_block(expected: Tracker) -> None:
    """A creation is met by its uid, whoever owns the object when it is first seen."""
    expected.expect_creations(POOL, 1)
    expected.created(POOL, "u1")
    # The event names another owner; only the uid is asked for.
    assert expected.observe_creation("u1") == POOL
    assert expected.satisfied(POOL)


def test_a_member_gone_before_it_was_seen_does_not_block(expected: Tracker) -> None:
    """A delete event also proves that the creation came through."""
    expected.expect_creations(POOL, 1)
    expected.created(POOL, "u1")
    assert expected.observe_deletion("u1") == POOL
    assert expected.satisfied(POOL)


def test_a_deletion_is_pending_until_it_is_seen(expected: Tracker) -> None:
    """A deleted object is not deleted twice, and its owner waits."""
    assert expected.expect_deletion(POOL, "u1")
    assert not expected.expect_deletion(POOL, "u1")
    assert expected.is_deletion_pending(POOL, "u1")
    assert not expected.satisfied(POOL)
    assert expected.observe_deletion("u1") == POOL
    assert not expected.is_deletion_pending(POOL, "u1")
    assert expected.satisfied(POOL)


def test_a_delete_event_before_the_answer_clears_for_good(expected: Tracker) -> None:
    """Recorded before the request, cleared by the event, not raised again by the answer."""
    expected.expect_deletion(POOL, "u1")
    expected.observe_deletion("u1")
    expected.deletion_failed("u1")
    assert expected.satisfied(POOL)


def test_a_failed_deletion_is_rolled_back(expected: Tracker) -> None:
    """An error, or nothing found, leaves nothing to wait for."""
    expected.expect_deletion(POOL, "u1")
    expected.deletion_failed("u1")
    assert expected.satisfied(POOL)
    assert expected.expect_deletion(POOL, "u1")


def test_empty_uids_are_ignored(expected: Tracker) -> None:
    """Nothing is known by an empty uid."""
    assert not expected.expect_deletion(POOL, "")
    assert not expected.is_deletion_pending(POOL, "")
    expected.expect_creations(POOL, 1)
    expected.created(POOL, "")
    assert expected.satisfied(POOL)


def test_a_lost_event_blocks_for_five_minutes_and_no_longer(
    clock: HandClock, expected: Tracker
) -> None:
    """Strictly after the timeout the record is dropped, with all its uids."""
    expected.expect_creations(POOL, 2)
    expected.created(POOL, "u1")
    clock.move(EXPECTATIONS_TIMEOUT_S)
    assert not expected.satisfied(POOL)
    clock.move(0.001)
    assert expected.satisfied(POOL)
    seen = expected.statistics()
    assert (seen.owners, seen.pending_uids, seen.unnamed_creations, seen.expired) == (0, 0, 0, 1)
    assert expected.observe_creation("u1") is None


def test_a_new_raise_starts_the_five_minutes_anew(clock: HandClock, expected: Tracker) -> None:
    """The age of a record is that of its last raise."""
    expected.expect_deletion(POOL, "u1")
    clock.move(200)
    expected.expect_deletion(POOL, "u2")
    clock.move(200)
    assert expected.is_deletion_pending(POOL, "u1")
    clock.move(101)
    assert not expected.is_deletion_pending(POOL, "u2")


def test_a_deletion_of_an_expired_record_may_be_recorded_again(
    clock: HandClock, expected: Tracker
) -> None:
    """Also by another owner."""
    expected.expect_deletion(POOL, "u1")
    clock.move(301)
    assert expected.expect_deletion(("default", "other"), "u1")
    assert expected.satisfied(POOL)


def test_forgetting_an_owner_leaves_nothing_behind(expected: Tracker) -> None:
    """A re-created owner is not blocked by what its predecessor waited for."""
    expected.expect_creations(POOL, 2)
    expected.created(POOL, "u1")
    expected.forget(POOL)
    expected.created(POOL, "u2")
    expected.forget(POOL)
    assert expected.satisfied(POOL)
    assert expected.statistics().pending_uids == 0


def test_the_number_of_owners_is_bounded(clock: HandClock) -> None:
    """Beyond the bound nothing is recorded and nobody may act, until old records expire."""
    expected: Expectations[int] = Expectations(clock, max_owners=2)
    assert expected.expect_creations(1, 1)
    assert expected.expect_deletion(2, "u2")
    assert not expected.expect_creations(3, 1)
    assert not expected.expect_deletion(4, "u4")
    clock.move(301)
    assert expected.expect_creations(3, 1)


def test_what_is_seen_early_is_bounded_and_dropped_when_no_answer_is_awaited(
    clock: HandClock,
) -> None:
    """A flood of foreign events costs no memory that stays."""
    expected: Expectations[int] = Expectations(clock, max_early=8)
    expected.expect_creations(1, 1)
    for n in range(1000):
        expected.observe_creation(f"u{n}")
    assert len(expected._early) == 8
    expected.creation_failed(1)
    assert not expected._early
    expected.observe_creation("x")
    assert not expected._early


@given(
    st.permutations(
        [(kind, n) for n in range(4) for kind in ("answer", "event", "foreign", "event")]
    )
)
def test_any_order_of_answers_and_events_satisfies_in_the_end_and_not_before(
    order: list[tuple[str, int]],
) -> None:
    """Satisfied exactly when each creation has both its answer and an event."""
    expected: Expectations[str] = Expectations(HandClock())
    expected.expect_creations("pool", 4)
    answered, seen = set(), set()
    for kind, n in order:
        if kind == "answer":
            expected.created("pool", f"u{n}")
            answered.add(n)
        elif kind == "event":
            expected.observe_creation(f"u{n}")
            seen.add(n)
        else:
            expected.observe_creation(f"foreign{n}")
        assert expected.satisfied("pool") is (len(answered) == len(seen) == 4)
    assert expected.statistics().pending_uids == 0

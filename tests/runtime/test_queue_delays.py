"""When the queue hands out a key that waits: delays, and the backoff after failures."""

from __future__ import annotations

import pytest

from lean_sandbox.runtime.queue import Cause, WorkQueue
from lean_sandbox.turns import Rank
from tests.runtime.hand_clock import HandClock
from tests.runtime.taking import drain


def test_a_delayed_key_waits_until_it_is_due(clock: HandClock, queue: WorkQueue[str]) -> None:
    """A delay holds a key back, to the moment and no longer."""
    queue.add("a", after_s=5)
    assert drain(queue) == []
    clock.move(4.999)
    assert drain(queue) == []
    clock.move(0.001)
    assert drain(queue) == ["a"]


@pytest.mark.parametrize("delays", [(9, 3), (3, 9)])
def test_the_earliest_due_time_wins(
    clock: HandClock, queue: WorkQueue[str], delays: tuple[float, float]
) -> None:
    """Of two delays of one key the shorter one counts, and the key runs once."""
    for delay in delays:
        queue.add("a", after_s=delay)
    clock.move(3)
    assert drain(queue) == ["a"]
    clock.move(100)
    assert drain(queue) == []


def test_an_add_pulls_a_delayed_key_forward(clock: HandClock, queue: WorkQueue[str]) -> None:
    """An event does not wait for a timer, and the timer is used up by its reconcile."""
    queue.add("a", after_s=3600)
    queue.add("a")
    assert drain(queue) == ["a"]
    clock.move(3600)
    assert drain(queue) == []


def test_a_delayed_key_that_becomes_due_keeps_its_highest_rank(
    clock: HandClock, queue: WorkQueue[str]
) -> None:
    """The rank is merged during the delay too."""
    queue.add("a", after_s=5, rank=Rank.SPARE)
    queue.add("a", after_s=9, rank=Rank.CLIENT)
    queue.add("b", rank=Rank.SPARE)
    clock.move(5)
    assert drain(queue) == ["a", "b"]


def test_a_delay_asked_for_during_a_reconcile_counts_from_the_asking(
    clock: HandClock, queue: WorkQueue[str]
) -> None:
    """A reconcile that takes long does not postpone the next one."""
    queue.add("a")
    queue.get_nowait()
    queue.add("a", after_s=5)
    clock.move(4)
    queue.done("a")
    assert queue.counts()["delayed"] == 1
    clock.move(1)
    assert drain(queue) == ["a"]


# -- failures -------------------------------------------------------------------------------------


def failed(clock: HandClock, queue: WorkQueue[str], times: int) -> list[float]:
    """Let a key fail so often, each time after its wait; return the waits."""
    waits = []
    for _ in range(times):
        waits.append(queue.retry("a"))
        clock.move(waits[-1])
    return waits


def test_retries_double_from_5_ms_to_1000_s_until_forgotten(
    clock: HandClock, queue: WorkQueue[str]
) -> None:
    """The n-th failure in a row waits 5 ms * 2^(n-1), at most 1000 s, however many there are."""
    delays = failed(clock, queue, 5000)
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[17] == pytest.approx(655.36)
    assert set(delays[18:]) == {1000.0}
    assert queue.counts()["failing"] == 1
    queue.forget("a")
    queue.forget("a")
    assert queue.counts()["failing"] == 0
    assert queue.retry("a") == 0.005


def test_a_failure_before_the_wait_is_over_waits_for_the_rest_of_it(
    clock: HandClock, queue: WorkQueue[str]
) -> None:
    """Events let a failing key run at once, however many, and make its pauses no longer."""
    failed(clock, queue, 10)
    assert queue.retry("a") == pytest.approx(5.12)
    clock.move(3.0)
    assert [queue.retry("a") for _ in range(2)] == pytest.approx([2.12, 2.12])
    clock.move(2.12)
    assert queue.retry("a") == pytest.approx(10.24)


def test_after_an_edit_pauses_begin_at_half_a_second(
    clock: HandClock, queue: WorkQueue[str]
) -> None:
    """Not at 5 ms: an object that is edited all the time is not tried all the time."""
    failed(clock, queue, 20)
    queue.retry("a")
    for _ in range(3):
        queue.shorten("a")
        assert queue.retry("a") == 0.5
    clock.move(0.5)
    assert queue.retry("a") == 1.0
    queue.retry("b")
    queue.shorten("b")
    assert queue.retry("b") == 0.01
    queue.shorten("never failed")
    assert queue.retry("never failed") == 0.005


def test_attempts_tell_the_failures_in_a_row(clock: HandClock, queue: WorkQueue[str]) -> None:
    """An item says how often its key failed before."""
    queue.add("a")
    for attempts in range(3):
        item = queue.get_nowait()
        assert item is not None
        assert item.attempts == attempts
        queue.retry("a")
        queue.done("a")
        clock.move(1)


def test_a_retried_reconcile_keeps_what_it_was_for(clock: HandClock, queue: WorkQueue[str]) -> None:
    """Causes, reasons and rank of a failed reconcile are not lost, whatever comes meanwhile."""
    queue.add("a", cause=Cause.CHILD_GONE, reason="spec", rank=Rank.CLIENT)
    queue.get_nowait()
    queue.add("a", rank=Rank.SPARE, cause=Cause.LISTED, reason="later", after_s=1.0)
    queue.retry("a")
    queue.done("a")
    clock.move(1)
    item = queue.get_nowait()
    assert item is not None
    assert item.causes == Cause.CHILD_GONE | Cause.LISTED
    assert (item.reasons, item.rank) == (("later", "spec"), Rank.CLIENT)


def test_a_retry_is_not_later_than_what_falls_due(clock: HandClock, queue: WorkQueue[str]) -> None:
    """A long backoff does not delay an expiry."""
    failed(clock, queue, 20)
    assert queue.retry("a", no_later_than_s=7.5) == 7.5
    assert queue.retry("b", no_later_than_s=7.5) == 0.005
    assert queue.retry("a", no_later_than_s=-3) == 0.0


def test_retry_after_lengthens_a_backoff(queue: WorkQueue[str]) -> None:
    """Retry-After lengthens a backoff and wins over what falls due."""
    assert queue.retry("a", not_before_s=2) == 2
    assert queue.retry("b", not_before_s=2, no_later_than_s=1) == 2

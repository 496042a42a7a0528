"""Buckets, backoff and the judging of failures."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lean_sandbox.metrics.families import RECONCILE_BUCKETS_S, WORKQUEUE_BUCKETS_S
from lean_sandbox.metrics.registry import Histogram
from lean_sandbox.runtime.queue import WorkQueue
from lean_sandbox.runtime.workers import Outcome, classify
from tests.support.clock import FakeClock


class ExpectedError(Exception):
    """What an error of the API looks like from here."""

    def __init__(self, *, retryable: bool, retry_after_s: float | None = None) -> None:
        super().__init__("refused")
        self.retryable = retryable
        self.retry_after_s = retry_after_s


@given(st.lists(st.floats(0, 100)))
def test_every_value_falls_into_the_first_bucket_that_holds_it(values: list[float]) -> None:
    """A bucket holds what is at most its bound and above the one before; nothing is lost."""
    histogram = Histogram(RECONCILE_BUCKETS_S)
    for value in values:
        histogram.observe(value)
    seen = histogram.snapshot()
    assert sum(seen.counts) == len(values)
    assert seen.total == pytest.approx(sum(values))
    for n, bound in enumerate(seen.bounds):
        assert sum(seen.counts[: n + 1]) == sum(value <= bound for value in values)


def test_the_bounds_are_those_of_the_dashboards() -> None:
    """Bounds rise, and are the ones existing queries know."""
    assert list(RECONCILE_BUCKETS_S) == sorted(set(RECONCILE_BUCKETS_S))
    assert len(RECONCILE_BUCKETS_S) == 40
    assert pytest.approx([10.0**n for n in range(-8, 4)]) == list(WORKQUEUE_BUCKETS_S)


def test_backoff_never_overflows() -> None:
    """However often a key fails, the delay is the cap."""
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    assert max(queue.retry("a") for _ in range(5000)) == 1000.0
    assert queue.counts()["failing"] == 1
    queue.forget("a")
    queue.forget("a")
    assert queue.counts()["failing"] == 0


def test_an_error_says_itself_whether_to_retry() -> None:
    """Attributes decide, not classes."""
    refused = ExpectedError(retryable=False)
    assert classify(refused) == (Outcome.TERMINAL, 0.0, refused)
    busy = ExpectedError(retryable=True, retry_after_s=3)
    assert classify(busy) == (Outcome.ERROR, 3, busy)


def test_an_error_nobody_foresaw_is_a_bug() -> None:
    """Without the attribute it is a panic."""
    bug = KeyError("x")
    assert classify(bug) == (Outcome.PANIC, 0.0, bug)


def test_a_group_is_judged_by_its_errors() -> None:
    """A bug outweighs all, else one error worth another try is enough; the longest wait counts."""
    terminal = ExpectedError(retryable=False, retry_after_s=99)
    soon = ExpectedError(retryable=True, retry_after_s=1)
    later = ExpectedError(retryable=True, retry_after_s=5)
    nested = ExceptionGroup("", [terminal, ExceptionGroup("", [soon, later])])
    assert classify(ExceptionGroup("", [terminal])) == (Outcome.TERMINAL, 0.0, terminal)
    assert classify(nested) == (Outcome.ERROR, 5, soon)
    bug = ExceptionGroup("", [soon, KeyError()])
    assert classify(bug) == (Outcome.PANIC, 0.0, bug)

"""Buckets and backoff."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lean_sandbox.metrics.families import RECONCILE_BUCKETS_S, WORKQUEUE_BUCKETS_S
from lean_sandbox.metrics.registry import Histogram
from lean_sandbox.runtime.queue import WorkQueue
from tests.support.clock import FakeClock


@given(st.lists(st.floats(0, 100)))
def test_every_value_falls_into_the_first_bucket_that_holds_it(values: list[float]) -> None:
    """A bucket holds what is at most its bound and above the one before; nothing is lost."""
    histogram = Histogram(RECONCILE_BUCKETS_S)
    for value in values:
        histogram.observe(value)
    assert sum(histogram.counts) == len(values)
    assert histogram.total == pytest.approx(sum(values))
    for n, bound in enumerate(histogram.bounds):
        assert sum(histogram.counts[: n + 1]) == sum(value <= bound for value in values)


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

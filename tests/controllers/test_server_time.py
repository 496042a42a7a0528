"""The time of the server's clock, as far as its dates show it."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.controllers.common import ServerTime
from lean_sandbox.model.times import format_rfc3339
from tests.support.clock import EPOCH, FakeClock

SECONDS = st.integers(-(10**6), 10**6)


def dated(seconds: float) -> bytes:
    """Return the HTTP date of a moment after the epoch of the tests."""
    return f"{EPOCH + timedelta(seconds=seconds):%a, %d %b %Y %H:%M:%S} GMT".encode()


@given(ahead_s=SECONDS, set_by_s=SECONDS, passed_s=st.integers(0, 10**6))
def test_once_the_server_has_dated_an_answer_our_wall_clock_does_not_count(
    ahead_s: int, set_by_s: int, passed_s: int
) -> None:
    """Wrong from the start or set since: the time goes on from that date, within five seconds."""
    clock = FakeClock(EPOCH + timedelta(seconds=ahead_s))
    time = ServerTime(clock)
    time.answered(dated(0), clock.monotonic())
    clock.set_wall(set_by_s)
    clock.leap(passed_s)
    off_s = (time.now() - EPOCH).total_seconds() - passed_s
    assert abs(off_s) <= 5.0


@given(ahead_s=SECONDS, late_s=st.integers(0, 10**6))
def test_a_date_counts_from_when_the_answer_came(ahead_s: int, late_s: int) -> None:
    """However much later it is looked at."""
    clock = FakeClock(EPOCH + timedelta(seconds=ahead_s))
    came_at = clock.monotonic()
    clock.leap(late_s)
    time = ServerTime(clock)
    time.answered(dated(0), came_at)
    assert abs((time.now() - EPOCH).total_seconds() - late_s) <= 5.0


@given(SECONDS)
def test_without_a_date_our_wall_clock_counts(set_by_s: int) -> None:
    """Also after it was set: a proxy may have taken the dates away."""
    clock = FakeClock()
    time = ServerTime(clock)
    for header in (b"", b"now", b"\xff"):
        time.answered(header, clock.monotonic())
    clock.set_wall(set_by_s)
    assert abs((time.now() - clock.now()).total_seconds()) < 1e-3


def test_no_object_is_created_in_the_future() -> None:
    """The date of one that seems to be corrects the time."""
    clock = FakeClock()
    time = ServerTime(clock)
    created_at = format_rfc3339(EPOCH + timedelta(seconds=60.0))
    assert time.age_s(created_at) == 0.0
    assert time.now() == EPOCH, "a question changes nothing"
    time.saw(created_at)
    assert time.age_s(created_at) == 0.0
    assert abs((time.now() - EPOCH).total_seconds() - 60.0) < 1e-3

"""Work that stands back is delayed, never starved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.runtime.standback import StandBack
from tests.support.clock import FakeClock


async def test_nothing_waits_while_nothing_is_urgent() -> None:
    """Without urgent work every key is let through, and nothing is remembered of it."""
    back: StandBack[str] = StandBack(lambda: False, FakeClock(), longest_s=2.0)
    assert not back.must_wait("a")
    assert len(back) == 0


async def test_a_key_waits_for_urgent_work_up_to_the_bound_and_is_then_let_through_once() -> None:
    """However long the urgent work lasts, a key waits no longer than the bound."""
    clock = FakeClock()
    back: StandBack[str] = StandBack(lambda: True, clock, longest_s=2.0)
    assert back.must_wait("a")
    await clock.advance(1.9)
    assert back.must_wait("a")
    await clock.advance(0.1)
    assert not back.must_wait("a")
    assert back.must_wait("a")


async def test_a_key_that_was_let_through_starts_anew_when_things_get_busy_again() -> None:
    """The bound counts from the first refusal of a busy time, not from one long ago."""
    clock = FakeClock()
    busy = [True]
    back: StandBack[str] = StandBack(lambda: busy[0], clock, longest_s=2.0)
    assert back.must_wait("a")
    busy[0] = False
    assert not back.must_wait("a")
    await clock.advance(10.0)
    busy[0] = True
    assert back.must_wait("a")
    back.forget("a")
    assert len(back) == 0


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), max_size=60))
async def test_no_history_of_busy_times_keeps_a_key_longer_than_the_bound(
    history: list[tuple[float, bool]],
) -> None:
    """Between the first refusal and the next passage less than the bound and one step goes by."""
    clock = FakeClock()
    busy = [False]
    back: StandBack[str] = StandBack(lambda: busy[0], clock, longest_s=2.0)
    refused_at: float | None = None
    for step_s, is_busy in history:
        busy[0] = is_busy
        now = clock.monotonic()
        if back.must_wait("a"):
            refused_at = now if refused_at is None else refused_at
            assert now - refused_at < 2.0
        else:
            refused_at = None
        await clock.advance(step_s)

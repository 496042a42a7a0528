"""What is remembered of objects between reconciles, and when they are reconciled again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.runtime.states import State, States
from lean_sandbox.runtime.workers import Requeue
from lean_sandbox.watch.kind import Entry, Key


class Remembered(State):
    """A state that remembers one thing."""

    what: str = ""


def entry(uid: str) -> Entry:
    """Return an object that always has the same name."""
    return Entry(Key("ns", "one"), uid, 1)


def test_a_successor_of_the_same_name_starts_anew() -> None:
    """What is remembered belongs to the uid, and a question makes no state."""
    states: States[Remembered] = States(Remembered)
    assert states.of(entry("a")) is None
    assert not states
    states.begin(entry("a")).what = "seen"
    assert states.of(entry("b")) is None
    assert states.begin(entry("a")).what == "seen"
    assert states.begin(entry("b")).what == ""
    assert states.of(entry("a")) is None


def test_a_state_is_kept_only_while_it_says_something() -> None:
    """Ten thousand objects of which nothing is remembered take no memory."""
    states: States[Remembered] = States(Remembered)
    state = states.begin(entry("a"))
    state.what = "seen"
    states.settle(entry("a"))
    assert states.of(entry("a")) is state
    state.what = ""
    states.settle(entry("a"))
    assert not states


@given(st.lists(st.none() | st.floats(0.0, 1e6)))
def test_of_all_times_that_were_asked_for_the_earliest_counts(asked: list[float | None]) -> None:
    """None of them asks for nothing; without any the key is not reconciled again."""
    requeue = Requeue()
    for seconds in asked:
        requeue.within(seconds)
    assert requeue.result.requeue_after_s == min(
        (one for one in asked if one is not None), default=None
    )

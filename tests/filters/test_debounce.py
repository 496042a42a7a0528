"""Laws of the bounded debounce: quiet keys wait a window, busy keys never longer than the cap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from filters import Debounce

WINDOW_S = 2.0
CAP_S = 5.0


def test_a_quiet_key_is_due_after_the_window() -> None:
    """Not before, and once only."""
    subject = Debounce[str](WINDOW_S, CAP_S)
    assert subject.offer("a", 10.0) == 12.0
    assert subject.due(11.9) == []
    assert subject.due(12.0) == ["a"]
    assert subject.due(100.0) == []


def test_every_offer_pushes_the_key_out_up_to_the_cap() -> None:
    """The window trails the last offer; the cap counts from the first."""
    subject = Debounce[str](WINDOW_S, CAP_S)
    assert [subject.offer("a", now) for now in (0.0, 1.0, 2.5, 4.0, 4.9)] == [
        2.0,
        3.0,
        4.5,
        5.0,
        5.0,
    ]
    assert subject.due(4.99) == []
    assert subject.due(5.0) == ["a"]


def test_after_it_came_due_a_key_starts_anew() -> None:
    """The cap of the next round counts from its own first offer."""
    subject = Debounce[str](WINDOW_S, CAP_S)
    subject.offer("a", 0.0)
    assert subject.due(2.0) == ["a"]
    assert subject.offer("a", 4.0) == 6.0
    assert subject.offer("a", 5.5) == 7.5


def test_keys_come_due_earliest_first() -> None:
    """Keys that were pushed out are handed over in the order of their final times."""
    subject = Debounce[str](WINDOW_S, CAP_S)
    subject.offer("a", 0.0)
    subject.offer("b", 0.5)
    subject.offer("a", 1.0)
    assert subject.next_due() == 2.5
    assert subject.due(10.0) == ["b", "a"]
    assert subject.next_due() is None


def test_without_a_window_a_key_is_due_at_once() -> None:
    """A window of zero switches the debounce off."""
    subject = Debounce[str](0.0, 0.0)
    assert subject.offer("a", 3.0) == 3.0
    assert subject.due(3.0) == ["a"]


@pytest.mark.parametrize(("window_s", "cap_s"), [(-1.0, 5.0), (5.0, 4.0), (float("nan"), 1.0)])
def test_a_window_outside_zero_and_cap_is_refused(window_s: float, cap_s: float) -> None:
    """Such a debounce could not keep its promise."""
    with pytest.raises(ValueError, match="between zero and the cap"):
        Debounce(window_s, cap_s)


gaps = st.floats(0.0, 3.0, allow_nan=False)


@given(
    window_s=st.floats(0.0, 4.0), extra_s=st.floats(0.0, 10.0), steps=st.lists(gaps, max_size=60)
)
def test_no_stream_can_starve_a_key(window_s: float, extra_s: float, steps: list[float]) -> None:
    """Whatever the stream, a key is due by first offer + cap; otherwise not before its window."""
    cap_s = window_s + extra_s
    subject = Debounce[str](window_s, cap_s)
    now = first = last = 0.0
    pending = False
    for step in steps:
        now += step
        if subject.due(now):
            assert pending
            pending = False
        if not pending:
            first = now
            pending = True
        last = now
        due = subject.offer("key", now)
        assert due == min(first + cap_s, last + window_s) == subject.next_due()
        assert due <= first + cap_s
    if pending:
        assert subject.due(first + cap_s) == ["key"]


class DebounceMachine(RuleBasedStateMachine):
    """Many keys against a model that looks at all of them each time."""

    def __init__(self) -> None:
        super().__init__()
        self.subject = Debounce[str](WINDOW_S, CAP_S)
        self.model: dict[str, tuple[float, float]] = {}
        self.now = 0.0

    @rule(key=st.sampled_from("abcde"))
    def offer(self, key: str) -> None:
        """Offer a key, new or pending."""
        first, _ = self.model.get(key, (self.now, 0.0))
        self.model[key] = (first, min(self.now + WINDOW_S, first + CAP_S))
        assert self.subject.offer(key, self.now) == self.model[key][1]

    @rule(step=st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0]))
    def advance(self, step: float) -> None:
        """Let time pass and take what is due."""
        self.now += step
        expected = {key for key, (_, due) in self.model.items() if due <= self.now}
        found = self.subject.due(self.now)
        assert set(found) == expected
        assert [self.model[key][1] for key in found] == sorted(self.model[key][1] for key in found)
        for key in found:
            del self.model[key]

    @invariant()
    def agrees(self) -> None:
        """Both hold the same keys and wait for the same moment."""
        assert len(self.subject._pending) == len(self.model)
        assert self.subject.next_due() == min((due for _, due in self.model.values()), default=None)


TestDebounceAgainstTheModel = DebounceMachine.TestCase

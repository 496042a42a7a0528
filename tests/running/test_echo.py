"""Our own writes come back as events, and cost no pass."""

from __future__ import annotations

from typing import Literal

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lean_sandbox.run.echo import EchoSuppressor, echo_token
from lean_sandbox.run.queue import WorkQueue
from tests.running.hand_clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    """Return a clock that stands still."""
    return HandClock()


@pytest.fixture
def echoes(clock: HandClock) -> EchoSuppressor:
    """Return a suppressor that has seen nothing."""
    return EchoSuppressor(100, 10.0, clock)


class Controller:
    """The path of events and answers to the queue, as the controllers wire it."""

    def __init__(self, clock: HandClock) -> None:
        self.echoes = EchoSuppressor(100, 10.0, clock)
        self.queue: WorkQueue[str] = WorkQueue(clock)

    def event(self, uid: str, version: str) -> None:
        """Handle an event of a live watch."""
        if not self.echoes.is_echo(uid, version):
            self.queue.add(uid, token=echo_token(uid, version))

    def answer(self, uid: str, version: str) -> None:
        """Handle the answer to a write of ours."""
        if self.echoes.expect(uid, version):
            self.queue.withdraw(uid, echo_token(uid, version))

    def passes(self) -> int:
        """Return how many passes are due."""
        count = 0
        while (item := self.queue.get_nowait()) is not None:
            self.queue.done(item.key)
            count += 1
        return count


def test_an_event_after_its_answer_is_dropped(clock: HandClock) -> None:
    """The usual order: the answer announces the version, the event is not queued."""
    controller = Controller(clock)
    controller.answer("u", "7")
    controller.event("u", "7")
    assert controller.passes() == 0


def test_an_event_before_its_answer_is_withdrawn(clock: HandClock) -> None:
    """The other order: the event is queued, the answer takes it back."""
    controller = Controller(clock)
    controller.event("u", "7")
    controller.answer("u", "7")
    assert controller.passes() == 0


def test_an_event_of_someone_else_in_between_keeps_its_pass(clock: HandClock) -> None:
    """Overtaking or not, a foreign version is news."""
    controller = Controller(clock)
    controller.event("u", "7")
    controller.event("u", "8")
    controller.answer("u", "7")
    assert controller.passes() == 1


@given(
    st.lists(
        st.sampled_from(["ours-event-first", "ours-answer-first", "foreign"]),
        min_size=1,
        max_size=12,
    )
)
def test_foreign_changes_always_get_a_pass_and_own_ones_never(
    writes: list[Literal["ours-event-first", "ours-answer-first", "foreign"]],
) -> None:
    """Over any sequence of writes to one object, a pass is due iff someone else wrote."""
    controller = Controller(HandClock())
    for version, who in enumerate(writes):
        if who == "ours-answer-first":
            controller.answer("u", f"{version}")
        controller.event("u", f"{version}")
        if who == "ours-event-first":
            controller.answer("u", f"{version}")
    assert controller.passes() == (1 if "foreign" in writes else 0)


def test_only_the_exact_version_of_the_exact_object_is_an_echo(echoes: EchoSuppressor) -> None:
    """Versions have no order: neither a later nor an earlier one is ours."""
    echoes.expect("u", "7")
    assert not echoes.is_echo("u", "8")
    assert not echoes.is_echo("u", "6")
    assert not echoes.is_echo("v", "7")
    assert echoes.is_echo("u", "7")


def test_a_version_shown_twice_is_an_echo_twice(echoes: EchoSuppressor) -> None:
    """A second watch, or one that resumes, may show it again."""
    echoes.expect("u", "7")
    assert echoes.is_echo("u", "7")
    assert echoes.is_echo("u", "7")
    assert echoes.statistics().suppressed == 2


def test_a_write_that_changed_nothing_expects_nothing(echoes: EchoSuppressor) -> None:
    """Its answer carries a version that was someone else's; that event is news."""
    assert not echoes.expect("u", "7", based_on="7")
    assert not echoes.is_echo("u", "7")


def test_an_answer_without_identity_expects_nothing(echoes: EchoSuppressor) -> None:
    """An answer without uid or version matches no event."""
    assert not echoes.expect("", "7")
    assert not echoes.expect("u", "")
    assert echoes.statistics().expected == 0


def test_an_expected_echo_is_forgotten_after_its_time(
    clock: HandClock, echoes: EchoSuppressor
) -> None:
    """The memory is short: an event that comes very late costs a pass."""
    echoes.expect("u", "7")
    clock.move(10)
    assert not echoes.is_echo("u", "7")


def test_a_seen_event_is_forgotten_after_its_time(clock: HandClock, echoes: EchoSuppressor) -> None:
    """An answer that comes very late finds nothing to withdraw."""
    echoes.is_echo("u", "7")
    assert echoes.overtaken("u", "7")
    clock.move(10)
    assert not echoes.overtaken("u", "7")
    assert not echoes.expect("u", "7")


def test_the_memory_is_bounded(echoes: EchoSuppressor) -> None:
    """However many objects are written or seen, only the latest are kept."""
    for n in range(1000):
        echoes.expect(f"w{n}", "1")
        echoes.is_echo(f"s{n}", "1")
    seen = echoes.statistics()
    assert (seen.awaited, seen.remembered) == (100, 100)

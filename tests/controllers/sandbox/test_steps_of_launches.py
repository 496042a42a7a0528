"""Which statuses are mere steps of a launch, and which say something that cannot wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lean_sandbox.controllers.sandbox.throttle import (
    StatusThrottle,
    acknowledges,
    facts_of,
    is_before_ready,
    is_on_the_way_up,
    is_unplaced,
)
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.watch.kind import Key

STARTS = Condition("Ready", "False", "DependenciesNotReady", observedGeneration=1)
UP = Condition("Ready", "True", "DependenciesReady", observedGeneration=1)
RUNS = Condition("Suspended", "False", "NotSuspended")
SUSPENDED = Condition("Suspended", "True", "PodTerminated")
FINISHED = Condition("Finished", "True", "PodSucceeded")


def status(*conditions: Condition) -> SandboxStatus:
    """Return a status with these conditions."""
    return SandboxStatus(conditions=conditions)


def ready(state: str, reason: str) -> Condition:
    """Return a condition Ready."""
    return Condition("Ready", state, reason)


@pytest.mark.parametrize(
    ("one", "is_before"),
    [
        (status(), True),
        (status(RUNS), True),
        (status(STARTS), True),
        (status(ready("False", "")), True),
        (status(ready("Unknown", "DependenciesNotReady")), True),
        (status(ready("False", "SandboxSuspended")), True),
        (status(ready("False", "SandboxExpired")), True),
        (status(ready("False", "PodFailed")), False),
        (status(ready("False", "ReconcilerError")), False),
        (status(UP), False),
        (status(ready("True", "DependenciesNotReady")), False),
        (status(ready("True", "")), False),
    ],
)
def test_a_sandbox_is_before_ready_whose_status_says_no_more(
    one: SandboxStatus, *, is_before: bool
) -> None:
    """Whoever was Ready, or failed, was further."""
    assert is_before_ready(one) is is_before


NEW = status(STARTS, RUNS)


@pytest.mark.parametrize(
    ("old", "new", "is_step"),
    [
        (status(), NEW, True),
        (NEW, NEW, True),
        (status(ready("False", "SandboxSuspended")), NEW, True),
        (status(UP, RUNS), NEW, False),
        (status(ready("False", "PodFailed")), NEW, False),
        (status(), status(UP, RUNS), False),
        (status(), status(RUNS), False),
        (status(), status(STARTS), False),
        (status(), status(STARTS, SUSPENDED), False),
        (status(), status(ready("False", "ReconcilerError"), RUNS), False),
        (status(), status(STARTS, RUNS, FINISHED), False),
        (status(FINISHED), NEW, False),
    ],
)
def test_a_step_of_a_launch_is_on_the_way_from_nothing_to_ready(
    old: SandboxStatus, new: SandboxStatus, *, is_step: bool
) -> None:
    """Readiness, its loss, an error, the end and a suspension are none."""
    assert is_on_the_way_up(old, new) is is_step


def of_generation(number: int | None) -> SandboxStatus:
    """Return a status about a generation."""
    return status(Condition("Ready", "False", "DependenciesNotReady", observedGeneration=number))


@pytest.mark.parametrize(
    ("old", "new", "is_first"),
    [
        (of_generation(1), of_generation(2), True),
        (of_generation(2), of_generation(2), False),
        (of_generation(None), of_generation(1), True),
        (status(), of_generation(1), False),
        (of_generation(1), status(), False),
    ],
)
def test_the_first_status_of_another_generation_acknowledges_it(
    old: SandboxStatus, new: SandboxStatus, *, is_first: bool
) -> None:
    """That of the first generation acknowledges nothing."""
    assert acknowledges(old, new) is is_first


def placed(state: str, reason: str = "") -> SandboxStatus:
    """Return a status that says where the Pod can be placed."""
    return status(STARTS, Condition("PodScheduled", state, reason))


@pytest.mark.parametrize(
    ("old", "new", "is_news"),
    [
        (status(), placed("False", "Unschedulable"), True),
        (placed("True"), placed("False", "Unschedulable"), True),
        (placed("False", "SchedulingGated"), placed("False", "Unschedulable"), True),
        (placed("False", "Unschedulable"), placed("False", "Unschedulable"), False),
        (status(), placed("True"), False),
        (placed("False", "Unschedulable"), placed("True"), False),
        (placed("False", "Unschedulable"), status(), False),
    ],
)
def test_that_no_node_fits_is_news_once_for_each_reason(
    old: SandboxStatus, new: SandboxStatus, *, is_news: bool
) -> None:
    """That one fits is not."""
    assert is_unplaced(old, new) is is_news


def test_facts_are_those_that_are_there() -> None:
    """A trouble, an address, both or neither."""
    assert facts_of(trouble="", address=()) == frozenset()
    assert facts_of(trouble="x", address=()) == {"trouble"}
    assert facts_of(trouble="", address=("a",)) == {"address"}


@pytest.mark.parametrize("hold", [StatusThrottle.hold_step, StatusThrottle.hold_fetch])
def test_turns_come_five_a_second(hold: Callable[[StatusThrottle, Key, float], float]) -> None:
    """After the first hundred, which have turns at once."""
    launches = StatusThrottle(2.0, 30.0)
    keys = [Key("ns", f"sb-{number}") for number in range(110)]
    for key in keys:
        launches.hold_step(key, 0.0)
    waits_s = [hold(launches, key, 100.0) for key in keys]
    assert waits_s[:100] == pytest.approx([0.0] * 100)
    assert waits_s[100:] == pytest.approx([(number + 1) / 5.0 for number in range(10)])


def test_each_later_step_waits_twice_as_long_and_five_minutes_at_most() -> None:
    """However many there were: a Pod without a node may show another message for weeks."""
    launches = StatusThrottle(2.0, 30.0)
    key = Key("ns", "sb")
    waits_s = []
    for _ in range(2000):
        launches.published(key, 0.0, facts=frozenset())
        waits_s.append(launches.hold_step(key, 0.0))
    assert waits_s[:6] == [30.0, 60.0, 120.0, 240.0, 300.0, 300.0]
    assert set(waits_s[6:]) == {300.0}

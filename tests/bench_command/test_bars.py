"""Bounds: one table, judged from the figures of a run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.bench.arguments import parse
from lean_sandbox.bench.bars import BARS, FIGURES, Bar, judge

_BAR = Bar("burst", "p50_ms", 1.5, "command", over="floor.p50_ms")
_POSITIVE = st.floats(min_value=0.01, max_value=1e6)


def test_every_bar_names_a_figure_and_a_command_that_can_be_run() -> None:
    """What a bar is a multiple of is measured by its command too."""
    for bar in BARS:
        assert bar.figure in FIGURES
        program, bench, *words = bar.command.split()
        assert (program, bench) == ("lean-sandbox", "bench")
        wanted = parse(words).wanted()
        assert bar.scenario in wanted
        if bar.over:
            scenario, _, figure = bar.over.partition(".")
            assert scenario in wanted
            assert figure in FIGURES


@given(_POSITIVE, _POSITIVE)
def test_a_multiple_is_kept_up_to_its_bound(value: float, base: float) -> None:
    """The bound is the multiple, to a hundredth; what is compared is what is shown."""
    (judged,) = judge({"burst": {"p50_ms": value}, "floor": {"p50_ms": base}}, [_BAR])
    assert judged.bound is not None
    assert judged.bound == pytest.approx(1.5 * base, abs=0.0051)
    assert judged.is_met is (round(value, 2) <= judged.bound)


def test_what_was_not_measured_is_neither_kept_nor_missed() -> None:
    """Without the floor, or without the figure, there is no verdict."""
    (judged,) = judge({"burst": {"p50_ms": 3.0}}, [_BAR])
    assert (judged.value, judged.bound, judged.is_met) == (3.0, None, None)
    (judged,) = judge({"burst": {"p50_ms": None}, "floor": {"p50_ms": 2.0}}, [_BAR])
    assert (judged.value, judged.bound, judged.is_met) == (None, 3.0, None)


def test_only_scenarios_that_ran_are_judged() -> None:
    """A run of one scenario shows its bars alone."""
    assert {judged.scenario for judged in judge({"idle": {}})} == {"idle"}


def test_zero_is_a_bound() -> None:
    """One answer 409 is one too many."""
    bar = Bar("burst", "conflicts", 0, "command")
    assert [judge({"burst": {"conflicts": n}}, [bar])[0].is_met for n in (0, 1)] == [True, False]

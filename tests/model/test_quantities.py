"""Quantities compare by value, not by notation."""

from __future__ import annotations

from fractions import Fraction
from math import isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.comparison import canonical, parse_quantity


def same_quantity(value: Any) -> Any:
    """Return what stands for a resource limit when objects are compared."""
    return canonical(value, "cpu", "limits")


@pytest.mark.template_case(46)
@pytest.mark.pool_case(81)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1", "1000m"),
        ("1Gi", "1024Mi"),
        ("1.5Gi", "1536Mi"),
        ("1k", "1000"),
        ("1e3", "1k"),
        ("1E3", 1000),
        ("0.5", "500m"),
        (".5", "+0.50"),
        ("1.", 1),
        (0.25, "250m"),
        (2, "2"),
        ("1E", "1000P"),
        ("0", "0Gi"),
        ("1n", "0.1n"),
        ("-1500m", "-1.5"),
        ("1e64", "1" + "0" * 64),
    ],
)
def test_notations_of_one_value_are_equal(left: str | float, right: str | float) -> None:
    """Template case 46, Pool case 81: `1000m` is 1, `1024Mi` is 1Gi; finer than nano rounds up."""
    assert same_quantity(left) == same_quantity(right)


@pytest.mark.parametrize(("left", "right"), [("1", "1001m"), ("1G", "1Gi"), ("1M", "1m")])
def test_different_values_differ(left: str, right: str) -> None:
    """Decimal and binary suffixes, and mega and milli, are not mixed up."""
    assert same_quantity(left) != same_quantity(right)


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1gi", "0x10", "1e", "1e65", "1e1000", "--1"])
def test_what_is_no_quantity_is_refused_and_compared_literally(text: str) -> None:
    """A wrong text has no value, and equals only itself when compared."""
    assert parse_quantity(text) is None
    assert same_quantity(text) == text


def test_other_json_values_are_left_alone() -> None:
    """Null and booleans are no quantities."""
    assert same_quantity(None) is None
    assert same_quantity(value=True) is True


NUMBERS = st.integers(-(10**9), 10**9)


@given(NUMBERS, st.sampled_from([("k", 10**3), ("M", 10**6), ("Ki", 2**10), ("Mi", 2**20)]))
def test_a_suffix_multiplies(number: int, suffix: tuple[str, int]) -> None:
    """A suffix is nothing but a factor."""
    text, factor = suffix
    assert parse_quantity(f"{number}{text}") == number * factor
    assert same_quantity(f"{number}{text}") == same_quantity(str(number * factor))


@given(NUMBERS, st.integers(-9, 9))
def test_an_exponent_shifts(number: int, power: int) -> None:
    """An exponent is a power of ten."""
    assert parse_quantity(f"{number}e{power}") == Fraction(number) * Fraction(10) ** power


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_no_number_of_json_breaks_the_comparison(value: float) -> None:
    """Whatever the wire holds, canonical values can be compared."""
    found = same_quantity(value)
    assert isinstance(found, float | Fraction)
    assert found == same_quantity(value) or isnan(value)

"""Kubernetes quantities (``1500m``, ``1Gi``, ``2e3``) as numbers, so that they compare by value."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Final

_QUANTITY: Final = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,4})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)
_SUFFIX: Final = {
    **{letter: Fraction(1000) ** power for power, letter in enumerate("num", -3)},
    **{letter: Fraction(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}
# The finest unit the API keeps; finer values are rounded away from zero.
_NANO: Final = 10**9
# Far beyond every value the API accepts; guards against exponents that would eat all memory.
_MAX_EXPONENT: Final = 64
# Arithmetic on very many digits takes seconds; the API server itself stores none of that length.
_MOST_TEXT: Final = 128


def parse_quantity(value: Any) -> Fraction | None:
    """Return the exact value of a quantity as it stands in JSON, None for what is no quantity."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        text = str(value)
    except ValueError:
        # An integer of thousands of digits.
        return None
    match = _QUANTITY.fullmatch(text) if len(text) <= _MOST_TEXT else None
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    power = int(exponent[1:]) if exponent else 0
    if abs(power) > _MAX_EXPONENT:
        return None
    return _rounded(Fraction(number) * Fraction(10) ** power * _SUFFIX.get(suffix, Fraction(1)))


def canonical_quantity(value: Any) -> Any:
    """Return a value that equals that of every other notation; what is no quantity stays itself."""
    number = parse_quantity(value)
    return value if number is None else number


def _rounded(value: Fraction) -> Fraction:
    scaled = value * _NANO
    if scaled.denominator == 1:
        return value
    away = scaled.numerator // scaled.denominator + (1 if scaled > 0 else 0)
    return Fraction(away, _NANO)

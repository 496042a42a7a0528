"""Kubernetes quantities (``1500m``, ``1Gi``, ``2e3``) as numbers, so that they compare by value."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation, localcontext
from fractions import Fraction
from typing import Any, Final

_QUANTITY: Final = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,4})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)
_SUFFIX: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
# The finest unit the API keeps; finer values are rounded away from zero.
_NANO: Final = 10**9
# Far beyond every value the API accepts; guards against exponents that would eat all memory.
_MAX_EXPONENT: Final = 64
# Arithmetic on very many digits takes seconds; the API server itself stores none of that length.
_MOST_TEXT: Final = 128


def parse_quantity(value: str | float) -> Fraction:
    """Return the exact value of a quantity as it stands in JSON, text or plain number.

    Raises:
        ValueError: ``value`` is not a quantity.

    """
    text = value if isinstance(value, str) else _plain(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _MOST_TEXT else None
    if match is None:
        raise ValueError(f'"{text[:_MOST_TEXT]}" is not a quantity')
    number, exponent, suffix = match.groups()
    if exponent:
        power = int(exponent[1:])
        if abs(power) > _MAX_EXPONENT:
            raise ValueError(f'the exponent of "{value}" is out of range')
        return _rounded(Fraction(number) * Fraction(10) ** power)
    return _rounded(Fraction(number) * _SUFFIX.get(suffix or "", Fraction(1)))


def same_quantity(left: Any, right: Any) -> bool:
    """Return whether two JSON values mean the same quantity; what is none compares literally."""
    return bool(canonical_quantity(left) == canonical_quantity(right))


def canonical_quantity(value: Any) -> Any:
    """Return a value that equals that of every other notation; what is no quantity stays itself."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    try:
        return parse_quantity(value)
    except ValueError:
        return value


def _plain(value: float) -> str:
    try:
        with localcontext() as context:
            context.prec = 40
            return format(Decimal(str(value)), "f")
    except InvalidOperation:
        return ""


def _rounded(value: Fraction) -> Fraction:
    scaled = value * _NANO
    if scaled.denominator == 1:
        return value
    away = scaled.numerator // scaled.denominator + (1 if scaled > 0 else 0)
    return Fraction(away, _NANO)

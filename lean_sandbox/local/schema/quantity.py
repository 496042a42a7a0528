"""Quantities (apimachinery resource.Quantity) as exact numbers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

_QUANTITY = re.compile(
    r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d+))?\Z", re.ASCII
)
_BINARY = {name: 1024**power for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {
    "n": -9,
    "u": -6,
    "m": -3,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}


def parse_quantity(value: Any) -> Fraction | None:
    """Return the number a quantity stands for, None when the text is not a quantity."""
    found = _QUANTITY.match(str(value)) if not isinstance(value, bool) else None
    if found is None:
        return None
    sign, digits, binary, decimal, exponent = found.groups()
    # An exponent of thousands of digits would be a number of gigabytes.
    if exponent and abs(int(exponent)) > 64:
        return None
    number = Fraction(digits if digits[0] != "." else "0" + digits)
    if binary:
        number *= _BINARY[binary]
    else:
        number *= Fraction(10) ** (_DECIMAL[decimal] if decimal else int(exponent or 0))
    return -number if sign == "-" else number

"""String formats, patterns, quantities and numeric ranges."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import re2

from lean_sandbox.model.comparison import parse_quantity

INTEGER_RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
JSON_TYPES: Final = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
QUANTITY_TEXT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
# As the format of a schema has it: any separator before the fraction, any offset.
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(.\d+)?(z|[+-]\d\d:\d\d)\Z", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z")


def _parses(parse: Callable[[Any], object], text: str) -> bool:
    try:
        parse(text)
    except (ValueError, binascii.Error):
        return False
    return True


def is_date_time(text: str) -> bool:
    """Say whether a schema takes a text for a time; what follows another "T" does not count."""
    day, *rest = text.lower().split("t")
    found = _CLOCK.match(rest[0]) if rest else None
    if found is None or not _is_date(day):
        return False
    hour, minute, second = found.group(1, 2, 3)
    return hour <= "23" and minute <= "59" and second <= "59"


def _is_date(text: str) -> bool:
    # The year 0 is unknown to Python; it has the days of the year 4.
    known = "0004" + text[4:] if text.startswith("0000") else text
    return _DATE.match(text) is not None and _parses(date.fromisoformat, known)


_CHECKS: dict[str, Callable[[str], bool]] = {
    "date-time": is_date_time,
    "datetime": is_date_time,
    "date": _is_date,
    "byte": lambda text: _parses(lambda data: base64.b64decode(data, validate=True), text),
    "ipv4": lambda text: _parses(ipaddress.IPv4Address, text),
    "ipv6": lambda text: _parses(ipaddress.IPv6Address, text),
    "cidr": lambda text: "/" in text and _parses(ipaddress.ip_interface, text),
    "uuid": lambda text: _UUID.match(text) is not None,
}


_RE2: Final = re2.Options()
_RE2.log_errors = False


class PatternError(ValueError):
    """A text is no regular expression of RE2."""


@lru_cache(maxsize=512)
def compile_pattern(text: str) -> Any:
    """Return a pattern of RE2, whose time is linear in the length of a text. Raises PatternError.

    It is asked by `search`.
    """
    try:
        return re2.compile(text, _RE2)
    except re2.error as error:
        said = error.args[0]
        shown = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise PatternError(f"error parsing regexp: {shown}") from None


def matches_format(text: str, name: str) -> bool:
    """Say whether a text has a format; formats that are not known are not checked."""
    check = _CHECKS.get(name)
    return check is None or check(text)


_DECIMAL: Final = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"} | {
    18: "E"
}
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def canonical_quantity(value: Any) -> str | None:
    """Return the one way to write a quantity in its family of suffixes, None for other values."""
    text = str(value).strip()
    amount = None if isinstance(value, bool) else parse_quantity(text)
    if amount is None:
        return None
    if amount == 0:
        return "0"
    if text.endswith("i") and abs(amount) >= 1024 and amount.denominator == 1:
        return _binary(int(amount))
    return _decimal(amount, is_exponent=re.search(r"[eE][+-]?\d", text) is not None)


def _binary(amount: int) -> str:
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY) - 1:
        amount = amount // 1024
        power = power + 1
    return f"{amount}{_BINARY[power]}"


def _decimal(amount: Fraction, *, is_exponent: bool = False) -> str:
    nanos = int(amount * 10**9)
    power = -9
    while nanos % 1000 == 0 and power < 18:
        nanos = nanos // 1000
        power = power + 3
    if is_exponent:
        return f"{nanos}e{power}" if power else str(nanos)
    return f"{nanos}{_DECIMAL[power]}"


def rounded_quantity(text: str) -> str:
    """Return a quantity of a Pod, which has no more than three digits of fraction."""
    amount = parse_quantity(text)
    if amount is None or (amount * 1000).denominator == 1:
        return text
    return _decimal(Fraction(-(-(amount * 1000).numerator // (amount * 1000).denominator), 1000))

"""Formats of texts, as schemas name them, and checks of addresses."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.model.times import parse_duration

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


# Units of durations, in seconds, beside those of Go; a plural is the same.
_UNITS: Final = {
    **dict.fromkeys(("sec", "second"), 1),
    **dict.fromkeys(("min", "minute"), 60),
    **dict.fromkeys(("hr", "hour"), 3600),
    **dict.fromkeys(("d", "day"), 86400),
    **dict.fromkeys(("w", "wk", "week"), 604800),
}


def duration_s(text: str) -> float:
    """Return the seconds of a duration as schemas have them: of Go, or such as `2 days`.

    Raises ValueError.
    """
    try:
        return parse_duration(text)
    except ValueError:
        found = re.findall(r"(\d+)\s*([A-Za-zµ]+)", text)
    total_s = 0.0
    for count, unit in found:
        factor = _UNITS.get(unit.lower().removesuffix("s"))
        total_s += parse_duration(count + unit) if factor is None else int(count) * factor
    if not found:
        raise ValueError(text)
    return total_s


def without_zeros(text: str) -> str:
    """Return an address without the zeros that its numbers begin with."""
    return re.sub(r"(?<![\d:a-f])0+(?=\d)", "", text)


def _is_isbn(text: str) -> bool:
    """Say whether the number of a book has the right last digit."""
    given = re.sub("[ -]", "", text).upper()
    if not re.fullmatch(r"\d{9}[\dX]|\d{13}", given, re.ASCII):
        return False
    digits = [10 if char == "X" else int(char) for char in given]
    if len(digits) == 10:
        return sum(at * digit for at, digit in enumerate(digits, 1)) % 11 == 0
    return (sum(digits[::2]) + 3 * sum(digits[1::2])) % 10 == 0


def _is_card(digits: str) -> bool:
    """Say whether the number of a card has the right last digit."""
    if not 13 <= len(digits) <= 19:
        return False
    doubled = [int(char) * (1 + at % 2) for at, char in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


_CHECKS: dict[str, Callable[[str], bool]] = {
    "date-time": is_date_time,
    "datetime": is_date_time,
    "date": _is_date,
    "byte": lambda text: (
        text != "" and _parses(lambda data: base64.b64decode(data, validate=True), text)
    ),
    "duration": lambda text: _parses(duration_s, text),
    "ipv4": lambda text: _parses(ipaddress.IPv4Address, without_zeros(text)),
    "ipv6": lambda text: "%" not in text and _parses(ipaddress.IPv6Address, text),
    "cidr": lambda text: "/" in text and _parses(ipaddress.ip_interface, without_zeros(text)),
    "uuid": lambda text: _UUID.match(text) is not None,
    "k8s-short-name": lambda text: not causes.rfc1123_label_problems(text),
    "k8s-long-name": lambda text: not causes.subdomain_problems(text),
    "isbn": _is_isbn,
    "isbn10": lambda text: len(re.sub("[ -]", "", text)) == 10 and _is_isbn(text),
    "isbn13": lambda text: len(re.sub("[ -]", "", text)) == 13 and _is_isbn(text),
    "creditcard": lambda text: _is_card(re.sub("[^0-9]+", "", text)),
}
_BYTE: Final = r"(0|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])"
_LABEL: Final = r"[a-zA-Z0-9](-?[a-zA-Z0-9]){0,62}"
# Formats that are one pattern.
_PATTERNS: Final = {
    "bsonobjectid": "[0-9a-fA-F]{24}",
    "email": r"(.*<)?[^\s@<>]+@[^\s@<>]+>?",
    "hexcolor": "#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})",
    "hostname": rf"({_LABEL}|({_LABEL}\.)+[a-zA-Z]{{2,63}})",
    "mac": (
        "([0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}|[0-9a-fA-F]{4}([.][0-9a-fA-F]{4}){2}"
        "|[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){7}|[0-9a-fA-F]{4}([.][0-9a-fA-F]{4}){3})"
    ),
    "rgbcolor": rf"rgb\(\s*{_BYTE}\s*,\s*{_BYTE}\s*,\s*{_BYTE}\s*\)",
    "ssn": r"\d{3}[- ]?\d{2}[- ]?\d{4}",
    "uri": r"([a-zA-Z][-+.a-zA-Z0-9]*:|/)[^\s\x00-\x1f]*",
    **{
        f"uuid{version}": (
            f"[0-9a-fA-F]{{8}}-?[0-9a-fA-F]{{4}}-?{version}[0-9a-fA-F]{{3}}-?"
            + ("[89abAB]" if version != 3 else "[0-9a-fA-F]")
            + "[0-9a-fA-F]{3}-?[0-9a-fA-F]{12}"
        )
        for version in (3, 4, 5)
    },
}


def matches_format(text: str, name: str) -> bool:
    """Say whether a text has a format; formats that are not known are not checked."""
    if (pattern := _PATTERNS.get(name)) is not None:
        return re.fullmatch(pattern, text) is not None
    check = _CHECKS.get(name)
    return check is None or check(text)


# ------------------------------------------------------------------ addresses


def address(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check an IP address."""
    if value is not None and not _is_address(value):
        text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        if _is_address(without_zeros(value)):
            text = "must not have leading 0s"
        yield causes.invalid(where, value, text)


def _is_address(text: str) -> bool:
    try:
        return ipaddress.ip_address(text) is not None and "%" not in text
    except ValueError:
        return False


def parsed_network(text: str) -> Any:
    """Return a network of addresses, None for another text."""
    given, _, length = text.partition("/")
    if not re.fullmatch("0|[1-9][0-9]*", length) or "%" in given:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def network(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check a network of addresses, in its one form."""
    found = parsed_network(value)
    if isinstance(found, ipaddress.IPv6Network) and found.network_address.ipv4_mapped:
        yield causes.invalid(where, value, "must not have an IPv4-mapped IPv6 address")
    elif found is not None:
        if found.network_address != ipaddress.ip_address(value.partition("/")[0]):
            text = "must not have bits set beyond the prefix length"
            yield causes.invalid(where, value, text)
    elif parsed_network(without_zeros(value)) is not None:
        yield causes.invalid(where, value, "must not have leading 0s in IP or prefix length")
    else:
        text = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        yield causes.invalid(where, value, text)

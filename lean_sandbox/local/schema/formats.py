"""String formats and numeric ranges that schemas name."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from typing import Any

INTEGER_RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_DATE_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)([.,]\d+)?"
    r"([Zz]|[+-]([01]\d|2[0-3]):?[0-5]\d)\Z",
    re.ASCII,
)
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z")


def _parses(parse: Callable[[Any], object], text: str) -> bool:
    try:
        parse(text)
    except (ValueError, binascii.Error):
        return False
    return True


def is_date_time(text: str) -> bool:
    """Say whether a text is an RFC 3339 time with a zone."""
    found = _DATE_TIME.match(text)
    return found is not None and _parses(date.fromisoformat, text[:10])


def _is_date(text: str) -> bool:
    return len(text) == 10 and _parses(date.fromisoformat, text)


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


def matches_format(text: str, name: str) -> bool:
    """Say whether a text has a format; formats that are not known are not checked."""
    check = _CHECKS.get(name)
    return check is None or check(text)

"""Instants and durations in the two notations Kubernetes uses: RFC 3339 and Go durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

# Whatever Go's time.Parse reads: hours of one digit, a comma, offsets of up to 24:60. The date-time
# format of a CRD schema ignores case, so "t" and "z" can be stored as well.
_DATE_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?"
    r"(?:[Zz]|([+-])([01]\d|2[0-4]):([0-5]\d|60))",
    re.ASCII,
)
_DURATION: Final = re.compile(
    r"[+-]?(?:0|(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)", re.ASCII
)
_DURATION_PART: Final = re.compile(r"(\d*)\.?(\d*)([a-zµμ]+)", re.ASCII)

_SECOND_NS: Final = 1_000_000_000
_UNIT_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": _SECOND_NS,
    "m": 60 * _SECOND_NS,
    "h": 3600 * _SECOND_NS,
}
_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # noqa: SIM905
_MAX_NS: Final = 2**63 - 1
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)
# A timer may fire slightly early by the wall clock, which is read in whole microseconds.
_TIMER_SLACK_S: Final = 0.001


def parse_rfc3339(text: str) -> datetime:
    """Return the instant written as ``text``, in UTC; raises ValueError.

    Digits beyond microseconds are cut; one outside the years 1 to 9999 becomes the nearest inside.
    """
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        raise ValueError(f'"{text}" is not an RFC 3339 date-time')
    *parts, fraction, sign, hours, minutes = found.groups()
    year, month, day, hour, minute, second = map(int, parts)
    microsecond = int((fraction or "")[:6].ljust(6, "0"))
    try:
        # Year 0 is unknown to datetime; it has the days of the year 4.
        clock = datetime(year or 4, month, day, hour, minute, second, microsecond, UTC)
    except ValueError as error:
        raise ValueError(f'"{text}" is not an RFC 3339 date-time: {error}') from None
    if year == 0:
        return _EARLIEST
    ahead = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        return clock + ahead if sign == "-" else clock - ahead
    except OverflowError:
        return _LATEST if sign == "-" else _EARLIEST


def no_earlier(text: str, than: str) -> datetime:
    """Return the later of two written instants; an empty ``than`` is none. Raises ValueError."""
    written = parse_rfc3339(text)
    return max(written, parse_rfc3339(than)) if than else written


def parse_http_date(text: str) -> datetime:
    """Return the instant of a date as servers write it (RFC 9110, 5.6.7); raises ValueError."""
    _, day, month, year, clock, _ = text.split()
    return datetime.fromisoformat(f"{year}-{_MONTHS.index(month) + 1:02}-{day}T{clock}+00:00")


def moment_s(text: str | None, field: str) -> float | None:
    """Return a written instant in seconds since the epoch, None where there is none.

    Raises ValueError with the name of the field: ``text`` is not a date-time.
    """
    if not text:
        return None
    try:
        return parse_rfc3339(text).timestamp()
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


def format_rfc3339(instant: datetime, timespec: str = "seconds") -> str:
    """Return ``instant`` in UTC, by default in whole seconds."""
    if instant.utcoffset() is None:
        raise ValueError("an instant without a time zone cannot be written")
    text = instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=timespec)
    return f"{text}Z"


def format_micro_time(instant: datetime) -> str:
    """Return ``instant`` in UTC with six digits of fraction, as the API writes a MicroTime."""
    return format_rfc3339(instant, "microseconds")


def has_come(moment_s: float | None, now: datetime) -> bool:
    """Return whether a moment (seconds since the epoch) has come; None never does."""
    return moment_s is not None and now.timestamp() + _TIMER_SLACK_S >= moment_s


def time_left_s(moment_s: float | None, now: datetime) -> float | None:
    """Return the seconds until a moment, zero or less once it has come, None if it never does."""
    if moment_s is None:
        return None
    left_s = moment_s - now.timestamp()
    return min(left_s, 0.0) if has_come(moment_s, now) else left_s


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration such as ``-1.5h`` or ``0``; raises ValueError."""
    if _DURATION.fullmatch(text) is None:
        raise ValueError(f'invalid duration "{text}"')
    total_ns = 0
    for whole, fraction, unit in _DURATION_PART.findall(text):
        total_ns += int(whole or 0) * _UNIT_NS[unit]
        total_ns += int(fraction or 0) * _UNIT_NS[unit] // 10 ** len(fraction)
    if total_ns > _MAX_NS:
        raise ValueError(f'invalid duration "{text}"')
    return (-total_ns if text.startswith("-") else total_ns) / _SECOND_NS


def format_duration(seconds: float) -> str:
    """Return ``seconds`` as Go writes a duration: ``1m30s``, ``1h0m0s``, ``300ms``, ``0s``."""
    # Whole seconds apart: with them the product would be rounded to a neighbour.
    whole, rest = divmod(abs(seconds), 1.0)
    total_ns = int(whole) * _SECOND_NS + round(rest * _SECOND_NS)
    sign = "-" if seconds < 0 and total_ns else ""
    if total_ns < _SECOND_NS:
        unit = next((u for u in ("ms", "\u00b5s", "ns") if total_ns >= _UNIT_NS[u]), "s")
        return f"{sign}{_decimal(total_ns, _UNIT_NS[unit])}{unit}"
    minutes, rest_ns = divmod(total_ns, 60 * _SECOND_NS)
    hours, minutes = divmod(minutes, 60)
    text = _decimal(rest_ns, _SECOND_NS) + "s"
    if hours:
        text = f"{hours}h{minutes}m{text}"
    elif minutes:
        text = f"{minutes}m{text}"
    return sign + text


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0")

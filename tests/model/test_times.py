"""RFC 3339 instants and Go durations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.sandbox import view_of
from lean_sandbox.model.times import (
    format_duration,
    format_rfc3339,
    has_come,
    parse_duration,
    parse_http_date,
    parse_rfc3339,
    time_left_s,
)
from tests.model.support import sandbox


@pytest.mark.case(146)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.5+02:00", datetime(2026, 1, 2, 1, 4, 5, 500000, tzinfo=UTC)),
        ("2026-01-02T03:04:05.123456789-00:30", datetime(2026, 1, 2, 3, 34, 5, 123456, UTC)),
        ("2026-10-22T17:15:00.123456+00:00", datetime(2026, 10, 22, 17, 15, 0, 123456, UTC)),
        ("2026-01-02t03:04:05z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05,5Z", datetime(2026, 1, 2, 3, 4, 5, 500000, UTC)),
        ("2026-01-02T03:04:05+24:60", datetime(2026, 1, 1, 2, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05-24:00", datetime(2026, 1, 3, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T3:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ],
)
def test_offset_and_fraction_are_honoured(text: str, expected: datetime) -> None:
    """Case 146: a date-time is an instant, however its offset and fraction are written."""
    assert parse_rfc3339(text) == expected
    assert parse_rfc3339(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-01-02",
        "2026-01-02T03:04:05",
        "2026-01-02 03:04:05Z",
        "2026-13-02T03:04:05Z",
        "2026-02-30T03:04:05Z",
        "2026-01-02T24:00:00Z",
        "2026-01-02T03:04:60Z",
        "2026-01-02T03:04:05.Z",
        "2026-01-02T03:04:05;5Z",
        "2026-01-02T03:04:05+25:00",
        "2026-01-02T03:04:05+00:61",
        "2026-01-02T03:04:05+0100",
        "2026-01-02T03:4:05Z",
        "0000-02-30T03:04:05Z",
        "2026-01-02T03:04:05Z\n",
        "٢٠٢٦-01-02T03:04:05Z",
    ],
)
def test_what_is_no_date_time_is_refused(text: str) -> None:
    """A text that is no RFC 3339 date-time raises ValueError and is named in the message."""
    with pytest.raises(ValueError, match="not an RFC 3339 date-time") as error:
        parse_rfc3339(text)
    assert text in str(error.value)


@given(
    moment=st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),  # noqa: DTZ001
    digits=st.text("0123456789", min_size=1, max_size=12) | st.just(""),
    separators=st.tuples(st.sampled_from("Tt"), st.sampled_from(".,"), st.sampled_from("Zz")),
    offset=st.none() | st.tuples(st.sampled_from("+-"), st.integers(0, 24), st.integers(0, 60)),
)
def test_whatever_a_schema_and_go_let_through_is_read(
    moment: datetime,
    digits: str,
    separators: tuple[str, str, str],
    offset: tuple[str, int, int] | None,
) -> None:
    """Either separator of the fraction, any number of digits, offsets of up to 24:60."""
    between, point, zone = separators
    text = moment.isoformat(between, "seconds") + (point + digits if digits else "")
    ahead = timedelta()
    if offset is not None:
        sign, hours, minutes = offset
        zone = f"{sign}{hours:02}:{minutes:02}"
        ahead = timedelta(hours=hours, minutes=minutes) * (-1 if sign == "-" else 1)
    microsecond = int(digits[:6].ljust(6, "0"))
    assert parse_rfc3339(text + zone) == moment.replace(microsecond=microsecond, tzinfo=UTC) - ahead


def test_instants_beyond_the_calendar_are_clamped() -> None:
    """A date-time used as "never" stays usable when its offset leads out of the calendar."""
    latest = datetime.max.replace(tzinfo=UTC)
    earliest = datetime.min.replace(tzinfo=UTC)

    assert parse_rfc3339("9999-12-31T23:59:59-05:00") == latest
    assert parse_rfc3339("0001-01-01T00:00:00+05:00") == earliest
    assert parse_rfc3339("0000-01-01T00:00:00Z") == earliest
    assert parse_rfc3339("0000-02-29T23:00:00-24:60") == earliest


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))  # noqa: DTZ001
def test_written_instants_read_back_to_the_second(naive: datetime) -> None:
    """Writing cuts to whole seconds in UTC; reading gives the same second back."""
    instant = naive.replace(tzinfo=timezone(timedelta(hours=5, minutes=30)))

    text = format_rfc3339(instant)

    assert text.endswith("Z")
    assert len(text) == len("2026-01-02T03:04:05Z")
    assert parse_rfc3339(text) == instant.replace(microsecond=0)


def test_an_instant_without_zone_cannot_be_written() -> None:
    """A naive datetime is a mistake of the caller."""
    with pytest.raises(ValueError, match="time zone"):
        format_rfc3339(datetime(2026, 1, 2))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("-0", 0.0),
        ("0s", 0.0),
        ("300ms", 0.3),
        ("1m30s", 90.0),
        ("1h2m3.5s", 3723.5),
        ("-1.5h", -5400.0),
        ("+5s", 5.0),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("5m", 300.0),
        ("2us", 2e-6),
        ("2\u00b5s", 2e-6),
        ("2\u03bcs", 2e-6),
        ("7ns", 7e-9),
    ],
)
def test_go_durations_are_read(text: str, seconds: float) -> None:
    """Every unit, fraction and sign of a Go duration counts."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "-", "5", "1d", "s", ".s", "1m 30s", "--1s", "+-1s", "1e3s", "3000000h"]
)
def test_what_is_no_go_duration_is_refused(text: str) -> None:
    """A text Go would not parse as duration raises ValueError."""
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (90.0, "1m30s"),
        (3600.0, "1h0m0s"),
        (1.5, "1.5s"),
        (0.3, "300ms"),
        (2e-6, "2\u00b5s"),
        (7e-9, "7ns"),
        (-60.0, "-1m0s"),
        (0.0015, "1.5ms"),
    ],
)
def test_durations_are_written_as_go_does(seconds: float, text: str) -> None:
    """Durations come in hours, minutes and seconds, below a second in the largest fitting unit."""
    assert format_duration(seconds) == text


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_durations_read_back(nanoseconds: int) -> None:
    """What is written as duration reads back as the same number of nanoseconds."""
    seconds = nanoseconds / 1e9

    assert round(parse_duration(format_duration(seconds)) * 1e9) == round(seconds * 1e9)


def test_a_bad_shutdown_time_names_its_field() -> None:
    """A Sandbox with a shutdownTime that slipped past the schema is refused for it."""
    view = view_of(sandbox({"shutdownTime": "tomorrow"}))
    assert view.refusal.startswith('spec.shutdownTime: "tomorrow" is not')
    assert view.shutdown_time is None
    assert len(view_of(sandbox({"shutdownTime": "x" * 5000})).refusal) == 1024


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001
def test_the_dates_of_answers_are_read(naive: datetime) -> None:
    """What a server writes reads back to the second."""
    moment = naive.replace(tzinfo=UTC, microsecond=0)
    assert parse_http_date(f"{moment:%a, %d %b %Y %H:%M:%S} GMT") == moment


@pytest.mark.parametrize(
    "text", ["", "now", "Wed, 25 Nov 2026 GMT", "Wed, 32 Nov 2026 22:24:33 GMT", "a b Xxx d e f"]
)
def test_what_is_no_date_of_an_answer_is_refused(text: str) -> None:
    """Whatever stands in the header."""
    with pytest.raises(ValueError, match=r"."):
        parse_http_date(text)


@pytest.mark.parametrize(
    ("left_s", "is_there"),
    [(-1.0, True), (0.0, True), (0.001, True), (0.002, False), (2.0, False)],
)
def test_a_moment_has_come_a_thousandth_early(left_s: float, *, is_there: bool) -> None:
    """A timer may ring as much before its time; then nothing is left, and of no moment ever."""
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    moment_s = now.timestamp() + left_s
    assert has_come(moment_s, now) is is_there
    left = time_left_s(moment_s, now)
    assert left == pytest.approx(min(left_s, 0.0) if is_there else left_s, abs=1e-5)
    assert (has_come(None, now), time_left_s(None, now)) == (False, None)


@pytest.mark.parametrize("sign", ["", "-", "+"])
def test_a_duration_has_63_bits_of_nanoseconds(sign: str) -> None:
    """As in Go, in either direction."""
    assert abs(parse_duration(f"{sign}9223372036854775807ns")) == pytest.approx(9223372036.854775)
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(f"{sign}9223372036854775808ns")


def test_what_rounds_to_nothing_has_no_sign() -> None:
    """Half of a nanosecond is none."""
    assert format_duration(-1e-10) == format_duration(1e-10) == "0s"
    assert format_duration(-1e-9) == "-1ns"

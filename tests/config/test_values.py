"""Values come back as they were written, and selectors mean what they mean to the server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.config.forms import BOOLEAN, DOMAINS, DURATION, INTEGER, NUMBER
from tests.config.strategies import OPTIONS, any_value


@given(st.data())
def test_every_value_comes_back_as_it_was_written(data: st.DataObject) -> None:
    """For every option and every value it can have, reading undoes writing."""
    option = OPTIONS[data.draw(st.sampled_from(sorted(OPTIONS)))]
    value = data.draw(any_value(option))
    form = option.form
    assert form.parse(form.write(value)) == value


@given(st.integers(-(2**53) + 1, 2**53 - 1))
def test_durations_survive_to_the_nanosecond(nanoseconds: int) -> None:
    """Any duration a float holds exactly in nanoseconds comes back to the nanosecond."""
    seconds = DURATION.parse(f"{nanoseconds}ns")
    assert DURATION.parse(DURATION.write(seconds)) == seconds


@given(st.text(max_size=6))
def test_texts_that_are_no_value_are_refused_in_one_way(text: str) -> None:
    """Whatever is given, a form reads it or raises ValueError, and what it read it can write."""
    for form in (BOOLEAN, INTEGER, NUMBER, DURATION):
        try:
            value = form.parse(text)
        except ValueError:
            continue
        assert value != value or form.parse(form.write(value)) == value  # noqa: PLR0124 -- NaN


def test_domains_are_separated_as_in_the_file_of_the_reference() -> None:
    """Commas and ends of lines, without blanks, in lower case, and nothing for nothing."""
    assert DOMAINS.parse("A.example, b.example\r\n\n ,c.example\r") == (
        "a.example",
        "b.example",
        "c.example",
    )

"""Values come back as they were written, and selectors mean what they mean to the server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.config.forms import BOOLEAN, DOMAINS, DURATION, INTEGER, NUMBER
from lean_sandbox.local.selectors import parse_labels
from lean_sandbox.watch.selector import parse
from tests.settings.strategies import OPTIONS, any_value


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


KEYS = st.sampled_from(["a", "b", "example.com/a"])
LABELS = st.dictionaries(KEYS, st.sampled_from(["", "x", "y"]))
_VALUES = st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=2)
TERMS = st.one_of(
    st.builds("{}{}{}".format, KEYS, st.sampled_from(["=", "==", "!=", " = "]), st.just("x")),
    st.builds(
        lambda key, word, values: f"{key} {word} ({', '.join(values)})",
        KEYS,
        st.sampled_from(["in", "notin"]),
        _VALUES,
    ),
    KEYS,
    KEYS.map("!{}".format),
)


@given(st.lists(TERMS, min_size=1, max_size=3).map(",".join), LABELS)
def test_a_selector_selects_here_what_the_server_selects(text: str, labels: dict[str, str]) -> None:
    """Both as it was written and as it is sent, over any labels."""
    ours = parse(text)
    theirs = parse_labels(text)
    sent = parse_labels(ours.text)
    assert theirs is not None
    assert sent is not None
    assert ours.matches(labels) == theirs(labels) == sent(labels)
    assert parse(ours.text).text == ours.text


@pytest.mark.parametrize(
    "bad", ["a in b", "a in ()x", "in (a)", "a b", "a=b=c", ",", "!", "=x", "-"]
)
def test_what_the_server_would_refuse_is_refused_before(bad: str) -> None:
    """A selector with a mistake never leaves the process."""
    with pytest.raises(ValueError, match="label"):
        parse(bad)

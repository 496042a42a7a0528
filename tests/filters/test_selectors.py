"""Laws of selectors: what is read means what it says, and what the server refuses is refused."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters import SelectorError, exclude_namespaces, parse_labels
from filters.selectors import LabelTerm
from lean_sandbox.local.request import FieldTerm, parse_fields

KEYS = st.sampled_from(["a", "b", "example.com/c", "in-cluster", "notin.x"])
WORDS = st.sampled_from(["x", "y", "z", "in", ""])
LABELS = st.dictionaries(KEYS, WORDS)
SETS = st.lists(st.sampled_from(["x", "y", "in"]), min_size=1, max_size=3)


@given(labels=LABELS, key=KEYS, words=SETS)
def test_in_and_notin_are_opposites(labels: dict[str, str], key: str, words: list[str]) -> None:
    """Exactly one of `in` and `notin` selects a set of labels; one value is the same as `=`."""
    listed = ", ".join(words)
    inside = parse_labels(f"{key} in ({listed})")
    outside = parse_labels(f"{key} notin ({listed})")
    assert inside.matches(labels) is (labels.get(key) in words)
    assert inside.matches(labels) is not outside.matches(labels)
    equal = parse_labels(f"{key}={words[0]}")
    single = parse_labels(f"{key} in ({words[0]})")
    assert equal.matches(labels) is single.matches(labels)


@given(labels=LABELS, key=KEYS, other=KEYS, word=WORDS)
def test_terms_of_a_selector_all_hold(
    labels: dict[str, str], key: str, other: str, word: str
) -> None:
    """A comma means and; a label that is missing has no value, not even the empty one."""
    both = parse_labels(f"{key},{other}!={word}")
    assert both.matches(labels) is (key in labels and labels.get(other) != word)
    assert parse_labels(f"!{key}").matches(labels) is (key not in labels)
    assert parse_labels(f"{key}=").matches(labels) is (labels.get(key) == "")


@given(
    st.lists(
        st.one_of(
            st.tuples(KEYS, st.sampled_from(["in", "notin"]), SETS).map(
                lambda term: f"{term[0]} {term[1]} ({', '.join(term[2])})"
            ),
            st.tuples(KEYS, st.sampled_from(["=", "==", "!="]), WORDS).map("".join),
            st.tuples(KEYS, st.sampled_from("<>"), st.integers(0, 99).map(str)).map("".join),
            st.tuples(st.sampled_from(["", "!"]), KEYS).map("".join),
        )
    )
)
def test_a_selector_as_text_is_the_same_selector(terms: list[str]) -> None:
    """A server is sent what was read."""
    selector = parse_labels(",".join(terms))
    assert parse_labels(str(selector)) == selector


@pytest.mark.parametrize(
    ("value", "above", "below"),
    [("4", False, True), ("5", False, False), ("60", True, False), ("x", False, False)],
)
def test_numbers_are_compared_as_numbers(value: str, *, above: bool, below: bool) -> None:
    """A label that is no number, or is missing, is neither above nor below."""
    for text, expected in (("n>5", above), ("n<5", below)):
        assert parse_labels(text).matches({"n": value}) is expected
        assert not parse_labels(text).matches({})


def test_terms_are_read_as_the_server_reads_them() -> None:
    """With blanks or without; values that are left out are empty, nothing selects everything."""
    text = "app == web, example.com/tier!= ,shard in (2,1,2),env notin (dev),a.b/c_d,! gone,n > 3"
    assert parse_labels(text).terms == (
        LabelTerm("app", "=", frozenset({"web"})),
        LabelTerm("example.com/tier", "!=", frozenset({""})),
        LabelTerm("shard", "in", frozenset({"1", "2"})),
        LabelTerm("env", "notin", frozenset({"dev"})),
        LabelTerm("a.b/c_d"),
        LabelTerm("gone", "!"),
        LabelTerm("n", ">", frozenset({"3"})),
    )
    assert parse_labels(" ").matches(None)


KEY_MISTAKES = ("a/", "A.b/c", "a/b/c", "-a", "a-", "x" * 64, "a..b/c", f"{'a.' * 127}b/c", "-")


@pytest.mark.parametrize("key", KEY_MISTAKES)
def test_a_bad_label_key_is_refused_by_name(key: str) -> None:
    """Wherever it stands, and the error shows it."""
    for text in (key, f"!{key}", f"{key}=x", f"{key} in (x)"):
        with pytest.raises(SelectorError, match=f"label key {re.escape(repr(key))}"):
            parse_labels(text)


@pytest.mark.parametrize("value", ["-a", "a.", "x" * 64, "a/b", "é"])
def test_a_bad_label_value_is_refused_by_name(value: str) -> None:
    """The error names the label whose value is wrong."""
    for text in (f"app={value}", f"app!={value}", f"app in ({value})"):
        with pytest.raises(SelectorError, match="of label app"):
            parse_labels(text)


def test_longest_keys_and_values_are_accepted() -> None:
    """The limits are 253 characters for the prefix, 63 for the name and 63 for the value."""
    text = f"{'a.' * 126}b/{'x' * 63}={'y' * 63}"
    assert parse_labels(text).matches({f"{'a.' * 126}b/{'x' * 63}": "y" * 63})


@pytest.mark.parametrize(
    "text",
    [
        *("a in b", "a,", "!", "=a", "a in (", "a ~ b", "a>x", "a in ()x", "in (a)", "a b"),
        *(
            "a=b\u00a0",
            "a\fin (b)",
            "a in (b\v)",
            "a=b=c",
            ",",
            "a in (b c)",
            "a=(",
            "a<-5",
            "a in (=)",
            "a,,b",
            "a<",
        ),
    ],
)
def test_what_is_no_label_selector_is_refused(text: str) -> None:
    """Bad grammar never leaves the process."""
    with pytest.raises(SelectorError):
        parse_labels(text)


@given(st.text(alphabet="ab=!,()<> \\-./in", max_size=12))
def test_any_text_is_a_selector_or_an_error(text: str) -> None:
    """Nothing else is raised."""
    with suppress(SelectorError):
        parse_labels(text).matches({"a": "b"})


def test_field_selectors_know_escapes() -> None:
    r"""A backslash keeps a comma or an equals sign inside a value."""
    assert parse_fields(r"a=b\,c,d!=e\=f") == (
        FieldTerm("a", "b,c", equal=True),
        FieldTerm("d", "e=f", equal=False),
    )
    with pytest.raises(SelectorError, match="can't understand 'b'"):
        parse_fields("a=1,b")


def test_namespaces_are_excluded_one_by_one() -> None:
    """Fields know no sets: a chain of inequalities does it."""
    text = exclude_namespaces("kube-system", "istio", "kube-system")
    assert text == "metadata.namespace!=kube-system,metadata.namespace!=istio"
    assert [term.equal for term in parse_fields(text)] == [False, False]
    assert exclude_namespaces() == ""


def test_a_namespace_has_at_most_63_characters() -> None:
    """As many are accepted."""
    assert exclude_namespaces("a" * 63) == f"metadata.namespace!={'a' * 63}"
    with pytest.raises(SelectorError, match="must have 1 to 63 characters"):
        exclude_namespaces("a" * 64)


@pytest.mark.parametrize("name", ["", "Upper", "a.b", "a_b", "-a", "x" * 64])
def test_a_bad_namespace_is_refused_by_name(name: str) -> None:
    """A name no namespace can have is a mistake in the settings."""
    with pytest.raises(SelectorError, match="namespace"):
        exclude_namespaces(name)

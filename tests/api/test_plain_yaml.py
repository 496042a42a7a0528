"""YAML without a library: what PyYAML reads, or no answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from lean_sandbox.api.plain_yaml import NotPlainError, parse

_NOT_PLAIN = object()
# Words that mean more than they seem, and pieces that break lines and texts up.
_WORDS = st.sampled_from(
    (
        *("yes", "No", "ON", "y", "~", "null", "Null", "true", "True", "{}", "[]", "{a: 1}"),
        *("1", "1.5", "1e5", "1.5e+5", "0x1f", "0b1", "0o7", "1_000", "12:30", "190:20:30.15"),
        *("2026-01-02", "2026-01-02T10:00:00Z", "2026-01-02 10:00:00", ".inf", "-.INF", ".nan"),
        *("-1", "+1", "-", "--", "---", "--flag", "-f", "...", "..", "../a", "./a", "=", "<<"),
        *("a", "a b", "a  b", "a:b", "a: b", "a:", "a #b", "a#b", "#a", "&a", "*a", "!a", "|", ">"),
        *("'a'", '"a"', "'it''s'", '"\\n"', "''", '""', "'a' b", "@a", "%a", "`a", "?", "? a", ","),
        *("https://h:6443", "Mon, 02 Jan 2023 12:00:00 UTC", "LS0t==", "/a/b", "9g", "0:a", "\t"),
    )
)
_TEXTS = st.one_of(_WORDS, st.text(st.characters(codec="utf-8"), max_size=8))
_LINES = st.tuples(
    st.sampled_from(("", " ", "  ", "    ", "- ", "  - ", "-   ", "- - ")),
    st.sampled_from(("", "a: ", "b: ", "a:", "b:  ", "on: ", "'q': ", "1: ")),
    st.one_of(st.just(""), _WORDS),
    st.sampled_from(("", "", "", " ", " # x")),
).map("".join)
_DOCUMENTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_TEXTS, inner, max_size=3)
    ),
    max_leaves=12,
)


def read(text: str) -> Any:
    """Return what is read without a library, or that nothing is."""
    try:
        return parse(text)
    except NotPlainError:
        return _NOT_PLAIN


def require_agreement(text: str) -> None:
    """Hold an answer, if there is one, against that of the library."""
    found = read(text)
    if found is not _NOT_PLAIN:
        # By their notation, for 1 and True are equal.
        assert repr(found) == repr(yaml.safe_load(text)), text


@example("a: .inf")
@given(st.lists(_LINES, min_size=1, max_size=4).map("\n".join))
def test_no_text_is_read_otherwise_than_by_the_library(text: str) -> None:
    """Whatever lines there are: the same value, or none where the library finds an error."""
    require_agreement(text)


@given(_DOCUMENTS)
def test_no_document_is_read_otherwise_than_by_the_library(document: Any) -> None:
    """Whatever a document holds and however it is written."""
    require_agreement(yaml.safe_dump(document))
    require_agreement(yaml.safe_dump(document, indent=4, default_flow_style=False))
    require_agreement(json.dumps(document))
    require_agreement(json.dumps(document, indent=1, ensure_ascii=False))


_NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,8}[g-s]", fullmatch=True)


@given(
    st.recursive(
        st.one_of(_NAMES, st.booleans(), st.none()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=3)
        ),
        max_leaves=12,
    ).map(lambda inner: {"top": inner})
)
def test_plain_documents_are_read(document: Any) -> None:
    """Names, truths, lists and mappings in block style or as JSON, but for lists in lists."""
    assert read(json.dumps(document)) == document
    text = yaml.safe_dump(document, default_flow_style=False)
    if "- - " not in text and "? " not in text and "'" not in text:
        assert read(text) == document


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "a", "- a\nb: c", "a: b\n  c: d"])
def test_what_is_no_document_is_not_read(text: str) -> None:
    """Nothing, a bare text and misplaced lines are left to the library."""
    assert read(text) is _NOT_PLAIN

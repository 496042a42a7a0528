"""A label selector of a user: checked, written as the server takes it, and asked on this side.

The server filters; on this side only the answers to our own requests are asked, which show an
object that has left the selector before its watch does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from filters import selectors

_SET = re.compile(r"(?P<key>\S+)\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUAL = re.compile(r"(?P<key>[^\s=!]+)\s*(?P<sign>==?|!=)\s*(?P<value>[^\s=!]*)")
_EXISTS = re.compile(r"(?P<sign>!?)\s*(?P<key>\S+)")
# The commas that do not stand between brackets.
_BETWEEN = re.compile(r",(?![^()]*\))")


class _Term(msgspec.Struct, frozen=True):
    """One demand: that a label has one of the values (or any), or with ``negated`` that not."""

    key: str
    values: frozenset[str] | None
    negated: bool
    text: selectors.LabelTerm

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        has = value is not None and (self.values is None or value in self.values)
        return has is not self.negated


class LabelSelector(msgspec.Struct, frozen=True):
    """Demands on labels, all of which must hold."""

    terms: tuple[_Term, ...]

    @property
    def text(self) -> str:
        """The selector as a query parameter has it; empty without demands."""
        return selectors.label_selector(*(term.text for term in self.terms)).get(
            "labelSelector", ""
        )

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object with these labels is selected."""
        return all(term.matches(labels or {}) for term in self.terms)


def parse(text: str) -> LabelSelector:
    """Return the selector written as kubectl takes it; raises ValueError naming what is wrong."""
    if not text.strip():
        return LabelSelector(())
    return LabelSelector(tuple(_term(part.strip()) for part in _BETWEEN.split(text)))


def _term(text: str) -> _Term:
    if found := _SET.fullmatch(text):
        key, negated = found["key"], found["word"] == "notin"
        values = tuple(value.strip() for value in found["values"].split(","))
        build = selectors.label_not_in if negated else selectors.label_in
        return _Term(key, frozenset(values), negated, build(key, *values))
    if found := _EQUAL.fullmatch(text):
        key, value, negated = found["key"], found["value"], found["sign"] == "!="
        compare = selectors.label_not_equals if negated else selectors.label_equals
        return _Term(key, frozenset((value,)), negated, compare(key, value))
    found = _EXISTS.fullmatch(text)
    key, negated = (found["key"], bool(found["sign"])) if found else (text, False)
    exist = selectors.label_not_exists if negated else selectors.label_exists
    return _Term(key, None, negated, exist(key))

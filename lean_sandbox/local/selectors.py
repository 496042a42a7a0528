"""Label and field selectors: parsed once, then a plain test on each object.

Grammar and error texts follow the `labelSelector` and `fieldSelector` query parameters of the API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from lean_sandbox.local.errors import bad_request

Labels = Mapping[str, str]
LabelMatcher = Callable[[Labels], bool]

_TOKEN = re.compile(r"\s*(notin\b|in\b|==|!=|=|!|\(|\)|,|>|<|[^\s,()=!<>]+)")

_NO_BEGINNING = (",", "(", ")", "=", "==", "!=", ">", "<")


class FieldTerm(NamedTuple):
    """One requirement of a field selector."""

    field: str
    value: str
    equal: bool


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:  # pragma: no cover - the token class is exhaustive
            raise bad_request(f"unable to parse requirement: {text!r}")
        found.append(match.group(1))
        at = match.end()
    return found


class _Parser:
    """Recursive descent over the few tokens of a label selector."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        word = self._peek()
        self._at += 1
        return word

    def parse(self) -> list[LabelMatcher]:
        tests: list[LabelMatcher] = []
        if self._peek() in _NO_BEGINNING:
            raise bad_request(
                f"found '{self._peek()}', expected: !, identifier, or 'end of string'"
            )
        while self._peek():
            tests.append(self._requirement())
            following = self._next()
            if following == "":
                return tests
            if following != ",":
                raise bad_request(f"found '{following}', expected: ',' or 'end of string'")
            if not self._peek():
                raise bad_request("found '', expected: identifier after ','")
        return tests

    def _requirement(self) -> LabelMatcher:
        word = self._next()
        if word == "!":
            key = self._key()
            return lambda labels: key not in labels
        self._at -= 1
        key = self._key()
        operator = self._peek()
        if operator in ("", ","):
            return lambda labels: key in labels
        self._at += 1
        if operator in ("=", "=="):
            value = self._value()
            return lambda labels: labels.get(key) == value
        if operator == "!=":
            value = self._value()
            return lambda labels: labels.get(key) != value
        if operator in ("in", "notin"):
            values = self._values()
            if operator == "in":
                return lambda labels: labels.get(key) in values
            return lambda labels: labels.get(key) not in values
        if operator in (">", "<"):
            return _compare(key, operator, self._value())
        raise bad_request(
            f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !=, gt,"
            " lt"
        )

    def _key(self) -> str:
        word = self._next()
        if word in ("", ",", "(", ")", "=", "==", "!=", "!"):
            raise bad_request(f"unable to parse requirement: found '{word}', expected: identifier")
        return word

    def _value(self) -> str:
        return self._next() if self._peek() not in ("", ",") else ""

    def _values(self) -> frozenset[str]:
        opening = self._next()
        if opening != "(":
            raise bad_request(f"unable to parse requirement: found '{opening}' expected: '('")
        values, value = [], ""
        while True:
            word = self._next()
            if word in (",", ")"):
                values.append(value)
                value = ""
                if word == ")":
                    return frozenset(values)
            elif word == "":
                raise bad_request(
                    "unable to parse requirement: found '', expected: ',', ')' or identifier"
                )
            else:
                value = word


def _compare(key: str, operator: str, limit: str) -> LabelMatcher:
    try:
        bound = int(limit)
    except ValueError:
        raise bad_request(
            "unable to parse requirement: for 'Gt', 'Lt' operators, the value must be an integer"
        ) from None

    def test(labels: Labels) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > bound if operator == ">" else value < bound

    return test


def parse_labels(text: str) -> LabelMatcher | None:
    """Return the test for a label selector, None when it selects everything.

    Raises:
        StatusError: 400 when the text is not a selector.

    """
    tests = _Parser(text).parse()
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def parse_fields(text: str) -> tuple[FieldTerm, ...]:
    """Return the terms of a field selector.

    Raises:
        StatusError: 400 when the text is not a selector.

    """
    terms = []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        match = re.match(r"^(.*?)(!=|==|=)(.*)$", part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = match.groups()
        plain = re.sub(r"\\(.)", r"\1", value)
        terms.append(FieldTerm(field, plain, equal=operator != "!="))
    return tuple(terms)


def selector_of(wanted: Mapping[str, str]) -> LabelMatcher:
    """Return the test that all of ``wanted`` are present with their values."""
    pairs = tuple(wanted.items())
    return lambda labels: all(labels.get(key) == value for key, value in pairs)

"""Selectors of the API: label selectors are parsed, checked and matched, field selectors written.

A client sends them, so that the server leaves out unwanted objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Kubernetes' white space between the words of a selector; ``\s`` would match more.
_BLANKS = " \t\r\n"
_S = f"[{_BLANKS}]"
_WORD = rf"[^{_BLANKS},()=!<>]+"
_TOKEN = re.compile(rf"{_S}*(==|!=|[=!(),<>]|{_WORD})")
_LABEL_TERM = re.compile(
    rf"""{_S}*(?:!{_S}*(?P<absent>{_WORD})
    |(?P<key>{_WORD})(?:{_S}+(?P<word>in|notin){_S}*\((?P<words>[^()=!<>]*)\)
    |{_S}*(?P<operator>==|!=|[=<>]){_S}*(?P<value>{_WORD})?)?){_S}*""",
    re.VERBOSE,
)
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_UNPARSED = "unable to parse requirement: "


class SelectorError(ValueError):
    """A selector that the server would refuse."""


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """One requirement on one label; ``operator`` is empty where the label only has to exist."""

    key: str
    operator: str = ""
    values: frozenset[str] = frozenset()

    def __str__(self) -> str:
        if self.operator in ("in", "notin"):
            return f"{self.key} {self.operator} ({','.join(sorted(self.values))})"
        if self.operator == "!":
            return f"!{self.key}"
        return self.key + self.operator + "".join(self.values)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet the requirement."""
        value = labels.get(self.key)
        if self.operator in ("=", "in"):
            return value in self.values
        if self.operator in ("!=", "notin"):
            return value not in self.values
        if self.operator in ("", "!"):
            return (value is None) is (self.operator == "!")
        if value is None or not value.isdecimal():
            return False
        number = int(value)
        bound = int("".join(self.values))
        return number > bound if self.operator == ">" else number < bound


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements on labels, all of which must hold; without any it selects everything.

    As text it is what :func:`parse_labels` reads.
    """

    terms: tuple[LabelTerm, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object with these labels is selected."""
        found = labels or {}
        return all(term.matches(found) for term in self.terms)


EVERYTHING = LabelSelector()


def parse_labels(text: str) -> LabelSelector:
    """Parse a label selector. Raises SelectorError."""
    text = text.strip(_BLANKS)
    terms: list[LabelTerm] = []
    at = 0
    while at < len(text):
        match = _LABEL_TERM.match(text, at)
        if match is None:
            raise _unexpected(text, at, "!, identifier, or 'end of string'")
        terms.append(_label_term(**match.groupdict(default="")))
        at = match.end()
        if at < len(text):
            if text[at] != ",":
                raise _unexpected(text, at, "',' or 'end of string'")
            at += 1
            if at == len(text):
                raise _unexpected(text, at, "identifier after ','")
    return LabelSelector(tuple(terms))


def _unexpected(text: str, at: int, wanted: str) -> SelectorError:
    found = _TOKEN.match(text, at)
    return SelectorError(f"found '{found[1] if found else ''}', expected: {wanted}")


def _label_term(
    absent: str, key: str, word: str, words: str, operator: str, value: str
) -> LabelTerm:
    if absent:
        return LabelTerm(_checked_key(absent), "!")
    _checked_key(key)
    if word:
        values = frozenset(_checked_value(key, value.strip(_BLANKS)) for value in words.split(","))
        return LabelTerm(key, word, values)
    if not operator:
        return LabelTerm(key)
    values = frozenset((_checked_value(key, value),))
    if operator in ("<", ">") and not value.isdecimal():
        raise SelectorError(f"{_UNPARSED}for 'Gt', 'Lt' operators, the value must be an integer")
    return LabelTerm(key, "=" if operator == "==" else operator, values)


def exclude_namespaces(*namespaces: str) -> str:
    """Return the field selector that leaves out these namespaces; empty without any.

    For requests across all namespaces. Field selectors have no sets, hence a chain of inequalities.
    Raises SelectorError for a name that no namespace can have.
    """
    for name in namespaces:
        if len(name) > 63 or not _DNS_LABEL.fullmatch(name):
            problem = "must have 1 to 63 characters of lower-case letters, digits and '-'"
            raise SelectorError(f"namespace {name!r}: {problem}")
    return ",".join(f"metadata.namespace!={name}" for name in dict.fromkeys(namespaces))


def _checked_key(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if slash and not _is_dns_subdomain(prefix):
        problem = "the part before '/' must be a lower-case DNS name of at most 253 characters"
        raise SelectorError(f"{_UNPARSED}label key {key!r}: {problem}")
    if not _is_name(name):
        problem = (
            "the name must have 1 to 63 characters of letters, digits, '-', '_' and '.', "
            "with a letter or digit at both ends"
        )
        raise SelectorError(f"{_UNPARSED}label key {key!r}: {problem}")
    return key


def _checked_value(key: str, value: str) -> str:
    if value and not _is_name(value):
        problem = (
            "must be empty or have at most 63 characters of letters, digits, '-', '_' and '.', "
            "with a letter or digit at both ends"
        )
        raise SelectorError(f"{_UNPARSED}value {value!r} of label {key}: {problem}")
    return value


def _is_name(text: str) -> bool:
    return len(text) <= 63 and _NAME.fullmatch(text) is not None


def _is_dns_subdomain(text: str) -> bool:
    return len(text) <= 253 and all(_DNS_LABEL.fullmatch(part) for part in text.split("."))

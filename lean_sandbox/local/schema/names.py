"""Syntax of names, labels and keys (RFC 1123, RFC 1035, Kubernetes qualified names)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

NameRule = Callable[[str], list[str]]
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{pattern})\Z", re.ASCII)


_LABEL_RE = _compiled(_LABEL)
_SUBDOMAIN_RE = _compiled(_SUBDOMAIN)
_LABEL_1035_RE = _compiled(_LABEL_1035)
_QUALIFIED_RE = _compiled(_QUALIFIED)
_VALUE_RE = _compiled(_VALUE)


def _regex_text(message: str, pattern: str, *examples: str) -> str:
    shown = ",  or ".join(f"'{example}'" for example in examples)
    return f"{message} (e.g. {shown}, regex used for validation is '{pattern}')"


def _longer(limit: int, unit: str) -> str:
    return f"must be no more than {limit} {unit}"


_SUBDOMAIN_TEXT = _regex_text(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_LABEL_TEXT = _regex_text(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_LABEL_1035_TEXT = _regex_text(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character",
    _LABEL_1035,
    "my-name",
    "abc-123",
)
_QUALIFIED_TEXT = _regex_text(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_VALUE_TEXT = _regex_text(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character",
    _VALUE,
    "MyValue",
    "my_value",
    "12345",
)


def _check(text: str, pattern: re.Pattern[str], message: str, limit: int) -> list[str]:
    found = [] if len(text) <= limit else [_longer(limit, "characters")]
    return found if pattern.match(text) else [*found, message]


def subdomain_problems(name: str) -> list[str]:
    """Return what keeps a text from being an RFC 1123 subdomain of at most 253 characters."""
    return _check(name, _SUBDOMAIN_RE, _SUBDOMAIN_TEXT, 253)


def rfc1123_label_problems(name: str) -> list[str]:
    """Return what keeps a text from being an RFC 1123 label of at most 63 characters."""
    return _check(name, _LABEL_RE, _LABEL_TEXT, 63)


def rfc1035_label_problems(name: str) -> list[str]:
    """Return what keeps a text from being an RFC 1035 label of at most 63 characters."""
    return _check(name, _LABEL_1035_RE, _LABEL_1035_TEXT, 63)


def path_segment_problems(name: str) -> list[str]:
    """Return what keeps a text from being one segment of a path (names of RBAC objects)."""
    if name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{part}'" for part in "/%" if part in name]


def label_key_problems(key: str) -> list[str]:
    """Return what keeps a text from being a qualified name: optional subdomain, slash, name."""
    prefix, slash, name = key.rpartition("/")
    if key.count("/") > 1:
        advice = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_QUALIFIED_TEXT}{advice}"]
    found: list[str] = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        found += [f"prefix part {text}" for text in subdomain_problems(prefix)]
    if not name:
        found.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        found.append(f"name part {_longer(63, 'bytes')}")
    if not _QUALIFIED_RE.match(name):
        found.append(f"name part {_QUALIFIED_TEXT}")
    return found


def label_value_problems(value: str) -> list[str]:
    """Return what keeps a text from being a label value."""
    found = [] if len(value.encode()) <= 63 else [_longer(63, "bytes")]
    return found if _VALUE_RE.match(value) else [*found, _VALUE_TEXT]


def _port_name(name: str) -> Iterator[str]:
    if len(name) > 15:
        yield _longer(15, "characters")
    if not re.match(r"[-a-z0-9]+\Z", name):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not re.search("[a-z]", name):
        yield "must contain at least one letter (a-z)"
    if "--" in name:
        yield "must not contain consecutive hyphens"
    if name[:1] == "-" or name[-1:] == "-":
        yield "must not begin or end with a hyphen"


def port_name_problems(name: str) -> list[str]:
    """Return what keeps a text from being a service name of RFC 6335 (a named container port)."""
    return list(_port_name(name))

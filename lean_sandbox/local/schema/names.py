"""Syntax of names, labels and keys (RFC 1123, RFC 1035, Kubernetes qualified names).

A rule returns what keeps a text from being such a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

NameRule = Callable[[str], list[str]]

STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"


def _syntax(
    pattern: str, limit: int, message: str, *examples: str, unit: str = "characters"
) -> NameRule:
    compiled = re.compile(rf"(?:{pattern})\Z", re.ASCII)
    shown = ",  or ".join(f"'{example}'" for example in examples)
    text = f"{message} (e.g. {shown}, regex used for validation is '{pattern}')"

    def problems(name: str) -> list[str]:
        size = len(name.encode() if unit == "bytes" else name)
        found = [] if size <= limit else [f"must be no more than {limit} {unit}"]
        return found if compiled.match(name) else [*found, text]

    return problems


subdomain_problems: Final = _syntax(
    rf"{_LABEL}(\.{_LABEL})*",
    253,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character",
    "example.com",
)
rfc1123_label_problems: Final = _syntax(
    _LABEL,
    63,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character",
    "my-name",
    "123-abc",
)
rfc1035_label_problems: Final = _syntax(
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    63,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character",
    "my-name",
    "abc-123",
)
label_value_problems: Final = _syntax(
    f"({_QUALIFIED})?",
    63,
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character",
    "MyValue",
    "my_value",
    "12345",
    unit="bytes",
)
_qualified_problems: Final = _syntax(
    _QUALIFIED,
    63,
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character",
    "MyName",
    "my.name",
    "123-abc",
    unit="bytes",
)


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
        return [f"a valid label key {_qualified_problems('')[0]}{advice}"]
    found: list[str] = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        found += [f"prefix part {text}" for text in subdomain_problems(prefix)]
    if not name:
        found.append("name part must be non-empty")
    return [*found, *(f"name part {text}" for text in _qualified_problems(name))]


_PORT_NAME: Final = (
    (r".{0,15}\Z", "must be no more than 15 characters"),
    (
        r"[-a-z0-9]+\Z",
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    ),
    (".*[a-z]", "must contain at least one letter (a-z)"),
    (r"(?!.*--)", "must not contain consecutive hyphens"),
    (r"(?!-)(?!.*-\Z)", "must not begin or end with a hyphen"),
)


def port_name_problems(name: str) -> list[str]:
    """Return what keeps a text from being a service name of RFC 6335 (a named container port)."""
    return [text for pattern, text in _PORT_NAME if not re.match(pattern, name, re.DOTALL)]

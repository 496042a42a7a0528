"""Builders for what the server can filter: label selectors, field selectors, list options.

Terms are texts of their own type, made by the ``label_*`` and ``field_*`` functions, which check
them by the rules of the server; the other functions return query parameters as plain dictionaries,
to be merged with ``|``. Nothing is percent-encoded: that is the client's part. Every error is a
:class:`SelectorError`.
"""

from __future__ import annotations

import re
from typing import NewType

__all__ = [
    "FieldTerm",
    "LabelTerm",
    "SelectorError",
    "any_semantic",
    "exclude_namespaces",
    "field_equals",
    "field_not_equals",
    "field_selector",
    "label_equals",
    "label_exists",
    "label_in",
    "label_not_equals",
    "label_not_exists",
    "label_not_in",
    "label_selector",
    "streaming_initial_list",
]

LabelTerm = NewType("LabelTerm", str)
FieldTerm = NewType("FieldTerm", str)

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_FIELD_PATH = re.compile(r"[^\s=!,\\]+")


class SelectorError(ValueError):
    """A part of a selector that the server would refuse; ``field`` names the part."""

    def __init__(self, field: str, value: str, problem: str) -> None:
        """Say which part is wrong and why."""
        super().__init__(f"{field} {value!r}: {problem}")
        self.field = field
        self.value = value


def label_equals(key: str, value: str) -> LabelTerm:
    """Select objects whose label has the value; the empty value does not match a missing label."""
    return LabelTerm(f"{_key(key)}={_value(key, value)}")


def label_not_equals(key: str, value: str) -> LabelTerm:
    """Select objects whose label has another value or that lack it."""
    return LabelTerm(f"{_key(key)}!={_value(key, value)}")


def label_in(key: str, *values: str) -> LabelTerm:
    """Select objects whose label has one of the values."""
    return LabelTerm(f"{_key(key)} in ({_values(key, values)})")


def label_not_in(key: str, *values: str) -> LabelTerm:
    """Select objects whose label has none of the values or that lack it."""
    return LabelTerm(f"{_key(key)} notin ({_values(key, values)})")


def label_exists(key: str) -> LabelTerm:
    """Select objects that have the label."""
    return LabelTerm(_key(key))


def label_not_exists(key: str) -> LabelTerm:
    """Select objects that lack the label."""
    return LabelTerm(f"!{_key(key)}")


def label_selector(*terms: LabelTerm) -> dict[str, str]:
    """Return the query parameter that demands all terms; without terms, no parameter."""
    return {"labelSelector": ",".join(dict.fromkeys(terms))} if terms else {}


def field_equals(path: str, value: str) -> FieldTerm:
    """Select objects whose field has the value.

    Which fields can be selected is fixed for each kind: name and namespace everywhere, a few more
    for Pods and others, ``selectableFields`` of the definition for custom resources.
    """
    return FieldTerm(f"{_path(path)}={_escaped(value)}")


def field_not_equals(path: str, value: str) -> FieldTerm:
    """Select objects whose field has another value."""
    return FieldTerm(f"{_path(path)}!={_escaped(value)}")


def exclude_namespaces(*namespaces: str) -> tuple[FieldTerm, ...]:
    """Return the terms that leave out these namespaces, for a request across all namespaces."""
    return tuple(
        FieldTerm(f"metadata.namespace!={_namespace(name)}") for name in dict.fromkeys(namespaces)
    )


def field_selector(*terms: FieldTerm) -> dict[str, str]:
    """Return the query parameter that demands all terms; without terms, no parameter.

    A watch with a field selector reports an object that stops matching as DELETED although it still
    exists: look before believing it, unless the field cannot change.
    """
    return {"fieldSelector": ",".join(dict.fromkeys(terms))} if terms else {}


def any_semantic() -> dict[str, str]:
    """Return list parameters for "any version will do": answered from the server's watch cache.

    Cheap for the server, possibly stale. The server ignores ``limit`` here and sends everything in
    one answer.
    """
    return {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"}


def streaming_initial_list() -> dict[str, str]:
    """Return watch parameters that make the server stream the initial list as ADDED events.

    The list is complete at the bookmark annotated ``k8s.io/initial-events-end``. For a first
    connect only: a watch that resumes from a version must not ask for it. Older servers answer 422.
    """
    return {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }


def _key(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if slash and not _is_dns_subdomain(prefix):
        problem = "the part before '/' must be a lower-case DNS name of at most 253 characters"
        raise SelectorError("label key", key, problem)
    if not _is_name(name):
        problem = (
            "the name must have 1 to 63 characters of letters, digits, '-', '_' and '.', "
            "with a letter or digit at both ends"
        )
        raise SelectorError("label key", key, problem)
    return key


def _value(key: str, value: str) -> str:
    if value and not _is_name(value):
        problem = (
            "must be empty or have at most 63 characters of letters, digits, '-', '_' and '.', "
            "with a letter or digit at both ends"
        )
        raise SelectorError(f"value of label {key}", value, problem)
    return value


def _values(key: str, values: tuple[str, ...]) -> str:
    if not values:
        raise SelectorError(f"values of label {key}", "", "at least one is needed")
    return ",".join(sorted({_value(key, value) for value in values}))


def _path(path: str) -> str:
    if not _FIELD_PATH.fullmatch(path):
        problem = "must be a dotted path without spaces, '=', '!', ',' and '\\'"
        raise SelectorError("field path", path, problem)
    return path


def _namespace(name: str) -> str:
    if len(name) > 63 or not _DNS_LABEL.fullmatch(name):
        problem = "must have 1 to 63 characters of lower-case letters, digits and '-'"
        raise SelectorError("namespace", name, problem)
    return name


def _escaped(value: str) -> str:
    # The backslash first, or it would escape the escapes.
    return value.replace("\\", r"\\").replace(",", r"\,").replace("=", r"\=")


def _is_name(text: str) -> bool:
    return len(text) <= 63 and _NAME.fullmatch(text) is not None


def _is_dns_subdomain(text: str) -> bool:
    return len(text) <= 253 and all(_DNS_LABEL.fullmatch(part) for part in text.split("."))

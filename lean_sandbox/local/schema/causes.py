"""What is wrong with a member: causes of a refusal (422), and the checks that give them.

Paths and words are those of Kubernetes. A rule of names returns what keeps a text from being such
a name. In a tree `name[*]` stands for every item of a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]

# Stands for a value that is not shown.
_OMITTED: Final = object()


def child(path: str, name: str) -> str:
    """Return the path of a named field."""
    return f"{path}.{name}" if path else name


def member(path: str, key: str | int) -> str:
    """Return the path of a field or of a list item."""
    return f"{path}[{key}]" if isinstance(key, int) else child(path, key)


def _quoted(value: Any) -> str:
    if value is None:
        return "null"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _error(field: str, reason: str, head: str, value: Any, detail: str) -> ErrorCause:
    text = head if value is _OMITTED else f"{head}: {_quoted(value)}"
    return ErrorCause(reason, f"{text}: {detail}" if detail else text, field)


def invalid(field: str, value: Any, detail: str) -> ErrorCause:
    """Return ``Invalid value: <value>: <detail>``."""
    return _error(field, "FieldValueInvalid", "Invalid value", value, detail)


def type_invalid(field: str, value: Any, detail: str) -> ErrorCause:
    """Return an invalid-value error whose cause says that the JSON type is wrong."""
    return _error(field, "FieldValueTypeInvalid", "Invalid value", value, detail)


def required(field: str, detail: str = "") -> ErrorCause:
    """Return ``Required value``."""
    return _error(field, "FieldValueRequired", "Required value", _OMITTED, detail)


def forbidden(field: str, detail: str) -> ErrorCause:
    """Return ``Forbidden: <detail>``."""
    return _error(field, "FieldValueForbidden", "Forbidden", _OMITTED, detail)


def duplicate(field: str, value: Any) -> ErrorCause:
    """Return ``Duplicate value: <value>``."""
    return _error(field, "FieldValueDuplicate", "Duplicate value", value, "")


def not_found(field: str, value: Any) -> ErrorCause:
    """Return ``Not found: <value>``."""
    return _error(field, "FieldValueNotFound", "Not found", value, "")


def not_supported(field: str, value: Any, supported: Iterable[Any]) -> ErrorCause:
    """Return ``Unsupported value: <value>: supported values: ...``."""
    names = ", ".join(_quoted(item) for item in supported)
    detail = f"supported values: {names}"
    return _error(field, "FieldValueNotSupported", "Unsupported value", value, detail)


def too_long(field: str, limit_bytes: int, unit: str = "bytes") -> ErrorCause:
    """Return ``Too long: may not be more than N bytes``."""
    detail = f"may not be more than {limit_bytes} {unit}"
    return _error(field, "FieldValueTooLong", "Too long", _OMITTED, detail)


def too_many(field: str, count: int, limit: int) -> ErrorCause:
    """Return ``Too many: <count>: must have at most <limit> items``."""
    noun = "item" if limit == 1 else "items"
    detail = f"must have at most {limit} {noun}"
    return _error(field, "FieldValueTooMany", "Too many", count, detail)


def immutable(field: str, value: Any) -> ErrorCause:
    """Return the refusal to change a field that is fixed at creation."""
    return invalid(field, value, "field is immutable")


def warning_header(text: str) -> str:
    """Return the value of one Warning header (RFC 7234 warn-code 299, unknown agent)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


# ------------------------------------------------------------------ names

NameRule = Callable[[str], list[str]]

STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"


def name_rule(
    pattern: str, limit: int, message: str, *examples: str, unit: str = "characters"
) -> NameRule:
    """Return a rule for names of a pattern and a length."""
    compiled = re.compile(rf"(?:{pattern})\Z", re.ASCII)
    shown = ",  or ".join(f"'{example}'" for example in examples)
    text = f"{message} (e.g. {shown}, regex used for validation is '{pattern}')"

    def problems(name: str) -> list[str]:
        size = len(name.encode() if unit == "bytes" else name)
        found = [] if size <= limit else [f"must be no more than {limit} {unit}"]
        return found if compiled.match(name) else [*found, text]

    return problems


subdomain_problems: Final = name_rule(
    rf"{_LABEL}(\.{_LABEL})*",
    253,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character",
    "example.com",
)
_label_problems: Final = name_rule(
    _LABEL,
    63,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character",
    "my-name",
    "123-abc",
)
rfc1035_label_problems: Final = name_rule(
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    63,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character",
    "my-name",
    "abc-123",
)
label_value_problems: Final = name_rule(
    f"({_QUALIFIED})?",
    63,
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character",
    "MyValue",
    "my_value",
    "12345",
    unit="bytes",
)
_qualified_problems: Final = name_rule(
    _QUALIFIED,
    63,
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character",
    "MyName",
    "my.name",
    "123-abc",
    unit="bytes",
)


def rfc1123_label_problems(name: str) -> list[str]:
    """Return what keeps a text from being a label of RFC 1123."""
    found = _label_problems(name)
    if found and "." in name and len(subdomain_problems(name)) < len(found):
        found[-1] = "must not contain dots"
    return found


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


Check = Callable[[Any, str], Iterable[ErrorCause]]
"""Gives what is wrong with a value at a path; the value is None if the member is absent."""


def broken(value: Any, where: str, rule: Any) -> Iterator[ErrorCause]:
    """Give what is wrong with a value by a check, a tree of members, or several of them."""
    if callable(rule):
        yield from rule(value, where)
    elif isinstance(rule, tuple):
        for one in rule:
            yield from broken(value, where, one)
    elif isinstance(value, dict):
        for key, inner in rule.items():
            name = key.removesuffix("[*]")
            place = child(where, name)
            if name == key:
                yield from broken(value.get(name), place, inner)
                continue
            for position, item in enumerate(value.get(name) or ()):
                yield from broken(item, f"{place}[{position}]", inner)


# ------------------------------------------------------------------ checks


def needed(detail: str = "") -> Check:
    """Return a check that something is there."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        if value in (None, "", [], {}):
            yield required(where, detail)

    return check


def one_of(*allowed: str, is_needed: bool = False) -> Check:
    """Return a check for one of several words; an empty one is there, and none of them."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        if (value is not None or is_needed) and value not in allowed:
            yield not_supported(where, value or "", allowed)

    return check


def never(is_bad: Callable[[Any], Any], text: str) -> Check:
    """Return a check that refuses some values; what is absent or empty is good."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        if value not in (None, "", [], {}) and is_bad(value):
            yield invalid(where, value, text)

    return check


def at_least(least: int, text: str = "must be greater than or equal to 0") -> Check:
    """Return a check for a lower bound of a number."""
    return never(lambda value: isinstance(value, int) and value < least, text)


def between(low: int, high: int, text: str = "") -> Check:
    """Return a check for the bounds of a number."""
    text = text or f"must be between {low} and {high}, inclusive"
    return never(lambda value: isinstance(value, int) and not low <= value <= high, text)


def prohibited(text: str) -> Check:
    """Return a check that nothing is said."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        if value is not None:
            yield forbidden(where, text)

    return check


def named(rule: NameRule) -> Check:
    """Return a check for the syntax of a name."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        yield from (invalid(where, value, text) for text in (rule(value) if value else ()))

    return check


def always(rule: NameRule) -> Check:
    """Return a check for the syntax of a name, which may not be left out."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        yield from (invalid(where, value or "", text) for text in rule(value or ""))

    return check


def unique(member: str, error: Callable[[str, Any], ErrorCause] = duplicate) -> Check:
    """Return a check that no two items of a list have the same value of a member."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        seen = set()
        for position, item in enumerate(value or ()):
            found = item.get(member)
            if found and found in seen:
                yield error(f"{where}[{position}].{member}", found)
            seen.add(found)

    return check


def port(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check a number or name of a port."""
    yield from between(1, 65535)(value, where)
    if isinstance(value, str):
        yield from always(port_name_problems)(value, where)


def relative_path(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check a path that stays below another one."""
    if not value:
        return
    if value.startswith("/"):
        yield invalid(where, value, "must be a relative path")
    yield from no_backsteps()(value, where)


def no_backsteps(text: str = "must not contain '..'") -> Check:
    """Return a check that no part of a path is `..`."""
    return never(lambda path: ".." in path.split("/"), text)


def at_most(most: int, text: str) -> Check:
    """Return a check for the length of a list."""
    return never(lambda value: len(value) > most, text)


def amounts(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check that no quantity of a map is negative."""
    for name, amount in (value or {}).items():
        if (parse_quantity(amount) or 0) < 0:
            text = "must be greater than or equal to 0"
            yield invalid(f"{where}[{name}]", amount, text)


def labels(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check each key and value of labels."""
    for key, text in sorted((value or {}).items()):
        yield from (invalid(where, key, why) for why in label_key_problems(key))
        yield from (invalid(where, text, why) for why in label_value_problems(text))


_TERM: Final[Json] = {"values[*]": named(label_value_problems), "key": always(label_key_problems)}


def requirement(value: Json, where: str, *more: str) -> Iterator[ErrorCause]:
    """Check a requirement on labels; the values of ``more`` operators are not looked at."""
    operator = value.get("operator") or ""
    values = value.get("values") or []
    if operator in ("In", "NotIn") and not values:
        text = "must be specified when `operator` is 'In' or 'NotIn'"
        yield required(f"{where}.values", text)
    elif operator in ("Exists", "DoesNotExist") and values:
        text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield forbidden(f"{where}.values", text)
    elif operator not in ("In", "NotIn", "Exists", "DoesNotExist", *more):
        yield invalid(f"{where}.operator", operator, "not a valid selector operator")
    yield from broken(value, where, _TERM)


SELECTOR: Final[Json] = {"matchLabels": labels, "matchExpressions[*]": requirement}
"""A label selector."""

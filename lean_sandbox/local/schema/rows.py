"""Defaults and checks of built-in kinds as trees of members: what is written, what has to hold.

In a tree `name[*]` stands for every item of a list.
"""

from __future__ import annotations

import copy
import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import errors, names
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]
Check = Callable[[Any, str], Iterable[ErrorCause]]
"""Gives what is wrong with a value at a path; the value is None if the member is absent."""


def fill(target: Json, tree: Json) -> None:
    """Write defaults where nothing is.

    Objects on the way are made, except where `?` ends the name. Below `name=value` is what is
    written if a member has this value.
    """
    for key, value in tree.items():
        if key.endswith("[*]"):
            for item in target.get(key[:-3]) or ():
                fill(item, value)
        elif key.endswith("?"):
            if (inner := target.get(key[:-1])) is not None:
                fill(inner, value)
        elif "=" in key:
            name, _, wanted = key.partition("=")
            if target.get(name) == wanted:
                fill(target, value)
        elif isinstance(value, dict):
            if target.get(key) is None:
                target[key] = {}
            fill(target[key], value)
        elif target.get(key) in (None, ""):
            target[key] = copy.copy(value)


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
            place = errors.child(where, name)
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
            yield errors.required(where, detail)

    return check


def one_of(*allowed: str, is_needed: bool = False) -> Check:
    """Return a check for one of several words."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        if (value or is_needed) and value not in allowed:
            yield errors.not_supported(where, value or "", allowed)

    return check


def at_least(least: int, text: str = "must be greater than or equal to 0") -> Check:
    """Return a check for a lower bound of a number."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        if isinstance(value, int) and value < least:
            yield errors.invalid(where, value, text)

    return check


def between(low: int, high: int) -> Check:
    """Return a check for the bounds of a number."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        if isinstance(value, int) and not low <= value <= high:
            yield errors.invalid(where, value, f"must be between {low} and {high}, inclusive")

    return check


def named(rule: names.NameRule) -> Check:
    """Return a check for the syntax of a name."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        yield from (errors.invalid(where, value, text) for text in (rule(value) if value else ()))

    return check


def unique(member: str) -> Check:
    """Return a check that no two items of a list have the same value of a member."""

    def check(value: Any, where: str) -> Iterator[ErrorCause]:
        seen = set()
        for position, item in enumerate(value or ()):
            found = item.get(member)
            if found and found in seen:
                yield errors.duplicate(f"{where}[{position}].{member}", found)
            seen.add(found)

    return check


def port(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check a number or name of a port."""
    yield from between(1, 65535)(value, where)
    if isinstance(value, str):
        yield from named(names.port_name_problems)(value, where)


def amounts(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check that no quantity of a map is negative."""
    for name, amount in (value or {}).items():
        if (parse_quantity(amount) or 0) < 0:
            text = "must be greater than or equal to 0"
            yield errors.invalid(f"{where}[{name}]", amount, text)


def labels(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check each key and value of labels."""
    for key, text in sorted((value or {}).items()):
        yield from (errors.invalid(where, key, why) for why in names.label_key_problems(key))
        yield from (errors.invalid(where, text, why) for why in names.label_value_problems(text))


def selector(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check a label selector."""
    given: Json = value or {}
    yield from labels(given.get("matchLabels"), f"{where}.matchLabels")
    for position, one in enumerate(given.get("matchExpressions") or ()):
        inner = f"{where}.matchExpressions[{position}]"
        sign = one.get("operator") or ""
        listed = one.get("values") or []
        if sign in ("In", "NotIn") and not listed:
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            yield errors.required(f"{inner}.values", text)
        elif sign in ("Exists", "DoesNotExist") and listed:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield errors.forbidden(f"{inner}.values", text)
        elif sign not in ("In", "NotIn", "Exists", "DoesNotExist"):
            yield errors.invalid(f"{inner}.operator", sign, "not a valid selector operator")
        for text in names.label_key_problems(one.get("key") or ""):
            yield errors.invalid(f"{inner}.key", one.get("key") or "", text)


def parsed_network(text: str) -> Any:
    """Return a network of addresses, None for another text."""
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None

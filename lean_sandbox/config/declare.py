"""How an option is declared: its default, meaning, form, bound and scope, in one call.

:mod:`.options` is the table of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

import msgspec

from lean_sandbox.config.forms import BOOLEAN, DURATION, INTEGER, NUMBER, Form
from lean_sandbox.model.names import is_object_name

_LONGEST_NAMESPACE: Final = 63

#: Why a value is refused; empty for one that is not.
Bound = Callable[[Any], str]


def positive(value: float) -> str:
    """Refuse zero and less."""
    return "" if value > 0 else "must be greater than 0"


def not_negative(value: float) -> str:
    """Refuse what is negative or infinite."""
    return "" if 0 <= value < math.inf else "must be 0 or more"


def not_nan(value: float) -> str:
    """Refuse what is no number."""
    return "must be a number; 0 or less is no limit" if math.isnan(value) else ""


def dns_name(value: str) -> str:
    """Refuse what cannot be part of a host name; empty passes."""
    if not value or is_object_name(value):
        return ""
    return "must be a DNS name: lower-case letters, digits, - and . between them"


def namespace_name(value: str) -> str:
    """Refuse what no namespace can be called; empty passes."""
    if len(value) > _LONGEST_NAMESPACE or "." in value:
        return f"must be the name of a namespace: {_LONGEST_NAMESPACE} characters at most, no dot"
    return dns_name(value)


class Flag(msgspec.Struct, frozen=True):
    """What a source may name. ``name`` is the setting; without one it has no effect."""

    form: Form
    help: str
    name: str = ""


class Option(Flag, frozen=True, kw_only=True):
    """A flag that has the name of its setting; ``topic`` begins a section of the help.

    ``bound`` says why a value is refused, or nothing. ``is_own``: the option is particular to one
    process, so the ConfigMap of all controllers cannot set it.
    """

    default: Any
    bound: Bound | None = None
    unit: str = ""
    is_own: bool = False
    topic: str = ""

    def shown(self, value: Any) -> str:
        """Return a value as it is displayed."""
        return self.form.write(value) or "none"


def flag_of(name: str) -> str:
    """Return the flag of a setting, with its dashes."""
    return "--" + name.replace("_", "-")


def option(meaning: str, form: Form, default: Any = "", **more: Any) -> Any:
    """Declare an option."""
    return field(default=default, metadata={"help": meaning, "form": form, **more})


def own(meaning: str, form: Form, default: Any = "", **more: Any) -> Any:
    """Declare an option that is particular to one process."""
    return option(meaning, form, default, is_own=True, **more)


def switch(meaning: str, *, default: bool = False, **more: Any) -> Any:
    """Declare an option that is on or off."""
    return option(meaning, BOOLEAN, default, **more)


def own_switch(meaning: str, **more: Any) -> Any:
    """Declare an option that is on or off, for one process."""
    return switch(meaning, is_own=True, **more)


def count(default: int, meaning: str, unit: str, bound: Bound | None = positive) -> Any:
    """Declare an option that is a whole number."""
    return option(meaning, INTEGER, default, unit=unit, bound=bound)


def number(default: float, meaning: str, unit: str, bound: Bound) -> Any:
    """Declare an option that is a number."""
    return option(meaning, NUMBER, default, unit=unit, bound=bound)


def duration(default_s: float, meaning: str, bound: Bound | None = not_negative) -> Any:
    """Declare an option that is a time in seconds."""
    return option(meaning, DURATION, default_s, bound=bound)

"""Objects as validation rules see them: typed values, and members under names of expressions."""

from __future__ import annotations

import base64
import re
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, Final

from lean_sandbox.local.schema.structural import EMBEDDED
from lean_sandbox.model.times import parse_duration, parse_rfc3339

Json = dict[str, Any]
Wanted = dict[str, Any]
"""Which members of a value are asked for, by name; an empty one stands for the whole value."""

TEXT: Final = re.compile(r"""[rRbB]{0,2}(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""")
"""A literal text in an expression."""
_REFERENCE: Final = re.compile(r"(?<![\w.])(self|oldSelf)\b((?:\s*\.\s*[A-Za-z_]\w*(?!\w*\s*\())*)")
_RESERVED: Final = frozenset(
    """true false null in as break const continue else for function if import let loop package
    namespace return var void while""".split()  # noqa: SIM905
)
_ESCAPES: Final = (
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
)
_STRING: Final = {"type": "string"}
_RESOURCE: Final[Json] = {
    "apiVersion": _STRING,
    "kind": _STRING,
    "metadata": {"type": "object", "properties": {"name": _STRING, "generateName": _STRING}},
}


class RuleError(ValueError):
    """A rule that cannot be compiled: bad syntax, an unknown field, or an unknown function."""


# ------------------------------------------------------------------ fields


def check_fields(expression: str, schema: Json, *, is_root: bool) -> None:
    """Raise RuleError when an expression asks for a field that the schema does not have."""
    for name in ("self", "oldSelf"):
        _check_fields(wanted_of(name, expression), _visible(schema, is_root=is_root))


def _check_fields(wanted: Wanted, schema: Json) -> None:
    properties: Json = schema.get("properties") or {}
    if schema.get("type") != "object" or isinstance(schema.get("additionalProperties"), dict):
        return
    fields = {_escaped(name): field for name, field in properties.items()}
    for name, inner in wanted.items():
        if name not in fields:
            raise RuleError(f"undefined field '{name}'")
        _check_fields(inner, _visible(fields[name]))


@lru_cache(maxsize=1024)
def wanted_of(name: str, *expressions: str) -> Wanted:
    """Return which members of `self` or `oldSelf` expressions can reach."""
    tree: Wanted = {}
    found = [pair for text in expressions for pair in _REFERENCE.findall(TEXT.sub('""', text))]
    ways = [re.sub(r"\s", "", tail).split(".")[1:] for who, tail in found if who == name]
    # Longer ways first: a shorter one then stands for all that is below it.
    for steps in sorted(ways, key=len, reverse=True):
        if not steps:
            return {}
        node = tree
        for step in steps[:-1]:
            node = node.setdefault(step, {})
        node[steps[-1]] = {}
    return tree


def _escaped(name: str) -> str:
    """Return how an expression writes the name of a field."""
    if name in _RESERVED:
        return f"__{name}__"
    for char, text in _ESCAPES:
        name = name.replace(char, text)
    return name


def _visible(schema: Json, *, is_root: bool = False) -> Json:
    """Return a schema with what rules see of a whole object: its type and names."""
    if is_root or schema.get(EMBEDDED):
        return {**schema, "properties": {**(schema.get("properties") or {}), **_RESOURCE}}
    return schema


# ------------------------------------------------------------------ values


def _scalar(value: Any, schema: Json) -> Any:
    if schema.get("type") == "number" and isinstance(value, int):
        return float(value)
    form = schema.get("format") if isinstance(value, str) else None
    if form in ("date-time", "datetime"):
        return parse_rfc3339(value.upper())
    if form == "date":
        return datetime.combine(date.fromisoformat(value), time(0), UTC)
    if form == "duration":
        return timedelta(seconds=parse_duration(value))
    return base64.b64decode(value) if form == "byte" else value


def view(value: Any, schema: Json, wanted: Wanted, *, is_root: bool = False) -> Any:
    """Return a value as rules see it, without the members that nobody asks for."""
    if isinstance(value, list):
        items: Json = schema.get("items") or {}
        return [view(item, items, {}) for item in value]
    if not isinstance(value, dict):
        return _scalar(value, schema)
    properties: Json = _visible(schema, is_root=is_root).get("properties") or {}
    others = schema.get("additionalProperties")
    made: Json = {}
    for name, item in value.items():
        field = properties.get(name)
        shown = name if field is None else _escaped(name)
        if (wanted and shown not in wanted) or (item is None and field is not None):
            continue
        if field is None:
            field = others if isinstance(others, dict) else {}
        made[shown] = view(item, field, wanted.get(shown, {}))
    return made

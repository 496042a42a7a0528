"""CEL rules of schemas (`x-kubernetes-validations`), and what they say of values.

The errors are those of a Kubernetes API server.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.expressions import TEXT, RuleError, compile_rule, execute
from lean_sandbox.local.schema.formats import duration_s
from lean_sandbox.local.schema.structural import (
    EMBEDDED,
    JSON_TYPES,
    MISSING,
    former,
    is_same,
    members,
)
from lean_sandbox.model.times import parse_rfc3339

Json = dict[str, Any]


Wanted = dict[str, Any]
"""Which members of a value are asked for, by name; an empty one stands for the whole value."""

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


# ------------------------------------------------------------------ fields


def check_rule(expression: str, schema: Json, *, is_root: bool) -> None:
    """Raise RuleError if an expression does not compile or asks for a field that is not there."""
    compile_rule(expression)
    for name in ("self", "oldSelf"):
        _check_fields(_wanted(name, expression), _visible(schema, is_root=is_root))


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
def _wanted(name: str, *expressions: str) -> Wanted:
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
        return timedelta(seconds=duration_s(value))
    return base64.b64decode(value) if form == "byte" else value


def _view(value: Any, schema: Json, wanted: Wanted, *, is_root: bool = False) -> Any:
    """Return a value as rules see it, without the members that nobody asks for."""
    if isinstance(value, list):
        items: Json = schema.get("items") or {}
        return [_view(item, items, {}) for item in value]
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
        made[shown] = _view(item, field, wanted.get(shown, {}))
    return made


# ------------------------------------------------------------------ checking


def _failure(rule: Json, path: str, message: str, value: Any) -> ErrorCause:
    where = (path + (rule.get("fieldPath") or "")).lstrip(".") or "<nil>"
    reason = rule.get("reason") or "FieldValueInvalid"
    # A map or a list is not shown.
    is_plain = not isinstance(value, dict | list)
    if reason == "FieldValueForbidden":
        return causes.forbidden(where, message)
    if reason == "FieldValueRequired":
        return causes.required(where, message)
    if reason == "FieldValueDuplicate":
        found = causes.duplicate(where, value)
        return found if is_plain else found._replace(message="Duplicate value")
    if is_plain:
        return causes.invalid(where, value, message)
    return ErrorCause(reason, f"Invalid value: {message}", where)


class RuleSet:
    """The rules of a schema and of all that is inside it, made once for each schema."""

    def __init__(self, schema: Json) -> None:
        self._schema = schema
        self._rules: list[Json] = schema.get("x-kubernetes-validations") or []
        inner = [*(schema.get("properties") or {}).values()]
        inner += [schema.get("additionalProperties"), schema.get("items")]
        made = {id(field): RuleSet(field) for field in inner if isinstance(field, dict)}
        self._inner = {identity: rules for identity, rules in made.items() if rules}

    def __bool__(self) -> bool:
        return bool(self._rules or self._inner)

    def check(self, value: Any, old: Any = MISSING, path: str = "") -> Iterator[ErrorCause]:
        """Give an error for each rule a value breaks; transition rules need `old`.

        Rules of the root run at every write, rules of other parts only when the part changed.
        """
        # Ratcheting: rules over a part that an update left alone are not run again.
        if path and is_same(old, value):
            return
        for rule in self._rules:
            if error := self._apply(rule, value, old, path):
                yield error
        if self._inner:
            before = former(old, self._schema)
            declared = self._schema.get("properties") or {}
            for key, item, field in members(value, self._schema):
                if inner := self._inner.get(id(field)):
                    place = causes.member(path, key)
                    if isinstance(value, dict) and key not in declared:
                        place = f"{path}[{key}]"
                    yield from inner.check(item, before(key, item), place)

    def _apply(self, rule: Json, value: Any, old: Any, path: str) -> ErrorCause | None:
        asked = (rule["rule"], rule.get("messageExpression") or "true")
        is_root = not path
        values = {"self": _view(value, self._schema, _wanted("self", *asked), is_root=is_root)}
        if "oldSelf" in compile_rule(rule["rule"]).variables():
            if old is MISSING:
                return None
            wanted = _wanted("oldSelf", *asked)
            values["oldSelf"] = _view(old, self._schema, wanted, is_root=is_root)
        try:
            if execute(rule["rule"], values) is True:
                return None
        except ValueError as error:
            text = f"{error} evaluating rule: {rule.get('message') or rule['rule']}"
            kind = self._schema.get("type") or JSON_TYPES[type(value)]
            return causes.invalid(path or "<nil>", kind, text)
        message = rule.get("message") or f"failed rule: {' '.join(rule['rule'].split())}"
        if expression := rule.get("messageExpression"):
            with suppress(ValueError):
                text = execute(expression, values)
                if isinstance(text, str) and text.strip() and "\n" not in text:
                    message = text
        return _failure(rule, path, message.strip(), value)

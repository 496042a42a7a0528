"""Validation against a structural schema and its CEL rules (`x-kubernetes-validations`).

The errors are those of a Kubernetes API server.
"""

from __future__ import annotations

import base64
import json
import operator
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.expressions import TEXT, RuleError, compile_rule, execute
from lean_sandbox.local.schema.structural import (
    EMBEDDED,
    INTEGER_RANGES,
    JSON_TYPES,
    MISSING,
    compile_pattern,
    former,
    is_same,
    matches_format,
    members,
    repeated,
)
from lean_sandbox.model.times import parse_duration, parse_rfc3339

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
        return timedelta(seconds=parse_duration(value))
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


def _failure(rule: Json, path: str, message: str) -> ErrorCause:
    where = (path + (rule.get("fieldPath") or "")).lstrip(".") or "<nil>"
    reason = rule.get("reason") or "FieldValueInvalid"
    word = reason.removeprefix("FieldValue")
    head = word if word == "Forbidden" else f"{word} value"
    return ErrorCause(reason, f"{head}: {message}", where)


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
            for key, item, field in members(value, self._schema):
                if inner := self._inner.get(id(field)):
                    yield from inner.check(item, before(key, item), causes.member(path, key))

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
            kinds: dict[type, str] = {dict: "object", list: "array"}
            return causes.invalid(path or "<nil>", kinds.get(type(value), value), text)
        message = rule.get("message") or f"failed rule: {' '.join(rule['rule'].split())}"
        if expression := rule.get("messageExpression"):
            with suppress(ValueError):
                text = execute(expression, values)
                if isinstance(text, str) and text.strip() and "\n" not in text:
                    message = text
        return _failure(rule, path, message.strip())


# ------------------------------------------------------------------ structure

# Rules are not asked about a value that has not its type or size.
_BLOCKING: Final = frozenset(
    f"FieldValue{word}"
    for word in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid")
)
_UNCHECKED: Final = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_NOWHERE: Final = "<nil>"
# The formats that Go's decoder gives numbers; other values have none.
_NUMBER_FORMATS: Final = {"integer": "int64", "number": "float64"}
_BOUNDS: Final = (
    ("minimum", "exclusiveMinimum", operator.lt, "greater than"),
    ("maximum", "exclusiveMaximum", operator.gt, "less than"),
)
_SIZES: Final[dict[type, tuple[str, str, str]]] = {
    dict: ("minProperties", "maxProperties", "properties"),
    list: ("minItems", "maxItems", "items"),
}


def _wrong_type(path: str, wanted: str, found: str) -> ErrorCause:
    detail = f'{path} in body must be of type {wanted}: "{found}"'
    return causes.type_invalid(path, found, detail)


def _type_error(value: Any, schema: Json, path: str) -> ErrorCause | None:
    wanted = schema.get("type")
    found = JSON_TYPES[type(value)]
    is_integral = isinstance(value, float) and value.is_integer()
    if wanted in (None, found) or (wanted, found) == ("number", "integer"):
        return None
    if wanted == "integer" and is_integral:
        return None
    shown = schema.get("format")
    if shown and found not in {"string", "array", "null"}:
        return _wrong_type(path, shown, _NUMBER_FORMATS.get(found, ""))
    return _wrong_type(path, str(wanted), found)


def _unplaced(detail: str) -> ErrorCause:
    return causes.invalid(_NOWHERE, "", detail)


def _check_int_or_string(value: Any, schema: Json, path: str) -> Iterator[ErrorCause]:
    found = JSON_TYPES[type(value)]
    if found in ("integer", "string"):
        return
    yield _wrong_type(path, "integer,string", found)
    if schema.get("anyOf"):
        yield _unplaced(f'"{path}" must validate at least one schema (anyOf)')
        yield _wrong_type(path, "integer", found)
    if found == "number":
        yield _unplaced(f"Checked value must be of type integer (default format) in {path}")


def _check_number(value: float, schema: Json, path: str) -> Iterator[ErrorCause]:
    form = schema.get("format")
    if schema.get("type") == "integer" and form in INTEGER_RANGES:
        low, high = INTEGER_RANGES[form]
        if value != int(value) or not low <= value <= high:
            yield _unplaced(f"Checked value must be of type integer with format {form} in {path}")
            return
    for name, exclusive, is_beyond, text in _BOUNDS:
        limit = schema.get(name)
        is_strict = schema.get(exclusive)
        if limit is None:
            continue
        if is_beyond(value, limit) or (is_strict and value == limit):
            shown = text if is_strict else f"{text} or equal to"
            yield causes.invalid(path, value, f"{path} in body should be {shown} {limit}")
    step = schema.get("multipleOf")
    if step and value % step:
        yield causes.invalid(path, value, f"{path} in body should be a multiple of {step}")


def _check_string(value: str, schema: Json, path: str) -> Iterator[ErrorCause]:
    longest = schema.get("maxLength")
    shortest = schema.get("minLength")
    pattern = schema.get("pattern")
    form = schema.get("format")
    # One answer about length and pattern: the first that applies.
    if longest is not None and len(value) > longest:
        yield causes.too_long(path, longest)
    elif shortest is not None and len(value) < shortest:
        detail = f"{path} in body should be at least {shortest} chars long"
        yield causes.invalid(path, value, detail)
    elif pattern and not compile_pattern(pattern).search(value):
        yield causes.invalid(path, value, f"{path} in body should match '{pattern}'")
    if form and schema.get("type") == "string" and not matches_format(value, form):
        shown = json.dumps(value, ensure_ascii=False)
        yield causes.type_invalid(path, value, f"{path} in body must be of type {form}: {shown}")


def _check_container(value: Any, schema: Json, path: str, old: Any) -> Iterator[ErrorCause]:
    """Check a map or list: its size, what is required, what is in it twice, its members."""
    least, most, noun = _SIZES[type(value)]
    count = len(value)
    if (limit := schema.get(most)) is not None and count > limit:
        yield causes.too_many(path, count, limit)
    if (limit := schema.get(least)) is not None and count < limit:
        yield causes.invalid(path, count, f"{path} in body should have at least {limit} {noun}")
    if isinstance(value, list):
        yield from repeated(value, schema, path)
    else:
        missing = (name for name in schema.get("required", ()) if name not in value)
        yield from (causes.required(causes.child(path, name)) for name in missing)
    before = former(old, schema)
    for key, item, field in members(value, schema):
        yield from _check(item, field, causes.member(path, key), before(key, item))


def _check(value: Any, schema: Json, path: str, old: Any = MISSING) -> Iterator[ErrorCause]:
    # Ratcheting: what an update leaves as it was is not held against it.
    if is_same(old, value):
        return
    if value is None and (schema.get("nullable") or "type" not in schema):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if found := list(_check_int_or_string(value, schema, path)):
            yield from found
            return
    elif error := _type_error(value, schema, path):
        yield error
        if not isinstance(value, float) or schema.get("type") != "integer":
            if (allowed := schema.get("enum")) is not None:
                yield causes.not_supported(path, value, allowed)
            return
    if isinstance(value, str):
        yield from _check_string(value, schema, path)
    elif isinstance(value, dict | list):
        yield from _check_container(value, schema, path, old)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(value, schema, path)
    if (allowed := schema.get("enum")) is not None and not _is_one_of(value, allowed):
        yield causes.not_supported(path, value, allowed)
    yield from _check_combinations(value, schema, path)


def _is_one_of(value: Any, allowed: list[Any]) -> bool:
    """Say whether a value is in an enum; for Python, true is also 1."""
    return any(one == value and isinstance(one, bool) is isinstance(value, bool) for one in allowed)


def _fits(value: Any, schema: Json, path: str) -> bool:
    return next(_check(value, schema, path), None) is None


def _check_combinations(value: Any, schema: Json, path: str) -> Iterator[ErrorCause]:
    for part in schema.get("allOf", ()):
        yield from _check(value, part, path)
    if schema.get("x-kubernetes-int-or-string"):
        return
    if (choices := schema.get("anyOf")) and not any(_fits(value, c, path) for c in choices):
        yield _unplaced(f'"{path}" must validate at least one schema (anyOf)')
    if choices := schema.get("oneOf"):
        count = sum(_fits(value, choice, path) for choice in choices)
        if count != 1:
            found = "Found none valid" if count == 0 else f"Found {count} valid alternatives"
            yield _unplaced(f'"{path}" must validate one and only one schema (oneOf). {found}')
    if (refused := schema.get("not")) and _fits(value, refused, path):
        yield _unplaced(f'"{path}" must not validate the schema (not)')


def _check_status(obj: Json, schema: Json, old: Json | None) -> Iterator[ErrorCause]:
    """Check the status alone; detail texts name paths below `status`, as Kubernetes words them."""
    part = (schema.get("properties") or {}).get("status") or {}
    for error in _check(obj["status"], part, "", (old or {}).get("status", MISSING)):
        where = causes.child("status", error.field) if error.field else "status"
        yield error if error.field == _NOWHERE else error._replace(field=where)


def validate(
    obj: Json,
    schema: Json,
    *,
    old: Json | None = None,
    before: Iterable[ErrorCause] = (),
    rules: RuleSet | None = None,
    is_status: bool = False,
) -> list[ErrorCause]:
    """Return what is wrong with an object: structure, then duplicates in lists, then CEL rules.

    Metadata of the root is not looked at. With `old` (the stored object) transition rules run, and
    parts that did not change are not checked again. One blocking error, also `before` in the
    metadata, leaves out the CEL rules. `rules` are those of the schema, if they are made already.
    Of a write to `/status` (`is_status`) only the status and the CEL rules are checked.
    """
    was = MISSING if old is None else old
    if is_status:
        found = list(_check_status(obj, schema, old)) if "status" in obj else []
    else:
        root = {name: value for name, value in obj.items() if name != "metadata"}
        found = list(_check(root, schema, "", was))
    if rules := RuleSet(schema) if rules is None else rules:
        if any(error.reason in _BLOCKING for error in [*found, *before]):
            return [*found, causes.invalid(_NOWHERE, None, _UNCHECKED)]
        found += rules.check(obj, was)
    return found

"""Validation against a structural schema, with the errors a Kubernetes API server gives."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import errors
from lean_sandbox.local.schema.formats import (
    INTEGER_RANGES,
    JSON_TYPES,
    compile_pattern,
    matches_format,
)
from lean_sandbox.local.schema.rules import RuleSet
from lean_sandbox.local.schema.structural import MISSING, former, is_same, members, repeated

Json = dict[str, Any]

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
    return errors.type_invalid(path, found, detail)


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
    return errors.invalid(_NOWHERE, "", detail)


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
            yield errors.invalid(path, value, f"{path} in body should be {shown} {limit}")
    step = schema.get("multipleOf")
    if step and value % step:
        yield errors.invalid(path, value, f"{path} in body should be a multiple of {step}")


def _check_string(value: str, schema: Json, path: str) -> Iterator[ErrorCause]:
    longest = schema.get("maxLength")
    shortest = schema.get("minLength")
    pattern = schema.get("pattern")
    form = schema.get("format")
    # One answer about length and pattern: the first that applies.
    if longest is not None and len(value) > longest:
        yield errors.too_long(path, longest)
    elif shortest is not None and len(value) < shortest:
        detail = f"{path} in body should be at least {shortest} chars long"
        yield errors.invalid(path, value, detail)
    elif pattern and not compile_pattern(pattern).search(value):
        yield errors.invalid(path, value, f"{path} in body should match '{pattern}'")
    if form and schema.get("type") == "string" and not matches_format(value, form):
        shown = json.dumps(value, ensure_ascii=False)
        yield errors.type_invalid(path, value, f"{path} in body must be of type {form}: {shown}")


def _check_container(value: Any, schema: Json, path: str, old: Any) -> Iterator[ErrorCause]:
    """Check a map or list: its size, what is required, what is in it twice, its members."""
    least, most, noun = _SIZES[type(value)]
    count = len(value)
    if (limit := schema.get(most)) is not None and count > limit:
        yield errors.too_many(path, count, limit)
    if (limit := schema.get(least)) is not None and count < limit:
        yield errors.invalid(path, count, f"{path} in body should have at least {limit} {noun}")
    if isinstance(value, list):
        yield from repeated(value, schema, path)
    else:
        missing = (name for name in schema.get("required", ()) if name not in value)
        yield from (errors.required(errors.child(path, name)) for name in missing)
    before = former(old, schema)
    for key, item, field in members(value, schema):
        yield from _check(item, field, errors.member(path, key), before(key, item))


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
                yield errors.not_supported(path, value, allowed)
            return
    if isinstance(value, str):
        yield from _check_string(value, schema, path)
    elif isinstance(value, dict | list):
        yield from _check_container(value, schema, path, old)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(value, schema, path)
    if (allowed := schema.get("enum")) is not None and not _is_one_of(value, allowed):
        yield errors.not_supported(path, value, allowed)
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
        where = errors.child("status", error.field) if error.field else "status"
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
    parts that did not change are not checked again. `before` are errors found in the metadata: when
    one of them is blocking, the CEL rules are left out. `rules` are those of the schema, made anew
    if there are none. `is_status` is for writes to `/status`, of which only the status and the CEL
    rules are checked.
    """
    was = MISSING if old is None else old
    if is_status:
        found = list(_check_status(obj, schema, old)) if "status" in obj else []
    else:
        root = {name: value for name, value in obj.items() if name != "metadata"}
        found = list(_check(root, schema, "", was))
    if rules := RuleSet(schema) if rules is None else rules:
        if any(error.reason in _BLOCKING for error in [*found, *before]):
            return [*found, errors.invalid(_NOWHERE, None, _UNCHECKED)]
        found += rules.check(obj, was)
    return found

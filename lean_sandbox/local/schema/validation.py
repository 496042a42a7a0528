"""Validation against a structural schema, then by its rules.

The errors are those of a Kubernetes API server.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.formats import matches_format
from lean_sandbox.local.schema.metadata import check_metadata
from lean_sandbox.local.schema.rules import RuleSet
from lean_sandbox.local.schema.structural import (
    EMBEDDED,
    INTEGER_RANGES,
    JSON_TYPES,
    MISSING,
    compile_pattern,
    former,
    is_same,
    list_type,
    members,
    repeated,
)

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
_MOST_FLOAT: Final = (2 - 2**-23) * 2.0**127
_NOWHERE: Final = "<nil>"
# The formats that Go's decoder gives numbers; other values have none.
_NUMBER_FORMATS: Final = {"integer": "int64", "number": "float64"}
# Formats of types that are no texts; others are as if they were not said.
_FORMATS: Final = {"integer": ("int32", "int64"), "number": ("float", "double")}
_BOUNDS: Final = (
    ("minimum", "exclusiveMinimum", operator.lt, "greater than", "Minimum boundary"),
    ("maximum", "exclusiveMaximum", operator.gt, "less than", "Maximum boundary"),
)
# Beyond it a number with a fraction has none any more.
_MOST_EXACT: Final = 2**53 - 1
_SIZES: Final[dict[type, tuple[str, str, str]]] = {
    dict: ("minProperties", "maxProperties", "properties"),
    list: ("minItems", "maxItems", "items"),
}


def _wrong_type(path: str, wanted: str, found: str) -> ErrorCause:
    detail = f'{path} in body must be of type {wanted}: "{found}"'
    return causes.type_invalid(path, found, detail)


def _is_integral(value: Any) -> bool:
    """Say whether Go takes a number for an integer; a tiny fraction does not count."""
    if isinstance(value, int):
        low, high = INTEGER_RANGES["int64"]
        return low <= value <= high
    whole = int(value) if abs(value) <= _MOST_EXACT else 0
    return bool(value == whole or 0 < value - whole < 1e-9 * (value + whole))


def _json_type(value: Any) -> str:
    """Return the type of a value; an integer beyond 64 bits is a number, as in Go."""
    found = JSON_TYPES[type(value)]
    return "number" if found == "integer" and not _is_integral(value) else found


def _format_of(schema: Json) -> str | None:
    form: str | None = schema.get("format")
    return form if form in _FORMATS.get(schema.get("type", ""), (form,)) else None


def _check_type(value: Any, schema: Json, path: str) -> Iterator[ErrorCause]:
    if schema.get("x-kubernetes-int-or-string"):
        yield from _check_int_or_string(value, schema, path)
        return
    wanted = schema.get("type")
    found = _json_type(value)
    if wanted in (None, found) or (wanted == "number" and found == "integer"):
        return
    if wanted == "integer" and found == "number" and _is_integral(value):
        return
    shown = _format_of(schema)
    if shown and wanted not in _FORMATS and found in ("string", "array"):
        # As on a real server, whatever the type is.
        return
    if shown and found not in ("string", "array", "null"):
        yield _wrong_type(path, shown, _NUMBER_FORMATS.get(found, ""))
    else:
        yield _wrong_type(path, str(wanted), found)


def _unplaced(detail: str) -> ErrorCause:
    return causes.invalid(_NOWHERE, "", detail)


def _check_int_or_string(value: Any, schema: Json, path: str) -> Iterator[ErrorCause]:
    found = _json_type(value)
    if found in ("integer", "string") or (found == "number" and _is_integral(value)):
        return
    yield _wrong_type(path, "integer,string", found)
    if schema.get("anyOf"):
        yield _unplaced(f'"{path}" must validate at least one schema (anyOf)')
        yield _wrong_type(path, "integer", found)
        if found == "number":
            yield _unplaced(f"Checked value must be of type integer (default format) in {path}")


def _outside(value: float, schema: Json, path: str, what: str) -> Iterator[ErrorCause]:
    """Check that a number, or a bound of numbers, is one of the type."""
    form = _format_of(schema)
    text = ""
    if schema.get("type") == "integer":
        low, high = INTEGER_RANGES[form or "int64"]
        if value != int(value) or not low <= value <= high:
            text = f"integer with format {form}" if form else "integer (default format)"
    elif form == "float" and abs(value) > _MOST_FLOAT:
        text = "number with format float"
    if text:
        yield _unplaced(f"{what} value must be of type {text} in {path}")


def _check_number(value: float, schema: Json, path: str) -> Iterator[ErrorCause]:
    yield from _outside(value, schema, path, "Checked")
    for name, exclusive, is_beyond, text, what in _BOUNDS:
        limit = schema.get(name)
        is_strict = schema.get(exclusive)
        if limit is None:
            continue
        yield from _outside(limit, schema, path, what)
        if is_beyond(value, limit) or (is_strict and value == limit):
            shown = text if is_strict else f"{text} or equal to"
            yield causes.invalid(path, value, f"{path} in body should be {shown} {limit}")
    if (step := schema.get("multipleOf")) is not None:
        yield from _check_multiple(value, step, schema, path)


def _check_multiple(value: float, step: float, schema: Json, path: str) -> Iterator[ErrorCause]:
    odd = list(_outside(step, schema, path, "MultipleOf"))
    yield from odd
    if isinstance(value, int) and _is_integral(value) and not odd:
        # Go compares integers with the integer part.
        step = int(step)
    if step <= 0:
        text = f"factor MultipleOf declared for {path} must be positive: {step}"
        yield causes.invalid(path, step, text)
    elif not (value % step == 0 if isinstance(step, int) else _is_integral(value / step)):
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
    is_map_list = isinstance(value, list) and list_type(schema) == "map"
    for position, item in enumerate(value) if is_map_list else ():
        if item is not None and not isinstance(item, dict):
            text = "must be an object for an array of list-type map"
            yield causes.invalid(f"{path}[{position}]", item, text)
    if isinstance(value, dict) and schema.get(EMBEDDED):
        yield from check_embedded(value, path)
    before = former(old, schema)
    for key, item, field in members(value, schema):
        yield from _check(item, field, causes.member(path, key), before(key, item))


def _check(value: Any, schema: Json, path: str, old: Any = MISSING) -> Iterator[ErrorCause]:
    # Ratcheting: what an update leaves as it was is not held against it.
    if is_same(old, value):
        return
    if value is None and (schema.get("nullable") or "type" not in schema):
        return
    found = list(_check_type(value, schema, path))
    yield from found
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not found or schema.get("type") in (None, "integer"):
            yield from _check_number(value, schema, path)
    elif isinstance(value, str) and not found:
        yield from _check_string(value, schema, path)
    elif isinstance(value, dict | list) and not found:
        yield from _check_container(value, schema, path, old)
    if (allowed := schema.get("enum")) is not None and not _is_one_of(value, allowed):
        shown = (one if isinstance(one, str) else json.dumps(one) for one in allowed)
        yield causes.not_supported(path, value, shown)
    yield from _check_combinations(value, schema, path)


def _is_one_of(value: Any, allowed: list[Any]) -> bool:
    """Say whether a value is in an enum; for Python, true is also 1."""
    return any(one == value and isinstance(one, bool) is isinstance(value, bool) for one in allowed)


def _fits(value: Any, schema: Json, path: str) -> bool:
    return next(_check(value, schema, path), None) is None


def _check_combinations(value: Any, schema: Json, path: str) -> Iterator[ErrorCause]:
    parts = schema.get("allOf", ())
    broken = [list(_check(value, part, path)) for part in parts]
    if any(broken):
        suffix = ". None validated" if all(broken) else ""
        yield _unplaced(f'"{path}" must validate all the schemas (allOf){suffix}')
    for errors in broken:
        yield from errors
    if schema.get("x-kubernetes-int-or-string"):
        return
    if (choices := schema.get("anyOf")) and not any(_fits(value, c, path) for c in choices):
        yield _unplaced(f'"{path}" must validate at least one schema (anyOf)')
        yield from _check(value, choices[0], path)
    if choices := schema.get("oneOf"):
        count = sum(_fits(value, choice, path) for choice in choices)
        if count != 1:
            found = "Found none valid" if count == 0 else f"Found {count} valid alternatives"
            yield _unplaced(f'"{path}" must validate one and only one schema (oneOf). {found}')
        if count == 0:
            yield from _check(value, choices[0], path)
    if (refused := schema.get("not")) and _fits(value, refused, path):
        yield _unplaced(f'"{path}" must not validate the schema (not)')


def check_value(value: Any, schema: Json) -> Iterator[ErrorCause]:
    """Give what is wrong with a value by its schema; paths begin in it."""
    yield from _check(value, schema, "")


def check_embedded(obj: Json, path: str) -> Iterator[ErrorCause]:
    """Give what is wrong with an object inside another one: its type and its metadata."""
    for name in ("apiVersion", "kind"):
        if name not in obj:
            yield causes.required(f"{path}.{name}")
        elif not obj[name]:
            yield causes.invalid(f"{path}.{name}", "", "must not be empty")
    if str(version := obj.get("apiVersion") or "").count("/") > 1:
        text = f"unexpected GroupVersion string: {version}"
        yield causes.invalid(f"{path}.apiVersion", version, text)
    yield from check_metadata(obj.get("metadata") or {}, f"{path}.metadata")


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

"""Validation against a structural schema, with the errors a Kubernetes API server gives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors, paths
from lean_sandbox.local.schema.formats import INTEGER_RANGES, compile_pattern, matches_format
from lean_sandbox.local.schema.rules import RuleSet
from lean_sandbox.local.schema.structural import MISSING, former, members, repeated

Json = dict[str, Any]

# Rules are not asked about a value that has not its type or size.
_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_NOWHERE = "<nil>"


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


# The formats that Go's decoder gives numbers; other values have none.
_NUMBER_FORMATS = {"integer": "int64", "number": "float64"}


def _wrong_type(path: str, wanted: str, found: str) -> Cause:
    detail = f'{path} in body must be of type {wanted}: "{found}"'
    return errors.type_invalid(path, found, detail)


def _type_error(value: Any, schema: Json, path: str) -> Cause | None:
    wanted = schema.get("type")
    if wanted is None:
        return None
    found = _json_type(value)
    is_integral = isinstance(value, float) and value.is_integer()
    if (
        found == wanted
        or (wanted == "number" and found == "integer")
        or (wanted == "integer" and is_integral)
    ):
        return None
    shown = schema.get("format")
    if shown and found not in {"string", "array", "null"}:
        return _wrong_type(path, shown, _NUMBER_FORMATS.get(found, ""))
    return _wrong_type(path, wanted, found)


def _unplaced(detail: str) -> Cause:
    return errors.invalid(_NOWHERE, "", detail)


def _check_int_or_string(value: Any, schema: Json, path: str, out: list[Cause]) -> bool:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return True
    found = _json_type(value)
    out.append(_wrong_type(path, "integer,string", found))
    if schema.get("anyOf"):
        out.append(_unplaced(f'"{path}" must validate at least one schema (anyOf)'))
        out.append(_wrong_type(path, "integer", found))
    if found == "number":
        out.append(_unplaced(f"Checked value must be of type integer (default format) in {path}"))
    return False


def _check_number(value: float, schema: Json, path: str, out: list[Cause]) -> None:
    form = schema.get("format")
    if schema.get("type") == "integer" and form in INTEGER_RANGES:
        low, high = INTEGER_RANGES[form]
        if value != int(value) or not low <= value <= high:
            shown = f"Checked value must be of type integer with format {form} in {path}"
            out.append(_unplaced(shown))
            return
    texts: list[str] = []
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    if minimum is not None:
        if schema.get("exclusiveMinimum") and value <= minimum:
            texts.append(f"should be greater than {minimum}")
        elif value < minimum:
            texts.append(f"should be greater than or equal to {minimum}")
    if maximum is not None:
        if schema.get("exclusiveMaximum") and value >= maximum:
            texts.append(f"should be less than {maximum}")
        elif value > maximum:
            texts.append(f"should be less than or equal to {maximum}")
    step = schema.get("multipleOf")
    if step and value % step:
        texts.append(f"should be a multiple of {step}")
    out.extend(errors.invalid(path, value, f"{path} in body {text}") for text in texts)


def _check_string(value: str, schema: Json, path: str, out: list[Cause]) -> None:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    pattern = schema.get("pattern")
    # One answer about length and pattern: the first that applies.
    if longest is not None and len(value) > longest:
        out.append(errors.too_long(path, longest))
    elif shortest is not None and len(value) < shortest:
        detail = f"{path} in body should be at least {shortest} chars long"
        out.append(errors.invalid(path, value, detail))
    elif pattern and not compile_pattern(pattern).search(value):
        out.append(errors.invalid(path, value, f"{path} in body should match '{pattern}'"))
    form = schema.get("format")
    if form and schema.get("type") == "string" and not matches_format(value, form):
        shown = json.dumps(value, ensure_ascii=False)
        detail = f"{path} in body must be of type {form}: {shown}"
        out.append(errors.type_invalid(path, value, detail))


_SIZES: dict[type, tuple[str, str, str]] = {
    dict: ("minProperties", "maxProperties", "properties"),
    list: ("minItems", "maxItems", "items"),
}


def _check_container(value: Any, schema: Json, path: str, old: Any, out: list[Cause]) -> None:
    """Check a map or list: its size, what is required, what is in it twice, its members."""
    least, most, noun = _SIZES[type(value)]
    count = len(value)
    if (limit := schema.get(most)) is not None and count > limit:
        out.append(errors.too_many(path, count, limit))
    if (limit := schema.get(least)) is not None and count < limit:
        detail = f"{path} in body should have at least {limit} {noun}"
        out.append(errors.invalid(path, count, detail))
    if isinstance(value, list):
        out.extend(repeated(value, schema, path))
    else:
        missing = [name for name in schema.get("required", ()) if name not in value]
        out.extend(errors.required(paths.child(path, name)) for name in missing)
    before = former(old, schema)
    for key, item, field in members(value, schema):
        _check(item, field, paths.member(path, key), before(key, item), out)


def _check(value: Any, schema: Json, path: str, old: Any, out: list[Cause]) -> None:
    # Ratcheting: what an update leaves as it was is not held against it.
    if old is not MISSING and old == value and type(old) is type(value):
        return
    if value is None and (schema.get("nullable") or "type" not in schema):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if not _check_int_or_string(value, schema, path, out):
            return
    elif error := _type_error(value, schema, path):
        out.append(error)
        if not isinstance(value, float) or schema.get("type") != "integer":
            if (allowed := schema.get("enum")) is not None:
                out.append(errors.not_supported(path, value, allowed))
            return
    if isinstance(value, str):
        _check_string(value, schema, path, out)
    elif isinstance(value, dict | list):
        _check_container(value, schema, path, old, out)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(value, schema, path, out)
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        out.append(errors.not_supported(path, value, allowed))
    _check_combinations(value, schema, path, out)


def _fits(value: Any, schema: Json, path: str) -> bool:
    found: list[Cause] = []
    _check(value, schema, path, MISSING, found)
    return not found


def _check_combinations(value: Any, schema: Json, path: str, out: list[Cause]) -> None:
    for part in schema.get("allOf", ()):
        _check(value, part, path, MISSING, out)
    if schema.get("x-kubernetes-int-or-string"):
        return
    if (choices := schema.get("anyOf")) and not any(_fits(value, c, path) for c in choices):
        out.append(_unplaced(f'"{path}" must validate at least one schema (anyOf)'))
    if choices := schema.get("oneOf"):
        count = sum(_fits(value, choice, path) for choice in choices)
        if count != 1:
            found = "Found none valid" if count == 0 else f"Found {count} valid alternatives"
            text = f'"{path}" must validate one and only one schema (oneOf). {found}'
            out.append(_unplaced(text))
    if (refused := schema.get("not")) and _fits(value, refused, path):
        out.append(_unplaced(f'"{path}" must not validate the schema (not)'))


def _check_status(obj: Json, schema: Json, old: Json | None) -> list[Cause]:
    """Check the status alone; detail texts name paths below `status`, as Kubernetes words them."""
    if "status" not in obj:
        return []
    part = (schema.get("properties") or {}).get("status") or {}
    before = (old or {}).get("status", MISSING)
    found: list[Cause] = []
    _check(obj["status"], part, "", before, found)
    return [
        error if error.field == _NOWHERE else error._replace(field=_below_status(error.field))
        for error in found
    ]


def _below_status(path: str) -> str:
    return paths.child("status", path) if path else "status"


def validate(
    obj: Json,
    schema: Json,
    *,
    old: Json | None = None,
    before: Iterable[Cause] = (),
    rules: RuleSet | None = None,
    is_status: bool = False,
) -> list[Cause]:
    """Return what is wrong with an object: structure, then duplicates in lists, then CEL rules.

    Metadata of the root is not looked at. With `old` (the stored object) transition rules run, and
    parts that did not change are not checked again. `before` are errors found in the metadata: when
    one of them is blocking, the CEL rules are left out. `rules` are those of the schema, made anew
    if there are none. `is_status` is for writes to `/status`, of which only the status and the CEL
    rules are checked.
    """
    if is_status:
        found = _check_status(obj, schema, old)
    else:
        found = []
        root = {name: value for name, value in obj.items() if name != "metadata"}
        _check(root, schema, "", MISSING if old is None else old, found)
    if rules := RuleSet(schema) if rules is None else rules:
        if any(error.reason in _BLOCKING for error in [*found, *before]):
            found.append(errors.invalid(_NOWHERE, None, _UNCHECKED))
        else:
            found.extend(rules.check(obj, MISSING if old is None else old))
    return found

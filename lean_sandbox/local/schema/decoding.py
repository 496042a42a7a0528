"""The 400 answers of a decoder: JSON values that do not fit the fields of a built-in kind."""

from __future__ import annotations

import base64
import binascii
import copy
from typing import Any

from lean_sandbox.local.schema import errors
from lean_sandbox.local.schema.builtin import builtin_schema
from lean_sandbox.local.schema.formats import INTEGER_RANGES
from lean_sandbox.model.comparison import parse_quantity
from lean_sandbox.model.times import parse_rfc3339

Json = dict[str, Any]

_QUANTITY_TEXT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


def _json_name(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _go_type(schema: Json) -> str:
    kind = schema.get("type")
    if kind == "array":
        return "[]" + _go_type(schema["items"])
    if kind == "object":
        others = schema.get("additionalProperties")
        if isinstance(others, dict):
            return "map[string]" + _go_type(others)
        return f"v1.{schema.get('title', 'Object')}"
    if kind == "integer":
        return str(schema.get("format", "int32"))
    if kind == "boolean":
        return "bool"
    if schema.get("x-kubernetes-int-or-string"):
        return "resource.Quantity" if "pattern" in schema else "int32"
    return "time.Time" if schema.get("format") == "date-time" else "string"


class _Undecodable(Exception):  # noqa: N818 -- control flow inside this module
    """The first value that does not fit."""


def _mismatch(value: Any, schema: Json, where: str, number: str = "") -> _Undecodable:
    shown = f"{_json_name(value)} {number}".rstrip()
    return _Undecodable(
        f"json: cannot unmarshal {shown} into Go struct field {where} of type {_go_type(schema)}"
    )


def _check_scalar(value: Any, schema: Json, where: str) -> None:
    kind, form = schema.get("type"), schema.get("format")
    if kind == "boolean":
        if not isinstance(value, bool):
            raise _mismatch(value, schema, where)
    elif kind == "integer":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _mismatch(value, schema, where)
        low, high = INTEGER_RANGES[form or "int32"]
        if not (isinstance(value, int) and low <= value <= high):
            raise _mismatch(value, schema, where, str(value))
    elif kind == "number":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _mismatch(value, schema, where)
    elif kind == "string":
        _check_text(value, schema, where)
    elif schema.get("x-kubernetes-int-or-string"):
        _check_int_or_string(value, schema, where)


def _check_int_or_string(value: Any, schema: Json, where: str) -> None:
    if "pattern" in schema:
        if parse_quantity(value) is None:
            raise _Undecodable(_QUANTITY_TEXT)
    elif isinstance(value, bool) or not isinstance(value, int | str):
        raise _mismatch(value, schema, where)


def _is_go_time(text: str) -> bool:
    # Go tells "T" and "Z" from "t" and "z".
    try:
        parse_rfc3339(text)
    except ValueError:
        return False
    return text == text.upper()


def _check_text(value: Any, schema: Json, where: str) -> None:
    if not isinstance(value, str):
        raise _mismatch(value, schema, where)
    form = schema.get("format")
    if form == "date-time" and not _is_go_time(value):
        layout = "2006-01-02T15:04:05Z07:00"
        raise _Undecodable(
            f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'
        )
    if form == "byte":
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error:
            raise _Undecodable("illegal base64 data at input byte 0") from None


def _check(value: Any, schema: Json, path: tuple[str, ...], owner: str) -> None:
    if value is None:
        return
    kind = schema.get("type")
    where = ".".join((owner, *path))
    if kind == "object":
        if not isinstance(value, dict):
            raise _mismatch(value, schema, where)
        properties: Json = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        inner = schema.get("title", owner)
        for name, item in value.items():
            if (field := properties.get(name)) is not None:
                _check(item, field, (*path, name), inner)
            elif isinstance(others, dict):
                _check(item, others, path, owner)
    elif kind == "array":
        if not isinstance(value, list):
            raise _mismatch(value, schema, where)
        for item in value:
            _check(item, schema["items"], path, owner)
    else:
        _check_scalar(value, schema, where)


def _status(kind: str, version: str, problem: str) -> Json:
    text = f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}'
    return errors.status_body(400, "BadRequest", text)


def decode_errors(obj: Json, schema: Json, kind: str, version: str) -> Json | None:
    """Return the 400 Status for a built-in object whose JSON types do not fit, or None."""
    try:
        _check(obj, schema, (), kind)
    except _Undecodable as error:
        return _status(kind, version, str(error))
    return None


def metadata_decode_errors(obj: Json, kind: str, version: str) -> Json | None:
    """Return the 400 Status for a custom object whose metadata does not fit ObjectMeta, or None."""
    schema = builtin_schema("Pod")["properties"]["metadata"]
    try:
        _check(obj.get("metadata"), schema, (), "ObjectMeta")
    except _Undecodable as error:
        return _status(kind, version, str(error))
    return None


def clear_nulls(value: Any, schema: Json) -> None:
    """Do in place what decoding does with nulls: fields are left out, list items become empty."""
    if isinstance(value, dict):
        properties: Json = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        for name in [name for name in value if value[name] is None]:
            del value[name]
        for name, item in value.items():
            field = properties.get(name, others)
            if isinstance(item, dict | list) and isinstance(field, dict):
                clear_nulls(item, field)
    elif isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        empty: Any = {"object": {}, "string": "", "array": []}.get(items.get("type", ""), 0)
        for position, item in enumerate(value):
            if item is None:
                value[position] = copy.copy(empty)
            else:
                clear_nulls(item, items)

"""Field errors, the causes of a 422 answer: paths and words as Kubernetes has them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause

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

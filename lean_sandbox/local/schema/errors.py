"""Field errors and the Status bodies made of them, worded as Kubernetes words them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


class _Omitted:
    """Marks an error that does not quote the bad value."""


OMITTED = _Omitted()


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with one field: a cause of a 422 answer."""

    field: str
    reason: str
    message: str
    bad_value: Any = None

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def _quoted(value: Any) -> str:
    if value is None:
        return "null"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _error(field: str, reason: str, head: str, value: Any, detail: str) -> FieldError:
    text = head if isinstance(value, _Omitted) else f"{head}: {_quoted(value)}"
    kept = None if isinstance(value, _Omitted) else value
    return FieldError(field, reason, f"{text}: {detail}" if detail else text, kept)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """Return ``Invalid value: <value>: <detail>`` (pass OMITTED to leave the value out)."""
    return _error(field, "FieldValueInvalid", "Invalid value", value, detail)


def type_invalid(field: str, value: Any, detail: str) -> FieldError:
    """Return an invalid-value error whose cause says that the JSON type is wrong."""
    return _error(field, "FieldValueTypeInvalid", "Invalid value", value, detail)


def required(field: str, detail: str = "") -> FieldError:
    """Return ``Required value``."""
    return _error(field, "FieldValueRequired", "Required value", OMITTED, detail)


def forbidden(field: str, detail: str) -> FieldError:
    """Return ``Forbidden: <detail>``."""
    return _error(field, "FieldValueForbidden", "Forbidden", OMITTED, detail)


def duplicate(field: str, value: Any) -> FieldError:
    """Return ``Duplicate value: <value>``."""
    return _error(field, "FieldValueDuplicate", "Duplicate value", value, "")


def not_found(field: str, value: Any) -> FieldError:
    """Return ``Not found: <value>``."""
    return _error(field, "FieldValueNotFound", "Not found", value, "")


def not_supported(field: str, value: Any, supported: Iterable[Any]) -> FieldError:
    """Return ``Unsupported value: <value>: supported values: ...``."""
    names = ", ".join(_quoted(item) for item in supported)
    detail = f"supported values: {names}"
    return _error(field, "FieldValueNotSupported", "Unsupported value", value, detail)


def too_long(field: str, limit_bytes: int, unit: str = "bytes") -> FieldError:
    """Return ``Too long: may not be more than N bytes``."""
    detail = f"may not be more than {limit_bytes} {unit}"
    return _error(field, "FieldValueTooLong", "Too long", OMITTED, detail)


def too_many(field: str, count: int, limit: int) -> FieldError:
    """Return ``Too many: <count>: must have at most <limit> items``."""
    noun = "item" if limit == 1 else "items"
    detail = f"must have at most {limit} {noun}"
    return _error(field, "FieldValueTooMany", "Too many", count, detail)


def immutable(field: str, value: Any) -> FieldError:
    """Return the refusal to change a field that is fixed at creation."""
    return invalid(field, value, "field is immutable")


def status_body(code: int, reason: str, message: str, details: Json | None = None) -> Json:
    """Return a failure Status."""
    body: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
    }
    if details:
        body["details"] = details
    body["code"] = code
    return body


def invalid_status(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> Json:
    """Return the 422 Status of an object that failed validation."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    shown = f"{kind}.{group}" if group else kind
    details: Json = {"name": name, "group": group, "kind": kind}
    details = {key: value for key, value in details.items() if value}
    details["causes"] = [
        {"reason": error.reason, "message": error.message, "field": error.field} for error in errors
    ]
    return status_body(422, "Invalid", f'{shown} "{name}" is invalid: {joined}', details)


def unknown_field_errors(paths: Iterable[str]) -> list[str]:
    """Return the text of each dropped field, as warnings and strict errors word it."""
    return [f'unknown field "{path}"' for path in paths]


def strict_decoding_status(
    kind: str, version: str, paths: Iterable[str], duplicates: Iterable[str] = ()
) -> Json:
    """Return the 400 Status of fieldValidation=Strict for unknown and repeated fields."""
    texts = [f'duplicate field "{path}"' for path in duplicates] + unknown_field_errors(paths)
    problem = "strict decoding error: " + ", ".join(texts)
    message = f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}'
    return status_body(400, "BadRequest", message)


def warning_header(text: str) -> str:
    """Return the value of one Warning header (RFC 7234 warn-code 299, unknown agent)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'

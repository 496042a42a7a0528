"""Printer columns: which a kind has, and the cells of one object."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from lean_sandbox.local.jsonpath import parse_path
from lean_sandbox.local.printers import AGE, NAME, PRINTERS, age_of, since
from lean_sandbox.local.registry import Kind, PrinterColumn

Json = dict[str, Any]
_CUSTOM: Final = "Custom resource definition column (in JSONPath format): "


def columns_of(kind: Kind) -> list[Json]:
    """Return the `columnDefinitions` of a kind."""
    if kind.is_custom:
        return [NAME, *(_definition(column) for column in kind.columns)]
    printer = PRINTERS.get(kind.plural)
    return list(printer.columns) if printer else [NAME, AGE]


def _definition(column: PrinterColumn) -> Json:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description or _CUSTOM + column.path,
        "priority": column.priority,
    }


def cells_of(kind: Kind, obj: Json, now: datetime) -> list[Any]:
    """Return the cells of one object, one for each column of its kind."""
    if kind.is_custom:
        return [obj["metadata"]["name"], *(_cell(column, obj, now) for column in kind.columns)]
    printer = PRINTERS.get(kind.plural)
    if printer is not None:
        return printer.cells(obj, now)
    return [obj["metadata"]["name"], age_of(obj, now)]


def _cell(column: PrinterColumn, obj: Json, now: datetime) -> Any:
    found = parse_path(column.path)(obj)
    if not found or found[0] is None:
        return None
    value = found[0]
    if column.type == "date":
        return since(value if isinstance(value, str) else None, now)
    if column.type == "string":
        if len(found) > 1 and not isinstance(value, dict | list):
            return ",".join(_text(item) for item in found)
        return _text(value)
    if column.type == "integer":
        return int(value) if isinstance(value, int | float) else None
    if column.type == "number":
        return float(value) if isinstance(value, int | float) else None
    if column.type == "boolean":
        return value if isinstance(value, bool) else None
    return None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)

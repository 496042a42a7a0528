"""Printer columns: which a kind has, and the cells of one object."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from lean_sandbox.local import recorded
from lean_sandbox.local.ages import since
from lean_sandbox.local.jsonpath import parse_path
from lean_sandbox.local.printers import PRINTERS
from lean_sandbox.local.registry import Kind, PrinterColumn

Json = dict[str, Any]
_CUSTOM: Final = "Custom resource definition column (in JSONPath format): "


def columns_of(kind: Kind) -> list[Json]:
    """Return the `columnDefinitions` of a kind."""
    if not kind.is_custom:
        return recorded.columns()[kind.qualified_plural]
    name = recorded.columns()["configmaps"][0]
    return [name, *(_definition(column) for column in _readable(kind))]


def _readable(kind: Kind) -> Sequence[PrinterColumn]:
    """Return the columns before the first one whose path is no JSONPath."""
    for position, column in enumerate(kind.columns):
        try:
            parse_path(column.path)
        except ValueError:
            return kind.columns[:position]
    return kind.columns


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
        cells = (_cell(column, obj, now) for column in _readable(kind))
        return [obj["metadata"]["name"], *cells]
    return PRINTERS[kind.storage](obj, now)


def _cell(column: PrinterColumn, obj: Json, now: datetime) -> Any:
    found = parse_path(column.path)(obj)
    if not found:
        return None
    value = found[0]  # a column shows one value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match column.type:
        case "string":
            return _text(value)
        case "integer" if is_number:
            return int(value)
        case "number" if is_number:
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "date" if isinstance(value, str):
            return since(value, now)
    return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    return msgspec.json.encode(value, order="sorted").decode()

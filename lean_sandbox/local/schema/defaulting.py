"""Schema defaults (structural defaulting of apiextensions.k8s.io/v1)."""

from __future__ import annotations

import copy
from typing import Any

Json = dict[str, Any]


def apply_defaults(obj: Any, schema: Json) -> None:
    """Write the schema's defaults into the object, in place.

    A null that the schema does not allow counts as absent: it becomes the default or disappears.
    A number without a fraction becomes an integer where the schema says integer.
    """
    if isinstance(obj, dict):
        _default_object(obj, schema)
    elif isinstance(obj, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for position, item in enumerate(obj):
                if isinstance(item, dict | list):
                    apply_defaults(item, items)
                elif isinstance(item, float) and _is_integral(item, items):
                    obj[position] = int(item)


def _is_integral(value: float, schema: Json) -> bool:
    return schema.get("type") == "integer" and value.is_integer()


def _default_object(obj: Json, schema: Json) -> None:
    properties: Json = schema.get("properties") or {}
    for name, field in properties.items():
        value = obj.get(name)
        if value is None:
            if name in obj and not field.get("nullable"):
                del obj[name]
            if name not in obj and "default" in field:
                value = obj[name] = copy.deepcopy(field["default"])
        if isinstance(value, dict | list):
            apply_defaults(value, field)
        elif isinstance(value, float) and _is_integral(value, field):
            obj[name] = int(value)
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        for name in [name for name in obj if name not in properties]:
            value = obj[name]
            if isinstance(value, dict | list):
                apply_defaults(value, others)
            elif value is None and not others.get("nullable"):
                if "default" in others:
                    obj[name] = copy.deepcopy(others["default"])
                else:
                    del obj[name]

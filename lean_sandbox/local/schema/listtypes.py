"""Lists that are sets or maps: who is who, and no duplicates (x-kubernetes-list-type)."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from lean_sandbox.local.schema import errors, paths
from lean_sandbox.local.schema.errors import FieldError

Json = dict[str, Any]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _map_keys(item: Any, schema: Json) -> Json:
    """Return the key fields of an item of a map list, with defaults filled in."""
    if not isinstance(item, dict):
        return {}
    properties: Json = (schema.get("items") or {}).get("properties") or {}
    found: Json = {}
    for name in sorted(schema.get("x-kubernetes-list-map-keys", ())):
        value = item.get(name, properties.get(name, {}).get("default"))
        if value is not None:
            found[name] = value
    return found


def identity(item: Any, schema: Json) -> Hashable | None:
    """Return what identifies an item of a set or map list; None in atomic lists."""
    kind = schema.get("x-kubernetes-list-type")
    if kind == "map":
        return _canonical(_map_keys(item, schema))
    return _canonical(item) if kind == "set" else None


def correlate(old: Any, schema: Json) -> Callable[[Any, Any], Any]:
    """Return a function that finds the old item for a new one, or returns its second argument."""
    if not isinstance(old, list) or schema.get("x-kubernetes-list-type") != "map":
        return lambda _item, missing: missing
    known = {identity(item, schema): item for item in old}
    return lambda item, missing: known.get(identity(item, schema), missing)


def _repeated(value: list[Any], schema: Json, path: str) -> Iterator[FieldError]:
    seen: dict[Hashable, int] = {}
    is_map = schema.get("x-kubernetes-list-type") == "map"
    for position, item in enumerate(value):
        key = identity(item, schema)
        if key is None:
            return
        seen[key] = seen.get(key, 0) + 1
        # Each repeated value is reported once, however often it comes back.
        if seen[key] == 2:
            shown = _map_keys(item, schema) if is_map else item
            yield errors.duplicate(paths.index(path, position), shown)


def duplicates(value: Any, schema: Json, path: str, old: Any = None) -> Iterator[FieldError]:
    """Give an error for each value that a set, or each key that a map list, holds twice.

    What is equal to its `old` value is not looked at.
    """
    if old is not None and old == value:
        return
    if isinstance(value, dict):
        properties: Json = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        before: Json = old if isinstance(old, dict) else {}
        for name, item in value.items():
            if isinstance(item, dict | list):
                field = properties.get(name, others)
                if isinstance(field, dict):
                    yield from duplicates(item, field, paths.child(path, name), before.get(name))
    elif isinstance(value, list):
        yield from _repeated(value, schema, path)
        items = schema.get("items")
        if isinstance(items, dict):
            find = correlate(old, schema)
            for position, item in enumerate(value):
                if isinstance(item, dict | list):
                    where = paths.index(path, position)
                    yield from duplicates(item, items, where, find(item, None))

"""What a structural schema (apiextensions.k8s.io/v1) makes of an object: pruned, with defaults.

Objects are changed in place, schemas never.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final

import msgspec

from lean_sandbox.local import recorded
from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors
from lean_sandbox.local.schema.decoding import METADATA

Json = dict[str, Any]

EMBEDDED: Final = "x-kubernetes-embedded-resource"
OPEN: Final = "x-kubernetes-preserve-unknown-fields"
MISSING: Final = object()
"""Stands for the old value of what is new."""

_encode: Final = msgspec.json.Encoder(order="sorted").encode


def is_same(one: Any, other: Any) -> bool:
    """Say whether two values are the same JSON: for Python, 1 is also true and 1.0."""
    return bool(one == other) and _encode(one) == _encode(other)


def members(value: Any, schema: Json) -> Iterator[tuple[Any, Any, Json]]:
    """Give key, value and schema of each member of a map or list that the schema describes."""
    if isinstance(value, dict):
        properties: Json = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        for name, item in value.items():
            field = properties.get(name, others)
            if isinstance(field, dict):
                yield name, item, field
    elif isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        for position, item in enumerate(value):
            yield position, item, items


def _map_keys(item: Any, schema: Json) -> Json:
    """Return the key fields of an item of a map list, with defaults filled in."""
    if not isinstance(item, dict):
        return {}
    properties: Json = (schema.get("items") or {}).get("properties") or {}
    found = {
        name: item.get(name, properties.get(name, {}).get("default"))
        for name in sorted(schema.get("x-kubernetes-list-map-keys", ()))
    }
    return {name: value for name, value in found.items() if value is not None}


def _identity(item: Any, schema: Json) -> Hashable:
    """Return what tells apart the items of a set or a map list."""
    is_map = schema.get("x-kubernetes-list-type") == "map"
    return json.dumps(_map_keys(item, schema) if is_map else item, sort_keys=True)


def former(old: Any, schema: Json) -> Callable[[Any, Any], Any]:
    """Return a function of key and value that finds what a member was before, or MISSING."""
    if isinstance(old, dict):
        return lambda name, _item: old.get(name, MISSING)
    if not isinstance(old, list) or schema.get("x-kubernetes-list-type") != "map":
        return lambda _position, _item: MISSING
    known = {_identity(item, schema): item for item in old}
    return lambda _position, item: known.get(_identity(item, schema), MISSING)


def repeated(value: list[Any], schema: Json, path: str) -> Iterator[Cause]:
    """Give an error for each value that a set, or each key that a map list, holds twice."""
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("map", "set"):
        return
    seen: dict[Hashable, int] = {}
    for position, item in enumerate(value):
        key = _identity(item, schema)
        seen[key] = seen.get(key, 0) + 1
        # Each repeated value is reported once, however often it comes back.
        if seen[key] == 2:
            shown = _map_keys(item, schema) if kind == "map" else item
            yield errors.duplicate(f"{path}[{position}]", shown)


def prune(obj: Json, schema: Json) -> list[str]:
    """Remove unknown fields in place and return their paths, sorted.

    A field below a removed one is not listed on its own. apiVersion, kind and metadata of the root
    and of embedded resources stay; unknown fields inside such metadata go.
    """
    dropped: list[str] = []
    _prune(obj, {**schema, EMBEDDED: True}, "", dropped)
    return sorted(dropped)


def _prune(value: Any, schema: Json, path: str, dropped: list[str]) -> None:
    if isinstance(value, dict):
        properties: Json = schema.get("properties") or {}
        if schema.get(EMBEDDED):
            own = {"apiVersion": {}, "kind": {}, "metadata": recorded.linked_schema(METADATA)}
            properties = {**properties, **own}
            schema = {**schema, "properties": properties}
        if not schema.get(OPEN) and schema.get("additionalProperties") in (None, False):
            for name in value.keys() - properties.keys():
                del value[name]
                dropped.append(errors.child(path, name))
    for key, item, field in members(value, schema):
        if isinstance(item, dict | list):
            _prune(item, field, errors.member(path, key), dropped)


def apply_defaults(value: Any, schema: Json) -> None:
    """Write the schema's defaults into an object, in place.

    A null that the schema does not allow counts as absent: it becomes the default or disappears.
    A number without a fraction becomes an integer where the schema says integer.
    """
    if isinstance(value, dict):
        for name, item, field in list(members(value, schema)):
            if item is None and not field.get("nullable"):
                del value[name]
                if "default" in field:
                    value[name] = copy.deepcopy(field["default"])
        for name, field in (schema.get("properties") or {}).items():
            if name not in value and "default" in field:
                value[name] = copy.deepcopy(field["default"])
    for key, item, field in members(value, schema):
        if isinstance(item, dict | list):
            apply_defaults(item, field)
        elif isinstance(item, float) and field.get("type") == "integer" and item.is_integer():
            value[key] = int(item)

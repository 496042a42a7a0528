"""How a schema describes an object: its members, how lists merge; pruned by it, with its defaults.

Objects are changed in place, schemas never.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from lean_sandbox.local import recorded
from lean_sandbox.local.errors import ErrorCause
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


Node = Json | None
"""The schema of one place in an object, None where nothing is known."""


def child(node: Node, name: str) -> Node:
    """Return the node of a member of a map."""
    known = node or {}
    found = (known.get("properties") or {}).get(name, known.get("additionalProperties"))
    return found if isinstance(found, dict) else None


def items(node: Node) -> Node:
    """Return the node of the items of a list."""
    found = (node or {}).get("items")
    return found if isinstance(found, dict) else None


def list_type(node: Node) -> str:
    """Return whether a list is a ``set`` or a ``map`` by keys; others are replaced whole."""
    return str((node or {}).get("x-kubernetes-list-type") or "")


def key_of(item: Any, node: Node) -> Any:
    """Return what tells an item of a set or a map list apart: itself, or its keys with defaults."""
    if node is None or list_type(node) != "map":
        return item
    if not isinstance(item, dict):
        return {}
    found = {}
    for name in sorted(node.get("x-kubernetes-list-map-keys") or ()):
        value = item.get(name)
        found[name] = (child(items(node), name) or {}).get("default") if value is None else value
    return {name: value for name, value in found.items() if value is not None}


def with_metadata(schema: Node) -> Node:
    """Return an object's schema with that of its metadata in place."""
    properties = dict((schema or {}).get("properties") or {})
    properties["metadata"] = recorded.linked_schema(METADATA)
    return {**(schema or {}), "properties": properties}


def members(value: Any, schema: Node) -> Iterator[tuple[Any, Any, Json]]:
    """Give key, value and schema of each member of a map or list that the schema describes."""
    if isinstance(value, dict):
        for name, item in value.items():
            if (field := child(schema, name)) is not None:
                yield name, item, field
    elif isinstance(value, list) and (field := items(schema)) is not None:
        for position, item in enumerate(value):
            yield position, item, field


def former(old: Any, schema: Json) -> Callable[[Any, Any], Any]:
    """Return a function of key and value that finds what a member was before, or MISSING."""
    if isinstance(old, dict):
        return lambda name, _item: old.get(name, MISSING)
    if not isinstance(old, list) or list_type(schema) != "map":
        return lambda _position, _item: MISSING
    known = {_encode(key_of(item, schema)): item for item in old}
    return lambda _position, item: known.get(_encode(key_of(item, schema)), MISSING)


def repeated(value: list[Any], schema: Json, path: str) -> Iterator[ErrorCause]:
    """Give an error for each value that a set, or each key that a map list, holds twice."""
    if list_type(schema) not in ("map", "set"):
        return
    seen: Counter[bytes] = Counter()
    for position, item in enumerate(value):
        key = key_of(item, schema)
        seen[_encode(key)] += 1
        # Each repeated value is reported once, however often it comes back.
        if seen[_encode(key)] == 2:
            yield errors.duplicate(f"{path}[{position}]", key)


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

"""How lists and maps of an object merge, read from its OpenAPI schema.

A node is the schema of one place in an object, or None where nothing is known; then maps merge by
key and lists are replaced whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lean_sandbox.local import recorded
from lean_sandbox.local.schema.decoding import METADATA

Node = Mapping[str, Any] | None


def with_metadata(schema: Node) -> Node:
    """Return an object's schema with the merge rules of `metadata` in place."""
    properties = dict((schema or {}).get("properties") or {})
    properties["metadata"] = recorded.linked_schema(METADATA)
    return {**(schema or {}), "properties": properties}


def child(node: Node, name: str) -> Node:
    """Return the node of a member of a map."""
    if node is None:
        return None
    properties = node.get("properties")
    if properties is not None and name in properties:
        found: Node = properties[name]
        return found
    additional = node.get("additionalProperties")
    return additional if isinstance(additional, Mapping) else None


def items(node: Node) -> Node:
    """Return the node of the items of a list."""
    if node is None:
        return None
    found: Node = node.get("items")
    return found


def is_atomic_map(node: Node) -> bool:
    """Say whether a map is owned and replaced whole."""
    return node is not None and node.get("x-kubernetes-map-type") == "atomic"


def map_keys(node: Node) -> tuple[str, ...] | None:
    """Return the keys that tell items apart: () for a set, None for a list replaced whole."""
    kind = None if node is None else node.get("x-kubernetes-list-type")
    if node is None or kind is None:
        return None
    if kind == "set":
        return ()
    if kind == "map":
        return tuple(node.get("x-kubernetes-list-map-keys") or ())
    return None


def key_of(node: Node, keys: tuple[str, ...], item: Any) -> tuple[Any, ...] | None:
    """Return what tells ``item`` apart from its neighbours, with defaults of absent keys."""
    if not keys:
        return (item,) if isinstance(item, str | int | float | bool) else None
    if not isinstance(item, Mapping):
        return None
    found = []
    for key in keys:
        value = item.get(key)
        if value is None:
            value = (child(items(node), key) or {}).get("default")
        found.append(value)
    return tuple(found)


def merge_key(node: Node) -> str | None:
    """Return the key by which a strategic patch merges a list.

    The empty string stands for a list of plain values, None for a list that is replaced.
    """
    if node is None:
        return None
    strategy = str(node.get("x-kubernetes-patch-strategy") or "")
    if "merge" not in strategy.split(","):
        return None
    return str(node.get("x-kubernetes-patch-merge-key") or "")

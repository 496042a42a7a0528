"""Remove what a schema does not know (structural schemas of apiextensions.k8s.io/v1)."""

from __future__ import annotations

from typing import Any

from lean_sandbox.local import recorded
from lean_sandbox.local.schema import paths
from lean_sandbox.local.schema.decoding import METADATA

Json = dict[str, Any]

_TYPE_META = frozenset({"apiVersion", "kind", "metadata"})


def _prune_metadata(metadata: Any, path: str, dropped: list[str]) -> None:
    if isinstance(metadata, dict):
        _walk(metadata, recorded.linked_schema(METADATA), path, dropped)


def _prune_object(obj: Json, schema: Json, path: str, dropped: list[str], *, is_root: bool) -> None:
    is_resource = is_root or bool(schema.get("x-kubernetes-embedded-resource"))
    properties: Json = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    keeps_all = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    for name in list(obj):
        if is_resource and name in _TYPE_META:
            if name == "metadata":
                _prune_metadata(obj[name], paths.child(path, name), dropped)
        elif (known := properties.get(name)) is not None:
            _walk(obj[name], known, paths.child(path, name), dropped)
        elif isinstance(others, dict):
            _walk(obj[name], others, paths.child(path, name), dropped)
        elif not (keeps_all or others is True):
            del obj[name]
            dropped.append(paths.child(path, name))


def _walk(value: Any, schema: Json, path: str, dropped: list[str]) -> None:
    if isinstance(value, dict):
        _prune_object(value, schema, path, dropped, is_root=False)
    elif isinstance(value, list):
        items = schema.get("items")
        # Scalars have nothing to prune: whole lists of strings are skipped.
        if isinstance(items, dict) and any(isinstance(item, dict | list) for item in value):
            for position, item in enumerate(value):
                _walk(item, items, paths.index(path, position), dropped)


def prune(obj: Json, schema: Json) -> list[str]:
    """Remove unknown fields in place and return their paths, sorted.

    A field below a removed one is not listed on its own. apiVersion, kind and metadata of the root
    and of embedded resources stay; unknown fields inside such metadata go.
    """
    dropped: list[str] = []
    _prune_object(obj, schema, "", dropped, is_root=True)
    return sorted(dropped)

"""Pruning rules for decoded JSON: pure functions that return a smaller copy.

For users who decode into dictionaries; whoever decodes into structs prunes by naming fewer fields
and needs only :func:`prune_mapping` for labels and annotations. No rule changes its argument, and
what is kept is shared with it. An absent field is left absent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = [
    "JSON",
    "LAST_APPLIED",
    "Pruner",
    "Writer",
    "allow_keys",
    "drop_annotations",
    "drop_finalizers",
    "drop_managed_fields",
    "drop_spec",
    "drop_status",
    "keep_annotations",
    "keep_labels",
    "latest_write",
    "prune",
    "prune_mapping",
    "writers",
]

JSON: TypeAlias = Mapping[str, Any]
Pruner: TypeAlias = Callable[[JSON], JSON]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which client-side apply keeps a copy of the whole object."""


def prune(*rules: Pruner) -> Pruner:
    """Return one rule that applies the given ones in turn."""

    def apply(obj: JSON) -> JSON:
        for rule in rules:
            obj = rule(obj)
        return obj

    return apply


def drop_managed_fields(obj: JSON) -> JSON:
    """Drop ``metadata.managedFields``, often more than half of the metadata."""
    return _without_metadata(obj, "managedFields")


def drop_finalizers(obj: JSON) -> JSON:
    """Drop ``metadata.finalizers``."""
    return _without_metadata(obj, "finalizers")


def drop_spec(obj: JSON) -> JSON:
    """Drop ``spec``."""
    return _without(obj, "spec")


def drop_status(obj: JSON) -> JSON:
    """Drop ``status``."""
    return _without(obj, "status")


def keep_labels(*keys: str) -> Pruner:
    """Return a rule that keeps only these labels; without any left the field is dropped."""
    return _mapping_rule("labels", allow_keys(*keys))


def keep_annotations(*keys: str) -> Pruner:
    """Return a rule that keeps only these annotations; without any left the field is dropped."""
    return _mapping_rule("annotations", allow_keys(*keys))


def drop_annotations(*keys: str) -> Pruner:
    """Return a rule that drops these annotations, by default :data:`LAST_APPLIED`."""
    dropped = frozenset(keys or (LAST_APPLIED,))

    def without(mapping: Mapping[str, str] | None) -> dict[str, str] | None:
        kept = {key: value for key, value in (mapping or {}).items() if key not in dropped}
        return kept or None

    return _mapping_rule("annotations", without)


def allow_keys(*keys: str) -> Callable[[Mapping[str, str] | None], dict[str, str] | None]:
    """Return :func:`prune_mapping` bound to the keys."""
    kept = tuple(dict.fromkeys(keys))
    return lambda mapping: prune_mapping(mapping, kept)


def prune_mapping(
    mapping: Mapping[str, str] | None, keep: Collection[str]
) -> dict[str, str] | None:
    """Return the entries under the keys to keep, or ``None`` when there are none.

    The cost is that of ``keep``, not of the mapping. The result has the caller's key texts, so that
    all objects share them and the decoded ones can be freed.
    """
    if not mapping:
        return None
    return {key: mapping[key] for key in keep if key in mapping} or None


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote to an object and when, from one entry of ``metadata.managedFields``."""

    manager: str
    operation: str
    """``Update`` or ``Apply``."""
    subresource: str
    """Empty for the object itself, otherwise ``status`` or ``scale``."""
    time: str
    """RFC 3339 with whole seconds: two writes within one look the same."""


def writers(managed_fields: Iterable[Mapping[str, Any]] | None) -> tuple[Writer, ...]:
    """Summarise ``metadata.managedFields`` without the field sets, its by far largest part."""
    return tuple(
        Writer(
            manager=str(entry.get("manager") or ""),
            operation=str(entry.get("operation") or ""),
            subresource=str(entry.get("subresource") or ""),
            time=str(entry.get("time") or ""),
        )
        for entry in managed_fields or ()
    )


def latest_write(
    found: Iterable[Writer], *, subresource: str = "status", ours: Collection[str] = ()
) -> Writer | None:
    """Return the newest write to the subresource by a manager that is not one of ``ours``.

    A hint only: it tells "the kubelet wrote the status" from "we did" on an event that carries
    metadata alone, but not two writes of one manager within a second.
    """
    foreign = [
        writer
        for writer in found
        if writer.subresource == subresource and writer.manager not in ours
    ]
    # RFC 3339 in UTC with whole seconds sorts as text.
    return max(foreign, key=lambda writer: writer.time, default=None)


def _without(obj: JSON, key: str) -> JSON:
    return {name: value for name, value in obj.items() if name != key} if key in obj else obj


def _without_metadata(obj: JSON, key: str) -> JSON:
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping) or key not in metadata:
        return obj
    return {**obj, "metadata": _without(metadata, key)}


def _mapping_rule(
    field: str, rule: Callable[[Mapping[str, str] | None], dict[str, str] | None]
) -> Pruner:
    def apply(obj: JSON) -> JSON:
        metadata = obj.get("metadata")
        if not isinstance(metadata, Mapping) or field not in metadata:
            return obj
        kept = rule(metadata[field])
        if kept is None:
            return _without_metadata(obj, field)
        return {**obj, "metadata": {**metadata, field: kept}}

    return apply

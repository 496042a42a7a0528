"""The order of `metadata`, and what a server quietly mends in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.registry import Kind
from lean_sandbox.local.schema.errors import warning_header

Json = dict[str, Any]

_KEYS_ORDER: Final = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_STANDARD_FINALIZERS: Final = frozenset(("orphan", "foregroundDeletion", "kubernetes"))


def tidy_metadata(kind: Kind, metadata: Json, old: Json) -> Iterator[str]:
    """Drop repeated owners, in place; give the warnings that a write of ``metadata`` earns."""
    owners = metadata.get("ownerReferences")
    if isinstance(owners, list) and len(owners) > 1:
        kept = [owner for position, owner in enumerate(owners) if owner not in owners[:position]]
        if len(kept) < len(owners):
            twice = dict.fromkeys(str(one.get("uid")) for one in kept if owners.count(one) > 1)
            metadata["ownerReferences"] = kept
            yield warning_header(
                ".metadata.ownerReferences contains duplicate entries after mutating admission"
                " happens; API server dedups owner references in 1.20+, and may reject such"
                " requests as early as 1.24; please fix your requests; duplicate UID(s) observed:"
                f" {', '.join(twice)}"
            )
    before = old.get("finalizers") or ()
    for name in (metadata.get("finalizers") or ()) if kind.is_custom else ():
        if "/" not in name and name not in _STANDARD_FINALIZERS and name not in before:
            yield warning_header(
                f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name to avoid'
                " accidental conflicts with other finalizer writers"
            )


def ordered_metadata(metadata: Json) -> Json:
    """Return the known members in the order a server writes them, without empty ones."""
    return {
        key: metadata[key] for key in _KEYS_ORDER if metadata.get(key) not in (None, "", {}, [])
    }

"""Metadata of cached objects in the form of the API."""

from __future__ import annotations

from lean_sandbox.model.meta import ObjectMeta, OwnerReference
from lean_sandbox.watch.resources.sandbox import SandboxEntry
from lean_sandbox.watch.wire import OwnerRow


def reference_of(owner: OwnerRow) -> OwnerReference:
    """Return a cached owner as a reference of the API."""
    return OwnerReference(
        apiVersion=owner.api_version,
        kind=owner.kind,
        name=owner.name,
        uid=owner.uid,
        controller=owner.controller,
        blockOwnerDeletion=owner.block_owner_deletion,
    )


def sandbox_meta(entry: SandboxEntry) -> ObjectMeta:
    """Return the metadata of a Sandbox as far as its children depend on it."""
    owner = entry.owner
    return ObjectMeta(
        name=entry.key.name,
        namespace=entry.key.namespace,
        uid=entry.uid,
        generation=entry.generation,
        labels=entry.labels,
        annotations=entry.annotations,
        ownerReferences=() if owner is None else (reference_of(owner),),
    )

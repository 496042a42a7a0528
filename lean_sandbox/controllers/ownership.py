"""Metadata of cached objects in the form of the API."""

from __future__ import annotations

from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.watch.resources.sandbox import SandboxEntry


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
        owner_references=() if owner is None else (owner,),
    )

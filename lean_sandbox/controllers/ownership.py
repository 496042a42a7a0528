"""Whose an object is, judged from the cached controlling owner (spec, 3.2)."""

from __future__ import annotations

from collections.abc import Mapping

from lean_sandbox.model.meta import ObjectMeta, OwnerReference, Ownership
from lean_sandbox.model.service import may_adopt as model_may_adopt
from lean_sandbox.watch.objects import SandboxEntry
from lean_sandbox.watch.wire import OwnerRow


def ownership_of(controller: OwnerRow | None, uid: str) -> Ownership:
    """Classify by the controlling owner's uid alone; names and versions prove nothing."""
    if controller is None:
        return Ownership.UNOWNED
    return Ownership.OWNED if controller.uid == uid else Ownership.OTHER


def may_adopt(labels: Mapping[str, str] | None, name_hash: str) -> bool:
    """Tell whether an unowned object authorises its adoption by the Sandbox with this hash."""
    return bool(labels) and model_may_adopt(ObjectMeta(labels=dict(labels or {})), name_hash)


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

"""What the entries of all kinds are made of: owner references and rows of objects."""

from __future__ import annotations

from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.sharing import interned, small_values
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.wire import MetaRow, OwnerRow

ADOPTION_LABELS = frozenset({names.NAME_HASH_LABEL, names.ADOPTABLE_LABEL})


def shared_owner(owner: OwnerRow | None, key: Key, held: OwnerRow | None) -> OwnerRow | None:
    """Return an equal owner reference that costs as little as possible.

    ``held`` is the one remembered so far. An owner that bears the name of the object, as a Sandbox
    does that owns a Pod, shares that text; one with another name is likely the owner of many.
    """
    if owner is None:
        return None
    if owner == held:
        return held
    if owner.name != key.name:
        return _one_owner(owner)
    return _compact(owner, key.name)


@small_values(256)
def _one_owner(owner: OwnerRow) -> OwnerRow:
    return _compact(owner, owner.name)


def _compact(owner: OwnerRow, name: str) -> OwnerRow:
    return OwnerRow(
        kind=interned(owner.kind),
        name=name,
        uid=owner.uid,
        api_version=interned(owner.api_version),
        controller=owner.controller,
        block_owner_deletion=owner.block_owner_deletion,
    )


def row_of(meta: ObjectMeta) -> MetaRow:
    """Return the metadata of a whole object in the form that predicates read."""
    return MetaRow(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resourceVersion,
        generation=meta.generation,
        labels=meta.labels,
        annotations=meta.annotations,
        finalizers=meta.finalizers,
        owners=tuple(
            OwnerRow(
                kind=owner.kind,
                name=owner.name,
                uid=owner.uid,
                api_version=owner.apiVersion,
                controller=bool(owner.controller),
                block_owner_deletion=bool(owner.blockOwnerDeletion),
            )
            for owner in meta.ownerReferences
        ),
        deletion_timestamp=meta.deletionTimestamp,
        creation_timestamp=meta.creationTimestamp,
    )

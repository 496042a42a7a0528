"""PersistentVolumeClaims: their cache entry, and the predicate over their events."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from filters import any_of, deletion, keep, labels, owners
from lean_sandbox.kube.resources import PVCS
from lean_sandbox.kube.wire import PartialObject
from lean_sandbox.model.meta import ObjectMeta, OwnerReference, as_version
from lean_sandbox.watch.kind import (
    ADOPTION_LABELS,
    Key,
    Kind,
    Representation,
    key_of,
    shared_owner,
)


class PvcEntry(msgspec.Struct, gc=False):
    """The cache entry of a PersistentVolumeClaim: its owners, and whether it may be adopted."""

    key: Key
    uid: str
    version: int
    owner: OwnerReference | None = None
    labels: dict[str, str] | None = None
    others: tuple[OwnerReference, ...] = ()
    seen: tuple[Hashable, ...] = ()


def pvc_from_row(row: ObjectMeta, old: PvcEntry | None) -> PvcEntry:
    """Build the entry from metadata."""
    key = old.key if old is not None else key_of(row.namespace, row.name)
    return PvcEntry(
        key=key,
        uid=old.uid if old is not None else row.uid,
        version=as_version(row.resource_version),
        owner=shared_owner(row.controller, key, old.owner if old is not None else None),
        labels=keep(row.labels, ADOPTION_LABELS),
        others=row.owners if row.controller is None else (),
    )


def pvc_from_full(_item: PartialObject, row: ObjectMeta, old: PvcEntry | None) -> PvcEntry:
    """Build the entry from a full PersistentVolumeClaim, of which only the metadata is read."""
    return pvc_from_row(row, old)


def pvc_kind() -> Kind[PvcEntry]:
    """PersistentVolumeClaims pass when they end, change owners, or become adoptable."""
    return Kind(
        resource=PVCS,
        item_type=PartialObject,
        predicate=any_of(deletion(), owners(), labels(*sorted(ADOPTION_LABELS), brief=True)),
        from_row=pvc_from_row,
        from_full=pvc_from_full,
        watch_order=(Representation.METADATA, Representation.FULL),
        list_as=Representation.METADATA,
    )

"""SandboxWarmPools: their cache entry, and the predicate over their events.

Pools are watched as full objects, because nearly every event of a pool needs its spec and they are
small. Of the decoded object only a view is kept.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from filters import any_of, deletion, generation
from lean_sandbox.kube.resources import SANDBOXWARMPOOLS
from lean_sandbox.model.meta import ObjectMeta, as_version
from lean_sandbox.model.warmpool import (
    PoolView,
    SandboxWarmPool,
    SandboxWarmPoolStatus,
    view_of_pool,
)
from lean_sandbox.watch.kind import Key, Kind, Representation, key_of


class PoolEntry(msgspec.Struct, gc=False):
    """The cache entry of a pool."""

    key: Key
    uid: str
    version: int
    generation: int
    is_deleting: bool
    view: PoolView | None = None
    status: SandboxWarmPoolStatus | None = None
    seen: tuple[Hashable, ...] = ()


def pool_from_row(row: ObjectMeta, old: PoolEntry | None) -> PoolEntry:
    """Build the entry from metadata; view and status are those of the old entry."""
    entry = PoolEntry(
        key=old.key if old is not None else key_of(row.namespace, row.name),
        uid=row.uid,
        version=as_version(row.resource_version),
        generation=row.generation or 0,
        is_deleting=row.deletion_timestamp is not None,
    )
    if old is not None:
        entry.view, entry.status = old.view, old.status
    return entry


def pool_from_full(item: SandboxWarmPool, row: ObjectMeta, old: PoolEntry | None) -> PoolEntry:
    """Build the entry from a full pool."""
    entry = pool_from_row(row, old)
    entry.view = view_of_pool(item)
    entry.status = item.status
    return entry


def pool_kind() -> Kind[PoolEntry]:
    """Pools pass when their spec changes or they are deleted; only we write their status."""
    return Kind(
        resource=SANDBOXWARMPOOLS,
        item_type=SandboxWarmPool,
        predicate=any_of(generation(), deletion()),
        from_row=pool_from_row,
        from_full=pool_from_full,
        watch_order=(Representation.FULL,),
    )

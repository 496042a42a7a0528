"""The caches that reconcilers read, side by side."""

from __future__ import annotations

import msgspec

from lean_sandbox.watch.objects import PodEntry, PvcEntry, SandboxEntry, ServiceEntry
from lean_sandbox.watch.store import Store

__all__ = ["Caches"]


def _owner_uid(entry: PodEntry | SandboxEntry) -> str | None:
    return entry.owner.uid if entry.owner is not None else None


class Caches(msgspec.Struct, frozen=True):
    """One store for each watched kind."""

    sandboxes: Store[SandboxEntry] = msgspec.field(default_factory=lambda: Store(_owner_uid))
    pods: Store[PodEntry] = msgspec.field(default_factory=lambda: Store(_owner_uid))
    services: Store[ServiceEntry] = msgspec.field(default_factory=Store)
    pvcs: Store[PvcEntry] = msgspec.field(default_factory=Store)

"""The caches that reconcilers read, side by side."""

from __future__ import annotations

import msgspec

from lean_sandbox.model import names
from lean_sandbox.watch.objects import PodEntry, PvcEntry, SandboxEntry, ServiceEntry
from lean_sandbox.watch.store import Store


def _owner_uid(entry: SandboxEntry) -> str | None:
    return entry.owner.uid if entry.owner is not None else None


def _sandbox_uid(entry: PodEntry) -> str | None:
    owner = entry.owner
    if owner is None or not owner.is_a(names.SANDBOX_KIND, names.CORE_GROUP):
        return None
    return owner.uid


class Caches(msgspec.Struct, frozen=True):
    """One store for each watched kind; Pods are found by the Sandbox that controls them."""

    sandboxes: Store[SandboxEntry] = msgspec.field(default_factory=lambda: Store(_owner_uid))
    pods: Store[PodEntry] = msgspec.field(default_factory=lambda: Store(_sandbox_uid))
    services: Store[ServiceEntry] = msgspec.field(default_factory=Store)
    pvcs: Store[PvcEntry] = msgspec.field(default_factory=Store)

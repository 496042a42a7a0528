"""The caches that reconcilers read, side by side."""

from __future__ import annotations

from dataclasses import dataclass, field

from lean_sandbox.watch.objects import PodEntry, PvcEntry, SandboxEntry, ServiceEntry, owner_uid
from lean_sandbox.watch.store import Store

__all__ = ["Caches"]


@dataclass(frozen=True, slots=True)
class Caches:
    """One store for each watched kind."""

    sandboxes: Store[SandboxEntry] = field(default_factory=Store)
    pods: Store[PodEntry] = field(default_factory=lambda: Store(owner_uid))
    services: Store[ServiceEntry] = field(default_factory=Store)
    pvcs: Store[PvcEntry] = field(default_factory=Store)

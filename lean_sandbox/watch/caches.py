"""The caches that controllers read and listen to, one for each watched kind."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from lean_sandbox.watch.cache import TOMBSTONE_S, Cache
from lean_sandbox.watch.kind import Entry, Kind
from lean_sandbox.watch.objects import PodEntry, PvcEntry, SandboxEntry, ServiceEntry
from lean_sandbox.watch.representation import FALLBACK_ORDER, Representation
from lean_sandbox.watch.resources import extension_kinds, kinds
from lean_sandbox.watch.resources.extension_objects import (
    ClaimEntry,
    PolicyEntry,
    PoolEntry,
    TemplateEntry,
)

E = TypeVar("E", bound=Entry)


class Caches(msgspec.Struct, frozen=True):
    """One cache for each kind; those from ``templates`` on serve the extension controllers."""

    sandboxes: Cache[SandboxEntry]
    pods: Cache[PodEntry]
    services: Cache[ServiceEntry]
    pvcs: Cache[PvcEntry]
    templates: Cache[TemplateEntry]
    pools: Cache[PoolEntry]
    claims: Cache[ClaimEntry]
    policies: Cache[PolicyEntry]


def build_caches(
    *,
    order: tuple[Representation, ...] = FALLBACK_ORDER,
    sandbox_selector: str = "",
    only_tracked_services: bool = False,
    monotonic: Callable[[], float] = time.monotonic,
    tombstone_s: float = TOMBSTONE_S,
) -> Caches:
    """Return empty caches; :mod:`.resources` and :class:`.cache.Cache` describe the options."""

    def cache(kind: Kind[E]) -> Cache[E]:
        return Cache(kind, monotonic=monotonic, tombstone_s=tombstone_s)

    return Caches(
        sandboxes=cache(kinds.sandboxes(order, label_selector=sandbox_selector)),
        pods=cache(kinds.pods(order)),
        services=cache(kinds.services(order, only_tracked=only_tracked_services)),
        pvcs=cache(kinds.pvcs()),
        templates=cache(extension_kinds.templates()),
        pools=cache(extension_kinds.pools()),
        claims=cache(extension_kinds.claims()),
        policies=cache(extension_kinds.policies()),
    )

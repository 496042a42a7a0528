"""The caches that controllers read and listen to, one for each watched kind."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from lean_sandbox.watch.cache import TOMBSTONE_S, Cache
from lean_sandbox.watch.kind import Entry, Kind, Representation
from lean_sandbox.watch.resources.children import (
    PolicyEntry,
    PvcEntry,
    ServiceEntry,
    policy_kind,
    pvc_kind,
    service_kind,
)
from lean_sandbox.watch.resources.extensions import (
    ClaimEntry,
    PoolEntry,
    TemplateEntry,
    claim_kind,
    pool_kind,
    template_kind,
)
from lean_sandbox.watch.resources.pod import PodEntry, pod_kind
from lean_sandbox.watch.resources.sandbox import SandboxEntry, sandbox_kind

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
    leanest: Representation = Representation.TABLE,
    sandbox_selector: str = "",
    only_tracked_services: bool = False,
    monotonic: Callable[[], float] = time.monotonic,
    tombstone_s: float = TOMBSTONE_S,
) -> Caches:
    """Return empty caches; :class:`.cache.Cache` and the kinds describe the options."""

    def cache(kind: Kind[E]) -> Cache[E]:
        return Cache(kind, monotonic=monotonic, tombstone_s=tombstone_s)

    return Caches(
        sandboxes=cache(sandbox_kind(leanest, label_selector=sandbox_selector)),
        pods=cache(pod_kind(leanest)),
        services=cache(service_kind(leanest, only_tracked=only_tracked_services)),
        pvcs=cache(pvc_kind()),
        templates=cache(template_kind()),
        pools=cache(pool_kind()),
        claims=cache(claim_kind()),
        policies=cache(policy_kind()),
    )

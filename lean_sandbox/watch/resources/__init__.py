"""The caches that controllers read and listen to, one for each watched kind."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import msgspec

from filters import EVERYTHING, LabelSelector
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Representation
from lean_sandbox.watch.resources import children, extensions
from lean_sandbox.watch.resources.pod import PodEntry, pod_kind
from lean_sandbox.watch.resources.sandbox import SandboxEntry, sandbox_kind
from lean_sandbox.watch.versions import TOMBSTONE_S


class Caches(msgspec.Struct, frozen=True):
    """One cache for each kind; those from ``templates`` on serve the extension controllers."""

    sandboxes: Cache[SandboxEntry]
    pods: Cache[PodEntry]
    services: Cache[children.ServiceEntry]
    pvcs: Cache[children.PvcEntry]
    templates: Cache[extensions.TemplateEntry]
    pools: Cache[extensions.PoolEntry]
    claims: Cache[extensions.ClaimEntry]
    policies: Cache[children.PolicyEntry]


def build_caches(
    *,
    leanest: Representation = Representation.TABLE,
    sandbox_selector: LabelSelector = EVERYTHING,
    only_tracked_services: bool = False,
    monotonic: Callable[[], float] = time.monotonic,
    tombstone_s: float = TOMBSTONE_S,
    admits_namespace: Callable[[str], bool] | None = None,
) -> Caches:
    """Return empty caches; see :class:`.cache.Cache` and the kinds for the options."""
    cache = partial(
        Cache, monotonic=monotonic, tombstone_s=tombstone_s, admits_namespace=admits_namespace
    )
    return Caches(
        sandboxes=cache(sandbox_kind(leanest, label_selector=sandbox_selector)),
        pods=cache(pod_kind(leanest)),
        services=cache(children.service_kind(leanest, only_tracked=only_tracked_services)),
        pvcs=cache(children.pvc_kind()),
        templates=cache(extensions.template_kind()),
        pools=cache(extensions.pool_kind()),
        claims=cache(extensions.claim_kind()),
        policies=cache(children.policy_kind()),
    )

"""What companions watch, in caches of their own.

They share nothing with the caches of the controllers, so that a companion works the same beside
another controller, and costs nothing while it is off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from filters import parse_labels, resource_version
from lean_sandbox.companions.annotations import ROLLING_UPDATE
from lean_sandbox.companions.autoscalers import AutoscalerEntry, AutoscalerItem, build_autoscaler
from lean_sandbox.companions.kinds import (
    ClaimItem,
    CompanionClaimEntry,
    CompanionPoolEntry,
    CompanionSandboxEntry,
    FailedPodEntry,
    PodItem,
    SandboxItem,
    Wishes,
    build_claim,
    build_pod,
    build_pool,
    build_sandbox,
    build_wishes,
)
from lean_sandbox.kube.resources import (
    HPAS,
    PODS,
    SANDBOXCLAIMS,
    SANDBOXES,
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
    PartialObject,
    Resource,
)
from lean_sandbox.model import names
from lean_sandbox.model.warmpool import SandboxWarmPool
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.index import Index
from lean_sandbox.watch.kind import Kind, OwnedEntry, Representation


def _owner_uid(entry: OwnedEntry) -> str | None:
    return entry.owner.uid if entry.owner is not None else None


def _pool_name(entry: CompanionClaimEntry | AutoscalerEntry) -> str | None:
    return entry.pool or None


def _rolling_template(entry: CompanionPoolEntry) -> str | None:
    return entry.template if ROLLING_UPDATE in entry.annotations else None


class CompanionCaches(msgspec.Struct, frozen=True):
    """One cache for each kind; those of a pool are found by its name, Pods by their owner.

    ``by_template`` finds the Sandboxes of a template by its name, ``pools_by_template`` the pools
    that ask for a rolling update.
    """

    sandboxes: Cache[CompanionSandboxEntry]
    by_template: Index[CompanionSandboxEntry]
    templates: Cache[Wishes]
    pools: Cache[CompanionPoolEntry]
    pools_by_template: Index[CompanionPoolEntry]
    claims: Cache[CompanionClaimEntry]
    autoscalers: Cache[AutoscalerEntry]
    failed_pods: Cache[FailedPodEntry]


def build_companion_caches(
    monotonic: Callable[[], float], admits_namespace: Callable[[str], bool] | None
) -> CompanionCaches:
    """Return empty caches; see :class:`lean_sandbox.watch.cache.Cache` for the options."""
    cache = partial(Cache, monotonic=monotonic, admits_namespace=admits_namespace)
    sandboxes = cache(_kind(SANDBOXES, SandboxItem, build_sandbox, owner_of=_owner_uid))
    pools = cache(_kind(SANDBOXWARMPOOLS, SandboxWarmPool, build_pool))
    return CompanionCaches(
        sandboxes=sandboxes,
        by_template=sandboxes.index(lambda sandbox: sandbox.template or None),
        templates=cache(_kind(SANDBOXTEMPLATES, PartialObject, build_wishes)),
        pools=pools,
        pools_by_template=pools.index(_rolling_template),
        claims=cache(_kind(SANDBOXCLAIMS, ClaimItem, build_claim, owner_of=_pool_name)),
        autoscalers=cache(_kind(HPAS, AutoscalerItem, build_autoscaler, owner_of=_pool_name)),
        failed_pods=cache(
            _kind(
                PODS,
                PodItem,
                build_pod,
                owner_of=_owner_uid,
                label_selector=parse_labels(names.NAME_HASH_LABEL),
                field_selector=f"status.phase={names.POD_FAILED}",
            )
        ),
    )


def _kind(resource: Resource, item_type: type[Any], build: Any, **more: Any) -> Kind[Any]:
    is_partial = item_type is PartialObject
    return Kind(
        resource=resource,
        item_type=item_type,
        predicate=resource_version(),
        build=build,
        watch_as=Representation.METADATA if is_partial else Representation.FULL,
        title=f"companions/{resource.plural}",
        **more,
    )

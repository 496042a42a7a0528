"""What the view watches: Sandboxes as metadata and printer columns, claims and pools in full.

Of each object few fields are kept. They are those of the API: whose controller wrote them does not
matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from filters import resource_version
from lean_sandbox.kube.resources import SANDBOXCLAIMS, SANDBOXES, SANDBOXWARMPOOLS, Resource
from lean_sandbox.model import names
from lean_sandbox.model.conditions import Condition, find
from lean_sandbox.model.meta import ObjectMeta, Reference
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.model.wire import Lenient, OrNull, interned
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Entry, Kind, Representation, identity
from lean_sandbox.watch.resources.sandbox import sandbox_columns

#: What the condition Ready of a Sandbox says where the server shows no columns.
NOT_SHOWN: Final = "NotShown"
# What is kept of a message, and of a reason.
_LONGEST_MESSAGE: Final = 500
_LONGEST_REASON: Final = 100


class TopSandboxEntry(Entry, gc=False, frozen=True):
    """A Sandbox; ``pool`` is the name of the pool that owns it, "" for none.

    ``reason`` is that of its condition Ready, "" before there is one.
    """

    pool: str = ""
    is_ready: bool = False
    reason: str = ""


class TopClaimEntry(Entry, gc=False, frozen=True):
    """A claim; ``sandbox`` is the name of the Sandbox that it has, "" for none.

    ``ready_s`` is when it became Ready for the first time, in seconds since the epoch, and
    ``took_s`` how long that took from the controller's first sight, as the controller has written;
    None if that is not known.
    """

    pool: str = ""
    sandbox: str = ""
    is_ready: bool = False
    reason: str = ""
    message: str = ""
    created_at: str = ""
    ready_s: float = 0.0
    took_s: float | None = None

    @property
    def is_warm(self) -> bool:
        """Whether its Sandbox comes from a pool: one made for a claim has the claim's name."""
        return self.sandbox not in ("", self.key.name)


class TopPoolEntry(Entry, gc=False, frozen=True):
    """A pool and what it asks for."""

    desired: int = 0
    template: str = ""


class _Sandbox(Lenient, frozen=True):
    metadata: OrNull[ObjectMeta] = ObjectMeta()
    status: OrNull[SandboxStatus] = SandboxStatus()


class _ClaimSpec(Lenient, frozen=True):
    warmPoolRef: OrNull[Reference] = Reference()


class _ClaimStatus(Lenient, frozen=True):
    conditions: OrNull[tuple[Condition, ...]] = ()
    sandbox: OrNull[Reference] = Reference()


class _Claim(Lenient, frozen=True):
    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[_ClaimSpec] = _ClaimSpec()
    status: OrNull[_ClaimStatus] = _ClaimStatus()


class _PoolSpec(Lenient, frozen=True):
    replicas: OrNull[int] = 1
    sandboxTemplateRef: OrNull[Reference] = Reference()


class _Pool(Lenient, frozen=True):
    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[_PoolSpec] = _PoolSpec()


def _build_sandbox(row: ObjectMeta, _item: object, old: TopSandboxEntry | None) -> TopSandboxEntry:
    columns = row.columns
    owner = row.controller
    pool = ""
    if owner is not None and owner.is_a(names.SANDBOX_WARM_POOL_KIND, names.EXTENSIONS_GROUP):
        pool = interned(names.clipped_name(owner.name))
    return TopSandboxEntry(
        *identity(row, old),
        pool=pool,
        is_ready=columns is not None and columns["Ready"] == names.TRUE,
        reason=NOT_SHOWN if columns is None else interned(columns["Reason"][:_LONGEST_REASON]),
    )


def _build_claim(row: ObjectMeta, item: _Claim | None, old: TopClaimEntry | None) -> TopClaimEntry:
    item = item or _Claim()
    ready = find(item.status.conditions, names.READY)
    is_ready = ready is not None and ready.status == names.TRUE
    ready_s, took_s = _readiness_of(row)
    return TopClaimEntry(
        *identity(row, old),
        pool=interned(names.clipped_name(item.spec.warmPoolRef.name)),
        sandbox=names.clipped_name(item.status.sandbox.name),
        is_ready=is_ready,
        reason=interned(ready.reason[:_LONGEST_REASON]) if ready is not None else "",
        message=ready.message[:_LONGEST_MESSAGE] if ready is not None and not is_ready else "",
        created_at=row.creation_timestamp or "",
        ready_s=ready_s,
        took_s=took_s,
    )


def _readiness_of(row: ObjectMeta) -> tuple[float, float | None]:
    """Return when a claim became Ready for the first time, and after how many seconds.

    Unknown where the controller does not annotate claims, and of those that it found Ready. What is
    older than the claim was written on another, of which this one is a copy.
    """
    notes = row.annotations or {}
    try:
        seen = parse_rfc3339(notes.get(names.CONTROLLER_FIRST_OBSERVED_AT_ANNOTATION, ""))
        ready = parse_rfc3339(notes.get(names.CLAIM_FIRST_READY_AT_ANNOTATION, ""))
        created = parse_rfc3339(row.creation_timestamp or "")
    except ValueError:
        return 0.0, None
    if not created <= seen <= ready:
        return 0.0, None
    return ready.timestamp(), (ready - seen).total_seconds()


def _build_pool(row: ObjectMeta, item: _Pool | None, old: TopPoolEntry | None) -> TopPoolEntry:
    item = item or _Pool()
    template = names.clipped_name(item.spec.sandboxTemplateRef.name)
    return TopPoolEntry(*identity(row, old), desired=max(0, item.spec.replicas), template=template)


class TopCaches(msgspec.Struct, frozen=True):
    """One cache for each kind."""

    sandboxes: Cache[TopSandboxEntry]
    claims: Cache[TopClaimEntry]
    pools: Cache[TopPoolEntry]


def build_top_caches(monotonic: Callable[[], float]) -> TopCaches:
    """Return empty caches."""

    def cache(resource: Resource, item_type: type[Any], build: Any, **more: Any) -> Cache[Any]:
        predicate = resource_version()
        return Cache(Kind(resource, item_type, predicate, build, **more), monotonic=monotonic)

    full = {"watch_as": Representation.FULL}
    return TopCaches(
        sandboxes=cache(
            SANDBOXES,
            _Sandbox,
            _build_sandbox,
            columns_of=lambda item: sandbox_columns(item.status),
            columns=("Ready", "Reason"),
        ),
        claims=cache(SANDBOXCLAIMS, _Claim, _build_claim, **full),
        pools=cache(SANDBOXWARMPOOLS, _Pool, _build_pool, **full),
    )

"""What companions watch: few fields of public objects, in caches of their own.

They share nothing with the caches of the controllers, so that a companion works the same beside
another controller, and costs nothing while it is off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from filters import keep, parse_labels, resource_version
from lean_sandbox.kube.resources import (
    PODS,
    SANDBOXCLAIMS,
    SANDBOXES,
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
    PartialObject,
    Resource,
)
from lean_sandbox.model import names
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.meta import ObjectMeta, Reference
from lean_sandbox.model.wire import Lenient, OrNull
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.index import Index
from lean_sandbox.watch.kind import Key, Kind, OwnedEntry, Representation, identity, shared_owner

PREFIX: Final = "companions.lean-sandbox/"
FAILURE_POLICY: Final = names.CORE_PREFIX + "pod-failure-policy"
FAILURE_LIMIT: Final = PREFIX + "pod-failure-limit"
FAILURE_COUNT: Final = PREFIX + "pod-failure-count"
FAILURE_TIME: Final = PREFIX + "pod-failure-time"
FAILURE_POD: Final = PREFIX + "pod-failure-uid"
CLAIM_DEFAULTS: Final = PREFIX + "claim-defaults"
DEFAULTS_APPLIED: Final = PREFIX + "claim-defaults-applied"
IDLE_TIMEOUT: Final = names.CORE_PREFIX + "idle-timeout-seconds"
LAST_ACTIVITY: Final = names.CORE_PREFIX + "last-activity-time"

_KEPT: Final = frozenset(
    {
        names.TEMPLATE_REF_ANNOTATION,
        FAILURE_POLICY,
        FAILURE_LIMIT,
        FAILURE_COUNT,
        FAILURE_TIME,
        FAILURE_POD,
        CLAIM_DEFAULTS,
        DEFAULTS_APPLIED,
        IDLE_TIMEOUT,
        LAST_ACTIVITY,
        names.POD_NAME_ANNOTATION,
    }
)
# Longer than any value that means something; the rest of what a tenant writes is not remembered.
_LONGEST: Final = 1024


class Wishes(OwnedEntry, gc=False, frozen=True):
    """The cache entry of an object whose annotations say what companions are to do."""

    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    created_at: str = ""


class SandboxEntry(Wishes, gc=False, frozen=True):
    """The cache entry of a Sandbox.

    ``has_ended`` says that its Pod has finished, or that it has expired. ``edited_at`` is when
    anything but its status was last written, ``ready_since`` when it became Ready, empty if it is
    not; both are dates.
    """

    is_running: bool = True
    has_ended: bool = False
    edited_at: str = ""
    ready_since: str = ""

    @property
    def pod_key(self) -> Key:
        """The key of its Pod."""
        name = self.annotations.get(names.POD_NAME_ANNOTATION) or self.key.name
        return Key(self.key.namespace, name)

    @property
    def template(self) -> str:
        """The name of the template that it was made of; empty for none."""
        return self.annotations.get(names.TEMPLATE_REF_ANNOTATION, "")


class ClaimEntry(Wishes, gc=False, frozen=True):
    """The cache entry of a claim; ``sandbox`` is the Sandbox that it has, empty for none."""

    pool: str = ""
    sandbox: str = ""
    has_lifecycle: bool = False


class FailedPodEntry(OwnedEntry, gc=False, frozen=True):
    """The cache entry of a Pod that has failed; ``disrupted_at`` is empty if it did so by itself.

    ``reason`` is what the Pod or its first failed container gives.
    """

    created_at: str = ""
    reason: str = ""
    disrupted_at: str = ""


class _SandboxSpec(Lenient, frozen=True):
    operatingMode: OrNull[str] = names.OPERATING_MODE_RUNNING


class _SandboxStatus(Lenient, frozen=True):
    conditions: OrNull[tuple[Condition, ...]] = ()


class _Sandbox(Lenient, frozen=True):
    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[_SandboxSpec] = _SandboxSpec()
    status: OrNull[_SandboxStatus] = _SandboxStatus()


class _ClaimSpec(Lenient, frozen=True):
    warmPoolRef: OrNull[Reference] = Reference()
    lifecycle: dict[str, msgspec.Raw] | None = None


class _ClaimStatus(Lenient, frozen=True):
    sandbox: OrNull[Reference] = Reference()


class _Claim(Lenient, frozen=True):
    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[_ClaimSpec] = _ClaimSpec()
    status: OrNull[_ClaimStatus] = _ClaimStatus()


class _Terminated(Lenient, frozen=True):
    exitCode: OrNull[int] = 0
    reason: OrNull[str] = ""


class _ContainerState(Lenient, frozen=True):
    terminated: OrNull[_Terminated] = _Terminated()


class _Container(Lenient, frozen=True):
    state: OrNull[_ContainerState] = _ContainerState()


class _PodStatus(Lenient, frozen=True):
    reason: OrNull[str] = ""
    conditions: OrNull[tuple[Condition, ...]] = ()
    containerStatuses: OrNull[tuple[_Container, ...]] = ()


class _Pod(Lenient, frozen=True):
    metadata: OrNull[ObjectMeta] = ObjectMeta()
    status: OrNull[_PodStatus] = _PodStatus()


def _wishes(row: ObjectMeta, old: Wishes | None) -> dict[str, Any]:
    kept = keep(row.annotations or {}, _KEPT) or {}
    return {
        "owner": shared_owner(row, old),
        "annotations": {key: text[:_LONGEST] for key, text in kept.items()},
        "created_at": row.creation_timestamp or "",
    }


def _build_wishes(row: ObjectMeta, _item: object, old: Wishes | None) -> Wishes:
    return Wishes(*identity(row, old), **_wishes(row, old))


def _build_sandbox(
    row: ObjectMeta, item: _Sandbox | None, old: SandboxEntry | None
) -> SandboxEntry:
    # What cannot be read is left alone.
    is_running = has_ended = False
    ready_since = ""
    if item is not None:
        is_running = item.spec.operatingMode != names.OPERATING_MODE_SUSPENDED
        for one in item.status.conditions:
            if one.type == names.READY and one.status == names.TRUE:
                ready_since = one.lastTransitionTime or ""
            is_finished = one.type == names.FINISHED and one.status == names.TRUE
            has_ended = has_ended or is_finished or one.reason == names.REASON_SANDBOX_EXPIRED
    edits = [writer.time for writer in row.managed_fields or () if not writer.subresource]
    return SandboxEntry(
        *identity(row, old),
        **_wishes(row, old),
        is_running=is_running,
        has_ended=has_ended,
        edited_at=max(edits, default=""),
        ready_since=ready_since,
    )


def _build_claim(row: ObjectMeta, item: _Claim | None, old: ClaimEntry | None) -> ClaimEntry:
    if item is None:
        # What cannot be read is never given a lifecycle, and never deleted.
        pool, sandbox, has_lifecycle = "", "", True
    else:
        pool = item.spec.warmPoolRef.name
        sandbox = item.status.sandbox.name
        has_lifecycle = item.spec.lifecycle is not None
    return ClaimEntry(
        *identity(row, old),
        **_wishes(row, old),
        pool=names.clipped_name(pool),
        sandbox=names.clipped_name(sandbox),
        has_lifecycle=has_lifecycle,
    )


def _build_pod(row: ObjectMeta, item: _Pod | None, old: FailedPodEntry | None) -> FailedPodEntry:
    reason, disrupted_at = "", ""
    if item is not None:
        ends = [one.state.terminated for one in item.status.containerStatuses]
        reasons = (item.status.reason, *(end.reason for end in ends if end.exitCode))
        reason = next(filter(None, reasons), "")[:_LONGEST]
        for one in item.status.conditions:
            if one.type == names.DISRUPTION_TARGET and one.status == names.TRUE:
                disrupted_at = one.lastTransitionTime or row.creation_timestamp or ""
    return FailedPodEntry(
        *identity(row, old),
        owner=shared_owner(row, old),
        created_at=row.creation_timestamp or "",
        reason=reason,
        disrupted_at=disrupted_at,
    )


def _owner_uid(entry: OwnedEntry) -> str | None:
    return entry.owner.uid if entry.owner is not None else None


def _pool_name(entry: ClaimEntry) -> str | None:
    return entry.pool or None


class Caches(msgspec.Struct, frozen=True):
    """One cache for each kind; the claims of a pool are found by its name, Pods by their owner.

    ``by_template`` finds the Sandboxes of a template by its name.
    """

    sandboxes: Cache[SandboxEntry]
    by_template: Index[SandboxEntry]
    templates: Cache[Wishes]
    pools: Cache[Wishes]
    claims: Cache[ClaimEntry]
    failed_pods: Cache[FailedPodEntry]


def build_caches(
    monotonic: Callable[[], float], admits_namespace: Callable[[str], bool] | None
) -> Caches:
    """Return empty caches; see :class:`lean_sandbox.watch.cache.Cache` for the options."""
    cache = partial(Cache, monotonic=monotonic, admits_namespace=admits_namespace)
    sandboxes = cache(_kind(SANDBOXES, _Sandbox, _build_sandbox, owner_of=_owner_uid))
    by_template: Index[SandboxEntry] = Index(lambda sandbox: sandbox.template or None)
    sandboxes.listeners.append(by_template.follow)
    return Caches(
        sandboxes=sandboxes,
        by_template=by_template,
        templates=cache(_kind(SANDBOXTEMPLATES, PartialObject, _build_wishes)),
        pools=cache(_kind(SANDBOXWARMPOOLS, PartialObject, _build_wishes)),
        claims=cache(_kind(SANDBOXCLAIMS, _Claim, _build_claim, owner_of=_pool_name)),
        failed_pods=cache(
            _kind(
                PODS,
                _Pod,
                _build_pod,
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

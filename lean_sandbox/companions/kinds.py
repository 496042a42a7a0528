"""What companions remember of an object: few fields of what is public."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from filters import keep
from lean_sandbox.companions.annotations import KEPT
from lean_sandbox.model import names
from lean_sandbox.model.claim import SandboxClaimStatus
from lean_sandbox.model.conditions import is_true
from lean_sandbox.model.meta import ObjectMeta, Reference
from lean_sandbox.model.pod import PodCondition
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.model.warmpool import PoolView, SandboxWarmPool, view_of_pool
from lean_sandbox.model.wire import Lenient, OrNull
from lean_sandbox.watch.kind import Key, OwnedEntry, identity, shared_owner

_STAMPS: Final = frozenset({names.TEMPLATE_REF_HASH_LABEL, names.TEMPLATE_HASH_LABEL})
# Longer than any value that means something; the rest of what a tenant writes is not remembered.
_LONGEST: Final = 1024


class Wishes(OwnedEntry, gc=False, frozen=True):
    """The cache entry of an object whose annotations say what companions are to do."""

    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    created_at: str = ""


class CompanionSandboxEntry(Wishes, gc=False, frozen=True):
    """The cache entry of a Sandbox.

    ``has_ended`` says that its Pod has finished, or that it has expired, ``is_resuming`` that its
    status still says that it is suspended. ``edited_at`` is when anything but its status was last
    written, empty if that is not recorded; ``ready_since`` and ``resumed_at`` when it became Ready,
    and was last not suspended any more, empty if it is not so. All three are dates. ``labels`` say
    which template a member of a pool was made of.
    """

    is_running: bool = True
    has_ended: bool = False
    is_resuming: bool = False
    edited_at: str = ""
    ready_since: str = ""
    resumed_at: str = ""
    labels: dict[str, str] | None = None

    @property
    def pod_key(self) -> Key:
        """The key of its Pod."""
        name = self.annotations.get(names.POD_NAME_ANNOTATION) or self.key.name
        return Key(self.key.namespace, name)

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata that tells which template a member was made of."""
        return ObjectMeta(uid=self.uid, generation=self.generation, labels=self.labels)

    @property
    def template(self) -> str:
        """The name of the template that it was made of; empty for none."""
        return self.annotations.get(names.TEMPLATE_REF_ANNOTATION, "")


class CompanionPoolEntry(Wishes, gc=False, frozen=True):
    """The cache entry of a pool; ``grace_s`` is how long a member may be unready, if it says so."""

    replicas: int = 0
    template: str = ""
    is_recreate: bool = False
    grace_s: float | None = None

    @property
    def template_key(self) -> Key:
        """The key of its template."""
        return Key(self.key.namespace, self.template)


class CompanionClaimEntry(Wishes, gc=False, frozen=True):
    """The cache entry of a claim; one made to order has values or volumes that no member has."""

    pool: str = ""
    sandbox: str = ""
    has_lifecycle: bool = False
    is_made_to_order: bool = False


class FailedPodEntry(OwnedEntry, gc=False, frozen=True):
    """The cache entry of a Pod that has failed; ``disrupted_at`` is empty if it did so by itself.

    ``reason`` is what the Pod or its first failed container gives.
    """

    created_at: str = ""
    reason: str = ""
    disrupted_at: str = ""


class _SandboxSpec(Lenient, frozen=True):
    operatingMode: OrNull[str] = names.OPERATING_MODE_RUNNING


class SandboxItem(Lenient, frozen=True):
    """What is decoded of a Sandbox."""

    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[_SandboxSpec] = _SandboxSpec()
    status: OrNull[SandboxStatus] = SandboxStatus()


class _ClaimSpec(Lenient, frozen=True):
    warmPoolRef: OrNull[Reference] = Reference()
    lifecycle: dict[str, msgspec.Raw] | None = None
    env: OrNull[tuple[msgspec.Raw, ...]] = ()
    volumeClaimTemplates: OrNull[tuple[msgspec.Raw, ...]] = ()


class ClaimItem(Lenient, frozen=True):
    """What is decoded of a claim."""

    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[_ClaimSpec] = _ClaimSpec()
    status: OrNull[SandboxClaimStatus] = SandboxClaimStatus()


class _Terminated(Lenient, frozen=True):
    exitCode: OrNull[int] = 0
    reason: OrNull[str] = ""


class _ContainerState(Lenient, frozen=True):
    terminated: OrNull[_Terminated] = _Terminated()


class _Container(Lenient, frozen=True):
    state: OrNull[_ContainerState] = _ContainerState()


class _PodCondition(PodCondition, frozen=True):
    lastTransitionTime: OrNull[str] = ""


class _PodStatus(Lenient, frozen=True):
    reason: OrNull[str] = ""
    conditions: OrNull[tuple[_PodCondition, ...]] = ()
    containerStatuses: OrNull[tuple[_Container, ...]] = ()


class PodItem(Lenient, frozen=True):
    """What is decoded of a Pod."""

    metadata: OrNull[ObjectMeta] = ObjectMeta()
    status: OrNull[_PodStatus] = _PodStatus()


def _wishes(row: ObjectMeta, old: Wishes | None) -> dict[str, Any]:
    kept = keep(row.annotations or {}, KEPT) or {}
    return {
        "owner": shared_owner(row, old),
        "annotations": {key: text[:_LONGEST] for key, text in kept.items()},
        "created_at": row.creation_timestamp or "",
    }


def build_wishes(row: ObjectMeta, _item: object, old: Wishes | None) -> Wishes:
    """Return the entry of an object of which the metadata alone counts."""
    return Wishes(*identity(row, old), **_wishes(row, old))


def build_sandbox(
    row: ObjectMeta, item: SandboxItem | None, old: CompanionSandboxEntry | None
) -> CompanionSandboxEntry:
    """Return the entry of a Sandbox."""
    # What cannot be read is left alone.
    is_running = has_ended = is_resuming = False
    ready_since = resumed_at = ""
    if item is not None:
        is_running = item.spec.operatingMode != names.OPERATING_MODE_SUSPENDED
        for one in item.status.conditions:
            if one.type == names.READY and one.status == names.TRUE:
                ready_since = one.lastTransitionTime
            if one.type == names.SUSPENDED and one.status == names.FALSE:
                resumed_at = one.lastTransitionTime
            is_finished = one.type == names.FINISHED and one.status == names.TRUE
            has_ended = has_ended or is_finished or one.reason == names.REASON_SANDBOX_EXPIRED
        is_resuming = is_running and is_true(item.status.conditions, names.SUSPENDED)
    if not (_is_date(ready_since) and _is_date(resumed_at)):
        is_running = False
        ready_since = resumed_at = ""
    is_member = row.controller is not None and row.controller.kind == names.SANDBOX_WARM_POOL_KIND
    edits = [writer.time for writer in row.managed_fields or () if not writer.subresource]
    return CompanionSandboxEntry(
        *identity(row, old),
        **_wishes(row, old),
        is_running=is_running,
        has_ended=has_ended,
        is_resuming=is_resuming,
        edited_at=max(edits, default=""),
        ready_since=ready_since,
        resumed_at=resumed_at,
        labels=keep(row.labels, _STAMPS) if is_member else None,
    )


def _is_date(text: str) -> bool:
    """Return whether a date that anybody may have written into a status can be read, or is none."""
    try:
        return not text or bool(parse_rfc3339(text))
    except ValueError:
        return False


def build_pool(
    row: ObjectMeta, item: SandboxWarmPool | None, old: CompanionPoolEntry | None
) -> CompanionPoolEntry:
    """Return the entry of a pool."""
    wishes = _wishes(row, old)
    if item is None:
        # What cannot be read asks for nothing, so that nothing is done about it.
        wishes["annotations"] = {}
    view = PoolView(row.name) if item is None else view_of_pool(item)
    return CompanionPoolEntry(
        *identity(row, old),
        **wishes,
        replicas=view.replicas,
        template=view.template,
        is_recreate=view.is_recreate,
        grace_s=view.readiness_grace_s,
    )


def build_claim(
    row: ObjectMeta, item: ClaimItem | None, old: CompanionClaimEntry | None
) -> CompanionClaimEntry:
    """Return the entry of a claim."""
    if item is None:
        # What cannot be read is never given a lifecycle, and never deleted.
        pool = sandbox = ""
        has_lifecycle = is_made_to_order = True
    else:
        pool = item.spec.warmPoolRef.name
        sandbox = item.status.bound.name
        has_lifecycle = item.spec.lifecycle is not None
        is_made_to_order = bool(item.spec.env or item.spec.volumeClaimTemplates)
    return CompanionClaimEntry(
        *identity(row, old),
        **_wishes(row, old),
        pool=names.clipped_name(pool),
        sandbox=names.clipped_name(sandbox),
        has_lifecycle=has_lifecycle,
        is_made_to_order=is_made_to_order,
    )


def build_pod(row: ObjectMeta, item: PodItem | None, old: FailedPodEntry | None) -> FailedPodEntry:
    """Return the entry of a Pod that has failed."""
    reason = ""
    disrupted_at = ""
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

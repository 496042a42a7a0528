"""The SandboxClaim kind, what is remembered of each one, and when it expires."""

from __future__ import annotations

from typing import Final

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.conditions import Condition, find
from lean_sandbox.model.meta import ObjectMeta, OwnerReference, Reference, controller_reference
from lean_sandbox.model.sandbox import (
    PodTemplateMetadata,
    VolumeClaimTemplate,
    metadata_fault,
    shared_metadata,
)
from lean_sandbox.model.times import moment_s
from lean_sandbox.model.wire import Lenient, OrNull, interned


class Lifecycle(Lenient, frozen=True):
    """When and how a claim ends."""

    shutdownTime: str | None = None
    ttlSecondsAfterFinished: int | None = None
    shutdownPolicy: OrNull[str] = names.SHUTDOWN_POLICY_RETAIN


class EnvVar(Lenient, frozen=True):
    """One literal environment variable; without containerName it is the first container's."""

    name: str = ""
    value: OrNull[str] = ""
    containerName: OrNull[str] = ""


class SandboxClaimSpec(Lenient, frozen=True):
    """``spec`` of a SandboxClaim."""

    warmPoolRef: OrNull[Reference] = Reference()
    lifecycle: OrNull[Lifecycle] = Lifecycle()
    additionalPodMetadata: OrNull[PodTemplateMetadata] = PodTemplateMetadata()
    env: OrNull[tuple[EnvVar, ...]] = ()
    volumeClaimTemplates: OrNull[tuple[VolumeClaimTemplate, ...]] = ()


class BoundSandbox(Lenient, frozen=True):
    """``status.sandbox``: empty when nothing is bound."""

    name: OrNull[str] = ""
    podIPs: OrNull[tuple[str, ...]] = ()
    serviceFQDN: OrNull[str] = ""


class SandboxClaimStatus(Lenient, frozen=True):
    """``status`` of a SandboxClaim; ``bound`` is the Sandbox it has."""

    conditions: OrNull[tuple[Condition, ...]] = ()
    bound: OrNull[BoundSandbox] = msgspec.field(default=BoundSandbox(), name="sandbox")


EMPTY_CLAIM_STATUS: Final = SandboxClaimStatus()


class SandboxClaim(Lenient, frozen=True):
    """A SandboxClaim. Its Raw parts keep the message it was decoded from alive: make a view."""

    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[SandboxClaimSpec] = SandboxClaimSpec()
    status: OrNull[SandboxClaimStatus] = EMPTY_CLAIM_STATUS


class ClaimView(msgspec.Struct, frozen=True, gc=False):
    """What is kept in memory of the spec of a claim once the full object was seen.

    Maps are shared between claims that say the same: never change them.
    """

    generation: int = 0
    pool: str = ""
    # No pool member can serve the claim.
    needs_cold_start: bool = False
    # Seconds since the epoch.
    shutdown_time: float | None = None
    ttl_s: int | None = None
    policy: str = names.SHUTDOWN_POLICY_RETAIN
    # Empty when no Pod is given so much of it, for the reason in ``refusal``.
    additional: PodTemplateMetadata = PodTemplateMetadata()
    refusal: str = ""

    @property
    def is_deleted_at_expiry(self) -> bool:
        """Whether the claim object is deleted at expiry, by whichever propagation."""
        deleting = names.SHUTDOWN_POLICY_DELETE, names.SHUTDOWN_POLICY_DELETE_FOREGROUND
        return self.policy in deleting


class ClaimFacts(msgspec.Struct, frozen=True, gc=False):
    """The parts of a claim that go into its Sandbox."""

    name: str
    namespace: str
    uid: str
    # The claim's created-by label as it stands; empty: the Sandbox has none.
    created_by: str = ""
    trace_context: str = ""
    additional: PodTemplateMetadata = PodTemplateMetadata()

    @property
    def reference(self) -> OwnerReference:
        """The controller reference of the claim."""
        return controller_reference(names.SANDBOX_CLAIM_KIND, self.name, self.uid)


def view_of_claim(claim: SandboxClaim) -> ClaimView:
    """Return what decisions need of ``claim``, detached from the message it came in.

    Raises ValueError: ``spec.lifecycle.shutdownTime`` is not a date-time.
    """
    spec = claim.spec
    lifecycle = claim.spec.lifecycle
    asked = spec.additionalPodMetadata
    refusal = metadata_fault(asked, "spec.additionalPodMetadata")
    return ClaimView(
        generation=claim.metadata.generation,
        pool=interned(names.clipped_name(spec.warmPoolRef.name)),
        needs_cold_start=bool(spec.env or spec.volumeClaimTemplates),
        shutdown_time=moment_s(lifecycle.shutdownTime, "spec.lifecycle.shutdownTime"),
        ttl_s=lifecycle.ttlSecondsAfterFinished,
        policy=interned(lifecycle.shutdownPolicy),
        additional=PodTemplateMetadata() if refusal else shared_metadata(asked),
        refusal=refusal,
    )


def expire_at(view: ClaimView, status: SandboxClaimStatus) -> float | None:
    """Return when a claim of this status expires (seconds since the epoch), None for never."""
    moments = [] if view.shutdown_time is None else [view.shutdown_time]
    if view.ttl_s is not None and (since := _finished_at(status)) is not None:
        moments.append(since + view.ttl_s)
    return min(moments, default=None)


def _finished_at(status: SandboxClaimStatus) -> float | None:
    finished = find(status.conditions, names.FINISHED)
    if finished is None or finished.status != names.TRUE:
        return None
    # How Go writes a time that was never set.
    if finished.lastTransitionTime == "0001-01-01T00:00:00Z":
        return None
    try:
        return moment_s(finished.lastTransitionTime, names.FINISHED)
    except ValueError:
        return None

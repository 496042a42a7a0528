"""The status of a SandboxClaim, computed from what one reconcile observed, and its failures."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, Final

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.claim import BoundSandbox, SandboxClaimStatus
from lean_sandbox.model.conditions import (
    Condition,
    find,
    new_condition,
    remove,
    upsert,
    whole_status,
)
from lean_sandbox.model.sandbox import SandboxStatus

# For a missing pool or template, apart from events; and for a Sandbox that cannot be read yet.
_MISSING_REQUEUE_S: Final = 60.0
_CREATE_PENDING_REQUEUE_S: Final = 0.2
_LONGEST_CREATE_PENDING_S: Final = 5.0

_EXPIRED: Final = "Claim expired. Sandbox cleanup initiated."


class Retry(Enum):
    """What follows a failed reconcile."""

    # Come back after a fixed time; no error is counted.
    REQUEUE = "requeue"
    # Nothing but the expiry timer; an event of a watch wakes the claim.
    SUPPRESSED = "suppressed"
    # Exponentially, as an error.
    BACKOFF = "backoff"


class ClaimFault(Enum):
    """The classes of failures: the reason of Ready they lead to and how they are retried."""

    TEMPLATE_NOT_FOUND = (names.REASON_TEMPLATE_NOT_FOUND, Retry.REQUEUE)
    WARM_POOL_NOT_FOUND = (names.REASON_WARM_POOL_NOT_FOUND, Retry.REQUEUE)
    # The Sandbox was created before, but nothing shows it yet.
    CREATE_PENDING = (names.REASON_SANDBOX_CREATE_PENDING, Retry.REQUEUE)
    ADOPTION_CONFLICT = (names.REASON_ADOPTION_CONFLICT, Retry.BACKOFF)
    INVALID_METADATA = (names.REASON_INVALID_METADATA, Retry.SUPPRESSED)
    ENV_VARS_REJECTED = (names.REASON_ENV_VARS_REJECTED, Retry.SUPPRESSED)
    CLAIM_TEMPLATES = (names.REASON_CLAIM_TEMPLATES_ERROR, Retry.SUPPRESSED)
    # At expiry only: the Sandbox that status names is somebody else's.
    SANDBOX_NOT_OWNED = (names.REASON_CLAIM_EXPIRED, Retry.SUPPRESSED)
    # The template's NetworkPolicy is not there yet, or can never be.
    POLICY_PENDING = (names.REASON_SANDBOX_NOT_READY, Retry.SUPPRESSED)
    POLICY_IMPOSSIBLE = (names.REASON_INVALID_CONFIGURATION, Retry.SUPPRESSED)
    # The status of the Sandbox says that it is ready, and no watch shows a Pod that is.
    POD_UNSEEN = (names.REASON_SANDBOX_NOT_READY, Retry.REQUEUE)
    OTHER = (names.REASON_RECONCILER_ERROR, Retry.BACKOFF)

    def __init__(self, reason: str, retry: Retry) -> None:
        self.reason = reason
        self.retry = retry


class ClaimError(Exception):
    """Why a claim could not be served; ``str()`` of it is the whole text, for logs.

    ``conflict`` is what the API said about a lost write; it never becomes visible in a condition.
    ``after_s`` is how soon the claim is tried again, if the fault does not say that.
    """

    def __init__(
        self, fault: ClaimFault, text: str, *, conflict: str = "", after_s: float | None = None
    ) -> None:
        super().__init__(f"{text}: {conflict}" if conflict else text)
        self.fault = fault
        self.text = text
        self.conflict = conflict
        self.after_s = after_s

    @property
    def message(self) -> str:
        """The message of the Ready condition."""
        if self.fault is ClaimFault.ADOPTION_CONFLICT:
            detail = self.text + (" (conflicting concurrent write)" if self.conflict else "")
            return f"adoption write conflict: {detail}; the next pass retries from a converged view"
        if self.fault is ClaimFault.CREATE_PENDING:
            return "Sandbox already created; waiting for cache to converge"
        if self.fault is ClaimFault.SANDBOX_NOT_OWNED:
            return f"Claim expired. {self.text}; deletion skipped."
        if self.fault is ClaimFault.OTHER:
            return f"Error seen: {self.text}"
        return self.text


def stale_reference(owner_kind: str, cause: str) -> ClaimError:
    """Return the error for a reference that names no Sandbox of ours and could not be removed."""
    what = {
        names.SANDBOX_CLAIM_KIND: "failed to remove sandbox reference owned by another claim",
        names.SANDBOX_WARM_POOL_KIND: "failed to remove invalid sandbox reference",
    }.get(owner_kind, "failed to remove stale sandbox reference from claim metadata")
    return ClaimError(ClaimFault.OTHER, f"{what}: {cause}")


def not_controlled(claim: str, *, sandbox: str = "", uid: str = "") -> ClaimError:
    """Return the error for a Sandbox, by default of the claim's name, with another owner, or none.

    With the ``uid`` of the claim the Sandbox was that of a claim and has no owner, as after a
    restore from a backup that strips owners, and the text says how to hand it over.
    """
    text = (
        f'sandbox "{sandbox or claim}" is not controlled by claim "{claim}". '
        "Please use a different claim name or delete the sandbox manually"
    )
    if uid:
        text += f'; to give it to this claim, label it "{names.CLAIM_UID_LABEL}={uid}"'
    return ClaimError(ClaimFault.OTHER, text)


def owner_taken_away(sandbox: str) -> ClaimError:
    """Return the error for a Sandbox that a policy or a webhook did not let the claim own."""
    text = f'sandbox "{sandbox}" was accepted without the claim as its owner'
    return ClaimError(ClaimFault.OTHER, text)


def requeue_after_s(error: ClaimError | None, collisions: int = 0) -> float | None:
    """Return how soon a claim that could not be served is tried again without backoff, or None.

    Each of ``collisions``, creates in a row that met a Sandbox not seen yet, doubles the wait; a
    longer Retry-After of the server counts instead.
    """
    if error is None or error.fault.retry is not Retry.REQUEUE:
        return None
    if error.fault is not ClaimFault.CREATE_PENDING:
        return error.after_s or _MISSING_REQUEUE_S
    doublings = min(max(collisions - 1, 0), 10)
    own_s = min(_CREATE_PENDING_REQUEUE_S * 2.0**doublings, _LONGEST_CREATE_PENDING_S)
    return max(own_s, getattr(error.__cause__, "retry_after_s", None) or 0.0)


class ClaimObservation(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one reconcile of a claim."""

    generation: int
    # The claim's Sandbox, bound or just created; empty: there is none.
    sandbox_name: str = ""
    sandbox_status: SandboxStatus | None = None
    error: ClaimError | None = None
    is_expired: bool = False
    # The Sandbox is gone after its work had ended, which is not done again.
    is_over: bool = False


def next_claim_status(
    old: SandboxClaimStatus, seen: ClaimObservation, now: datetime
) -> SandboxClaimStatus:
    """Return the complete status: Ready and Finished, sorted by type, and the Sandbox."""
    fault = seen.error.fault if seen.error is not None else None
    if fault is ClaimFault.CREATE_PENDING and old.bound.name:
        return old
    if seen.is_over and (ended := find(old.conditions, names.FINISHED)) is not None:
        ready = new_condition(
            names.READY, names.FALSE, ended.reason, ended.message, seen.generation
        )
        conditions = upsert(old.conditions, ready, now)
        return SandboxClaimStatus(_sorted(conditions), BoundSandbox())
    conditions = upsert(old.conditions, _ready(seen), now)
    finished = _mirrored(seen, names.FINISHED)
    # The work of a claim that names no Sandbox has ended for good, whatever is wrong with its spec.
    has_ended = seen.is_expired or not old.bound.name
    if finished is not None:
        conditions = upsert(conditions, finished, now)
    elif seen.sandbox_name or not has_ended:
        conditions = remove(conditions, names.FINISHED)
    return SandboxClaimStatus(_sorted(conditions), _bound(old, seen, fault))


def expired_claim_status(
    status: SandboxClaimStatus, generation: int, now: datetime
) -> SandboxClaimStatus:
    """Return ``status`` with Ready saying that the claim expired; all else stays.

    Nothing may be deleted before this was written.
    """
    ready = new_condition(
        names.READY, names.FALSE, names.REASON_CLAIM_EXPIRED, _EXPIRED, generation
    )
    return msgspec.structs.replace(
        status, conditions=_sorted(upsert(status.conditions, ready, now))
    )


def claim_status_patch(old: SandboxClaimStatus, new: SandboxClaimStatus) -> dict[str, Any] | None:
    """Return what a merge patch must put under ``status``, None when no request is due."""
    # The order of conditions does not count.
    conditions = _sorted(new.conditions)
    if new.bound == old.bound and conditions == _sorted(old.conditions):
        return None
    return {"conditions": conditions, "sandbox": whole_status(new.bound)}


def _ready(seen: ClaimObservation) -> Condition:
    if seen.error is not None:
        verdict = names.FALSE, seen.error.fault.reason, seen.error.message
    elif seen.is_expired:
        verdict = names.FALSE, names.REASON_CLAIM_EXPIRED, _EXPIRED
    elif not seen.sandbox_name:
        verdict = names.FALSE, names.REASON_SANDBOX_MISSING, "Sandbox does not exist"
    elif (mirrored := _mirrored(seen, names.READY)) is None:
        verdict = names.FALSE, names.REASON_SANDBOX_NOT_READY, "Sandbox is not ready"
    elif mirrored.reason == names.REASON_SANDBOX_EXPIRED:
        message = "Underlying Sandbox resource has expired independently of the Claim."
        verdict = names.FALSE, names.REASON_SANDBOX_EXPIRED, message
    else:
        # The time of the Sandbox's own transition comes along; the generation is the claim's.
        return msgspec.structs.replace(mirrored, observedGeneration=seen.generation)
    return new_condition(names.READY, *verdict, seen.generation)


def _mirrored(seen: ClaimObservation, kind: str) -> Condition | None:
    if not seen.sandbox_name or seen.sandbox_status is None:
        return None
    return find(seen.sandbox_status.conditions, kind)


def _bound(
    old: SandboxClaimStatus, seen: ClaimObservation, fault: ClaimFault | None
) -> BoundSandbox:
    if seen.sandbox_name:
        status = seen.sandbox_status or SandboxStatus()
        return BoundSandbox(seen.sandbox_name, status.podIPs, status.serviceFQDN)
    if fault in (None, ClaimFault.SANDBOX_NOT_OWNED):
        return BoundSandbox()
    return old.bound


def _sorted(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    return tuple(sorted(conditions, key=lambda held: held.type))

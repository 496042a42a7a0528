"""The end of a claim whose time is over: the claim is deleted, or its Sandbox alone.

Nothing is deleted before the status says that the claim has expired.
"""

from __future__ import annotations

from lean_sandbox.controllers.claim.owned import is_controlled, own_sandbox
from lean_sandbox.controllers.claim.requests import delete_claim, write_status
from lean_sandbox.controllers.claim.run import ClaimRun
from lean_sandbox.kube.client import CascadeType
from lean_sandbox.model import names
from lean_sandbox.model.claim import SandboxClaimStatus, expire_at
from lean_sandbox.model.claim_status import ClaimError, ClaimFault, expired_claim_status
from lean_sandbox.model.conditions import find
from lean_sandbox.model.times import has_come, time_left_s
from lean_sandbox.runtime.workers import AT_ONCE_S, Result, failing_as
from lean_sandbox.watch.kind import Key


def is_due(run: ClaimRun, status: SandboxClaimStatus) -> bool:
    """Return whether the claim has expired if its status is this."""
    return has_come(expire_at(run.view, status), run.context.server_time.now())


def left_s(run: ClaimRun, status: SandboxClaimStatus) -> float | None:
    """Return how soon the claim is reconciled to expire if its status is this, None for never."""
    left = time_left_s(expire_at(run.view, status), run.context.server_time.now())
    return None if left is None else max(left, AT_ONCE_S)


async def expire(run: ClaimRun) -> Result:
    """Report that the claim has expired; once that is reported, delete what its policy says."""
    view = run.view
    ready = find(run.old.conditions, names.READY)
    if ready is None or ready.reason != names.REASON_CLAIM_EXPIRED:
        return await mark_expired(run, run.old)
    if not view.is_deleted_at_expiry:
        return await _retire(run, is_reported=ready.observedGeneration == run.entry.generation)
    _emit(run, "Deleting", f"Deleting Claim (ShutdownPolicy={view.policy})")
    is_foreground = view.policy == names.SHUTDOWN_POLICY_DELETE_FOREGROUND
    await delete_claim(run, CascadeType.FOREGROUND if is_foreground else None)
    return Result()


async def mark_expired(run: ClaimRun, status: SandboxClaimStatus) -> Result:
    """Write a status that says that the claim has expired, and have it reconciled at once."""
    now = run.context.server_time.now()
    await write_status(run, expired_claim_status(status, run.entry.generation, now))
    _emit(run, "Claim Expired", "Claim expired")
    return Result(requeue_after_s=AT_ONCE_S)


def _emit(run: ClaimRun, action: str, note: str) -> None:
    run.context.events.emit(run.entry, "Normal", "ClaimExpired", action, note)


async def _retire(run: ClaimRun, *, is_reported: bool) -> Result:
    """Delete the Sandbox of an expired claim that is retained, and report it while it lasts."""
    entry = run.entry
    named = run.old.bound.name or entry.key.name
    held = own_sandbox(run.sandboxes, entry) or run.sandboxes.get(Key(entry.key.namespace, named))
    if held is None and is_reported and not run.old.bound.name:
        # Nothing is left, and whether a deletion was skipped can no longer be known.
        return Result()
    if held is not None and is_controlled(held, entry):
        run.sandbox = held
        if not held.is_deleting:
            with failing_as("failed to delete expired sandbox"):
                await run.writer.delete(run.sandboxes, held)
        if held.status is None:
            # Whether its Sandbox has finished is not known; the end of that wakes the claim.
            return Result()
    elif held is not None:
        text = f'sandbox "{held.key.name}" is not owned by claim "{entry.key.name}"'
        run.error = ClaimError(
            ClaimFault.SANDBOX_NOT_OWNED, f"sandbox not owned by this claim: {text}"
        )
    await write_status(run, run.next_status(is_expired=True))
    return Result()

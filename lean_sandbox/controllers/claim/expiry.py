"""The end of a claim whose time is over: the claim is deleted, or its Sandbox alone.

Nothing is deleted before the status says that the claim has expired.
"""

from __future__ import annotations

from lean_sandbox.controllers.claim.context import ClaimContext
from lean_sandbox.controllers.claim.owned import is_controlled, own_sandbox
from lean_sandbox.controllers.claim.requests import ClaimRequests
from lean_sandbox.kube.client import CascadeType
from lean_sandbox.model import names
from lean_sandbox.model.claim import SandboxClaimStatus, expire_at
from lean_sandbox.model.claim_status import (
    ClaimError,
    ClaimFault,
    ClaimObservation,
    expired_claim_status,
    next_claim_status,
)
from lean_sandbox.model.conditions import find
from lean_sandbox.model.times import has_come, time_left_s
from lean_sandbox.runtime.workers import AT_ONCE_S, Result, failing_as
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class ClaimExpiry:
    """Ends one claim, in one reconcile."""

    def __init__(self, context: ClaimContext, entry: ClaimEntry, requests: ClaimRequests) -> None:
        assert entry.view is not None
        assert entry.status is not None
        self._context = context
        self._entry = entry
        self._view = entry.view
        self._old = entry.status
        self._requests = requests

    def is_due(self, status: SandboxClaimStatus) -> bool:
        """Return whether the claim has expired if its status is this."""
        return has_come(expire_at(self._view, status), self._context.server_time.now())

    def left_s(self, status: SandboxClaimStatus) -> float | None:
        """Return the seconds until the claim expires if its status is this, None for never.

        AT_ONCE_S if it has. One moment for both: between two its end could come unseen.
        """
        now = self._context.server_time.now()
        ends_at = expire_at(self._view, status)
        return AT_ONCE_S if has_come(ends_at, now) else time_left_s(ends_at, now)

    async def run(self) -> Result:
        """Report that the claim has expired; once that is reported, delete what its policy says."""
        view = self._view
        ready = find(self._old.conditions, names.READY)
        if ready is None or ready.reason != names.REASON_CLAIM_EXPIRED:
            now = self._context.server_time.now()
            marked = expired_claim_status(self._old, self._entry.generation, now)
            await self._requests.write_status(marked, has_sandbox=False)
            return self.reported()
        if not view.is_deleted_at_expiry:
            is_reported = ready.observedGeneration == self._entry.generation
            return await self._retire(is_reported=is_reported)
        self._emit("Deleting", f"Deleting Claim (ShutdownPolicy={view.policy})")
        is_foreground = view.policy == names.SHUTDOWN_POLICY_DELETE_FOREGROUND
        await self._requests.delete(CascadeType.FOREGROUND if is_foreground else None)
        return Result()

    def reported(self) -> Result:
        """Emit an Event, after the status was written, and have the claim reconciled at once."""
        self._emit("Claim Expired", "Claim expired")
        return Result(requeue_after_s=AT_ONCE_S)

    def _emit(self, action: str, note: str) -> None:
        self._context.events.emit(self._entry, "Normal", "ClaimExpired", action, note)

    async def _retire(self, *, is_reported: bool) -> Result:
        """Delete the Sandbox of an expired claim that is retained, and report it while it lasts."""
        entry = self._entry
        sandboxes = self._context.caches.sandboxes
        named = self._old.bound.name or entry.key.name
        held = own_sandbox(sandboxes, entry) or sandboxes.get(Key(entry.key.namespace, named))
        if held is None and is_reported and not self._old.bound.name:
            # Nothing is left, and whether a deletion was skipped can no longer be known.
            return Result()
        sandbox: SandboxEntry | None = None
        error: ClaimError | None = None
        if held is not None and is_controlled(held, entry):
            sandbox = held
        elif held is not None:
            text = f'sandbox "{held.key.name}" is not owned by claim "{entry.key.name}"'
            error = ClaimError(
                ClaimFault.SANDBOX_NOT_OWNED, f"sandbox not owned by this claim: {text}"
            )
        if sandbox is not None and not sandbox.is_deleting:
            with failing_as("failed to delete expired sandbox"):
                await self._context.writer.delete(sandboxes, sandbox)
        if sandbox is not None and sandbox.status is None:
            # Whether its Sandbox has finished is not known; the end of that wakes the claim.
            return Result()
        seen = observed(entry, sandbox, error, is_expired=True)
        new = next_claim_status(self._old, seen, self._context.server_time.now())
        await self._requests.write_status(new, has_sandbox=sandbox is not None)
        return Result()


def observed(
    entry: ClaimEntry,
    sandbox: SandboxEntry | None,
    error: ClaimError | None,
    *,
    is_expired: bool = False,
    is_over: bool = False,
) -> ClaimObservation:
    """Return what a reconcile has found out, from which the claim's next status follows."""
    return ClaimObservation(
        generation=entry.generation,
        sandbox_name=sandbox.key.name if sandbox is not None else "",
        sandbox_status=sandbox.status if sandbox is not None else None,
        error=error,
        is_expired=is_expired,
        is_over=is_over,
    )

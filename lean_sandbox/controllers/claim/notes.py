"""What leaves a trace of claims outside of them: Events (claims, section 6) and counters."""

from __future__ import annotations

from lean_sandbox.controllers.claim.metrics import ClaimMetrics
from lean_sandbox.controllers.recording import ObjectEvents, Recorder
from lean_sandbox.model import names
from lean_sandbox.watch.resources.claim import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class ClaimNotes:
    """Turns what a pass did into Events and counts it; no Events without a recorder."""

    def __init__(self, recorder: Recorder | None, metrics: ClaimMetrics) -> None:
        self._events = ObjectEvents(
            recorder, names.EXTENSIONS_API_VERSION, names.SANDBOX_CLAIM_KIND
        )
        self._metrics = metrics

    def adopted(self, entry: ClaimEntry, sandbox: SandboxEntry) -> None:
        """Note that a member of the pool was taken."""
        self._metrics.adopted(entry, sandbox)
        note = f'Adopted warm pool Sandbox "{sandbox.key.name}"'
        self._emit(entry, "SandboxAdopted", "Adoption", note)

    def provisioned(self, entry: ClaimEntry, sandbox: SandboxEntry) -> None:
        """Note that a Sandbox was created."""
        self._metrics.created(entry, sandbox)
        note = f'Created Sandbox "{sandbox.key.name}"'
        self._emit(entry, "SandboxProvisioned", "Provisioning", note)

    def expired(self, entry: ClaimEntry) -> None:
        """Note that the claim's time is over."""
        self._emit(entry, "ClaimExpired", "Claim Expired", "Claim expired")

    def deleting(self, entry: ClaimEntry, policy: str) -> None:
        """Note that the claim is about to be deleted."""
        self._emit(entry, "ClaimExpired", "Deleting", f"Deleting Claim (ShutdownPolicy={policy})")

    def _emit(self, entry: ClaimEntry, reason: str, action: str, note: str) -> None:
        self._events.emit(entry, "Normal", reason, action, note)

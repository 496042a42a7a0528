"""What leaves a trace of claims outside of them: Events (claims, section 6) and counters."""

from __future__ import annotations

from typing import Protocol

from lean_sandbox.api.events import EventType
from lean_sandbox.api.wire import ObjectReference
from lean_sandbox.model import names
from lean_sandbox.reconcile.claim.metrics import ClaimMetrics
from lean_sandbox.watch.extension_objects import ClaimEntry
from lean_sandbox.watch.objects import SandboxEntry

__all__ = ["ClaimNotes", "ClaimRecorder"]


class ClaimRecorder(Protocol):
    """Takes an Event and never waits."""

    def emit(
        self,
        regarding: ObjectReference,
        type_: EventType,
        reason: str,
        action: str,
        note: str,
        related: ObjectReference | None = None,
    ) -> None:
        """Queue one Event."""


class ClaimNotes:
    """Turns what a pass did into Events and counts it; no Events without a recorder."""

    def __init__(self, recorder: ClaimRecorder | None, metrics: ClaimMetrics) -> None:
        self._recorder = recorder
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
        if self._recorder is None:
            return
        regarding = ObjectReference(
            apiVersion=names.EXTENSIONS_API_VERSION,
            kind=names.SANDBOX_CLAIM_KIND,
            name=entry.key.name,
            namespace=entry.key.namespace,
            uid=entry.uid,
        )
        self._recorder.emit(regarding, "Normal", reason, action, note)

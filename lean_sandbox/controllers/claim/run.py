"""What the reconciles of all claims share, and what one of them has found."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.claim.annotations import AnnotationWriter
from lean_sandbox.controllers.claim.state import ClaimState
from lean_sandbox.controllers.common import ObjectEvents, ServerTime, Undone, Wakes
from lean_sandbox.controllers.metrics import Metrics
from lean_sandbox.controllers.resolver import TemplateResolver
from lean_sandbox.controllers.warm import WarmQueue
from lean_sandbox.model import names
from lean_sandbox.model.claim import ClaimFacts, SandboxClaimStatus
from lean_sandbox.model.claim_status import ClaimError, ClaimObservation, next_claim_status
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources import Caches
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

#: How soon a claim is reconciled again that waits for a member of its pool, or for its Pod, to
#: become ready.
SOON_READY_S = 0.5
#: How many times a member or a claim is patched while others keep writing to it.
MOST_PATCHES = 5


class ClaimContext(msgspec.Struct, kw_only=True):
    """What the reconciles of all claims share.

    ``began_at`` is when this process began to reconcile (monotonic): before that, a new leader does
    not know which members are ready.
    """

    writer: ObjectWriter
    caches: Caches
    resolver: TemplateResolver
    settings: Settings
    clock: Clock
    server_time: ServerTime
    metrics: Metrics
    wakes: Wakes
    warm: WarmQueue
    events: ObjectEvents
    annotator: AnnotationWriter
    began_at: float = -math.inf
    undone: Undone = msgspec.field(default_factory=Undone)


class ClaimRun:
    """One reconcile of one claim: what it is for, and what it has found."""

    def __init__(self, context: ClaimContext, entry: ClaimEntry, state: ClaimState) -> None:
        assert entry.view is not None
        assert entry.status is not None
        self.context = context
        self.entry = entry
        self.state = state
        #: What the spec asks for.
        self.view = entry.view
        #: The status that is there.
        self.old = entry.status
        self.sandboxes = context.caches.sandboxes
        self.writer = context.writer
        #: The pool that the claim names.
        self.pool = Key(entry.key.namespace, entry.view.pool)
        #: What goes from the claim into its Sandbox.
        self.facts = ClaimFacts(
            name=entry.key.name,
            namespace=entry.key.namespace,
            uid=entry.uid,
            created_by=(entry.labels or {}).get(names.CREATED_BY_LABEL, ""),
            trace_context=state.trace_of(entry),
            additional=entry.view.additional,
        )
        #: The Sandbox of the claim.
        self.sandbox: SandboxEntry | None = None
        #: Whether the work of the claim has ended, and the Sandbox that did it is gone.
        self.is_over = False
        #: The member that was taken from the pool.
        self.taken: SandboxEntry | None = None
        #: By uid: members that the server does not let the claim take over, and why.
        self.passed_over: dict[str, tuple[SandboxEntry, str]] = {}
        #: Why the claim is not served.
        self.error: ClaimError | None = None

    def next_status(self, *, is_expired: bool = False) -> SandboxClaimStatus:
        """Return the status that follows from what was found."""
        sandbox = self.sandbox
        seen = ClaimObservation(
            generation=self.entry.generation,
            sandbox_name=sandbox.key.name if sandbox is not None else "",
            sandbox_status=sandbox.status if sandbox is not None else None,
            error=self.error,
            is_expired=is_expired,
            is_over=self.is_over,
        )
        return next_claim_status(self.old, seen, self.context.server_time.now())

    async def fetch(self, key: Key) -> SandboxEntry | None:
        """Fetch a Sandbox; ``None`` when it is gone. One GET."""
        found = await self.writer.get(self.sandboxes, key)
        return found.entry if found is not None else None

    async def patch(
        self, sandbox: SandboxEntry, patch: dict[str, Any] | list[dict[str, Any]]
    ) -> SandboxEntry:
        """Patch a Sandbox; the whole response is taken, as others may have written too."""
        written = await self.writer.patch(self.sandboxes, sandbox, patch, as_metadata=False)
        return written.entry

"""What is remembered of a claim from one reconcile to the next."""

from __future__ import annotations

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.claim_status import ClaimError, ClaimFault
from lean_sandbox.runtime.states import State
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry


class ClaimState(State):
    """What is remembered of one claim."""

    # Whether a reconcile of the claim runs, which may yet note something.
    is_in_use: bool = False
    # The member whose adoption ended without a clear answer.
    unanswered: Key | None = None
    # The last Sandbox of the claim whose end was seen.
    ended: str = ""
    # The uid of the last Sandbox that was made for the claim, and that it may not own.
    disowned: str = ""
    # How many creates in a row have collided with a Sandbox that is not seen yet.
    collisions: int = 0
    # Whether it gets a new Sandbox, because the Pod of a member could not be patched for it.
    needs_new: bool = False
    # How long it waits because no Pod of its ready Sandbox is known to be ready; 0 if one is.
    unusable_s: float = 0.0
    # When the claim was first seen, until it is ready; empty if its stamp of that is no time.
    first_seen: str | None = None
    # The trace that was begun for a client that began none.
    trace: str = ""
    # Annotations that wait to be written, or are being written.
    pending: dict[str, str] = msgspec.field(default_factory=dict)

    def trace_of(self, entry: ClaimEntry) -> str:
        """Return the trace context that the claim carries or will carry, empty for none."""
        carried = (entry.annotations or {}).get(names.TRACE_CONTEXT_ANNOTATION, "")
        return carried or self.trace

    def count_collisions(self, error: ClaimError | None) -> int:
        """Return how many creates in a row, with this outcome, have collided."""
        is_collision = error is not None and error.fault is ClaimFault.CREATE_PENDING
        self.collisions = self.collisions + 1 if is_collision else 0
        return self.collisions

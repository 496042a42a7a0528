"""What is remembered of a claim from one reconcile to the next."""

from __future__ import annotations

import msgspec

from lean_sandbox.model import names
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry


class ClaimState(msgspec.Struct):
    """What is remembered of one claim, by uid: a successor of the same name starts anew.

    Nothing here is needed for a claim to end as its spec asks: a new process begins without it.
    """

    uid: str
    # The member whose adoption ended without a clear answer.
    unanswered: Key | None = None
    # The last Sandbox of the claim whose end was seen.
    ended: str = ""
    # How many creates in a row have collided with a Sandbox that is not seen yet.
    collisions: int = 0
    # When the claim was first seen, until it is ready; empty if its stamp of that is no time.
    first_seen: str | None = None
    # The trace that was begun for a client that began none.
    trace: str = ""
    # Annotations that wait to be written, or are being written.
    pending: dict[str, str] = {}

    def trace_of(self, entry: ClaimEntry) -> str:
        """Return the trace context that the claim carries or will carry, empty for none."""
        carried = (entry.annotations or {}).get(names.TRACE_CONTEXT_ANNOTATION, "")
        return carried or self.trace


class ClaimStates:
    """The states of claims; one that remembers nothing is not kept."""

    def __init__(self) -> None:
        self._states: dict[Key, ClaimState] = {}

    def begin(self, claim: ClaimEntry) -> ClaimState:
        """Return what is remembered of a claim; begin to do so if it is nothing yet."""
        state = self._states.get(claim.key)
        if state is None or state.uid != claim.uid:
            state = self._states[claim.key] = ClaimState(claim.uid)
        return state

    def settle(self, claim: ClaimEntry) -> None:
        """Drop the state of a claim if it remembers nothing."""
        if self._states.get(claim.key) == ClaimState(claim.uid):
            del self._states[claim.key]

    def drop(self, claim: ClaimEntry) -> None:
        """Drop what is remembered of a claim that is gone, but not of another of its name."""
        state = self._states.get(claim.key)
        if state is not None and state.uid == claim.uid:
            del self._states[claim.key]

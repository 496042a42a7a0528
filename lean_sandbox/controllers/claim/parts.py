"""What the reconciles of all claims share."""

from __future__ import annotations

import math

import msgspec

from lean_sandbox.controllers.claim.annotations import AnnotationWriter
from lean_sandbox.controllers.common import ObjectEvents, Shared, Undone
from lean_sandbox.controllers.warm import WarmQueue
from lean_sandbox.watch.kind import Key


class Parts(Shared, kw_only=True):
    """What the reconciles of all claims share."""

    # For the requests that a client waits for.
    warm: WarmQueue
    events: ObjectEvents
    annotator: AnnotationWriter
    # When the work began (monotonic): a new leader learns only then which members are ready.
    began_at: float = -math.inf
    # By uid of the claim: the member whose adoption ended without a clear answer.
    doubtful: dict[str, Key] = msgspec.field(default_factory=dict)
    # By uid of the claim: the last Sandbox of it whose end was seen.
    ended: dict[str, str] = msgspec.field(default_factory=dict)
    # By uid of the claim: how many creates in a row collided with a Sandbox that is not seen yet.
    collisions: dict[str, int] = msgspec.field(default_factory=dict)
    undone: Undone = msgspec.field(default_factory=Undone)

    def forget(self, uid: str) -> None:
        """Drop what is remembered between the reconciles of a claim."""
        self.doubtful.pop(uid, None)
        self.ended.pop(uid, None)
        self.collisions.pop(uid, None)
        self.annotator.forget(uid)

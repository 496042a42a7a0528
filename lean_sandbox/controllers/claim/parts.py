"""What the reconciles of all claims share."""

from __future__ import annotations

import math

import msgspec

from lean_sandbox.controllers.claim.annotations import AnnotationWriter
from lean_sandbox.controllers.common import ObjectEvents, Shared, Undone
from lean_sandbox.controllers.warm import WarmQueue


class Parts(Shared, kw_only=True):
    """What the reconciles of all claims share."""

    # For the requests that a client waits for.
    warm: WarmQueue
    events: ObjectEvents
    annotator: AnnotationWriter
    # When the work began (monotonic): a new leader learns only then which members are ready.
    began_at: float = -math.inf
    undone: Undone = msgspec.field(default_factory=Undone)

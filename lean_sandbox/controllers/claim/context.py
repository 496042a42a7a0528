"""What the reconciles of all claims need."""

from __future__ import annotations

import math

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.claim.annotations import AnnotationWriter
from lean_sandbox.controllers.common import ObjectEvents, ServerTime, Undone, Wakes
from lean_sandbox.controllers.metrics import Metrics
from lean_sandbox.controllers.resolver import TemplateResolver
from lean_sandbox.controllers.warm import WarmQueue
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.watch.resources import Caches

#: How soon a claim is reconciled again that waits for a member of its pool, or for its Pod, to
#: become ready.
SOON_READY_S = 0.5


class ClaimContext(msgspec.Struct, kw_only=True):
    """What the reconciles of all claims need.

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

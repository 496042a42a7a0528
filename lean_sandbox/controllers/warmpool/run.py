"""What the reconciles of all pools share, and the progress of one of them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.common import ObjectEvents, ServerTime, Undone, Wakes
from lean_sandbox.controllers.resolver import TemplateResolver
from lean_sandbox.controllers.warm import WarmQueue
from lean_sandbox.controllers.warmpool.refusals import Refusals
from lean_sandbox.controllers.warmpool.state import PoolState
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.model.warmpool import Staleness
from lean_sandbox.runtime.workers import Requeue
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources import Caches
from lean_sandbox.watch.resources.extensions import PoolEntry

#: How soon work that exceeded the batch, the rate or the time is continued.
NEXT_BATCH_S = 0.05


class PoolContext(msgspec.Struct, kw_only=True, frozen=True):
    """What the reconciles of all pools share."""

    caches: Caches
    clock: Clock
    events: ObjectEvents
    refusals: Refusals
    resolver: TemplateResolver
    server_time: ServerTime
    settings: Settings
    undone: Undone
    uniform: Callable[[], float]
    wakes: Wakes
    warm: WarmQueue
    writer: ObjectWriter


class PoolRun:
    """One reconcile of one pool: what it is for, what has failed, and when to repeat it."""

    def __init__(self, context: PoolContext, entry: PoolEntry, state: PoolState) -> None:
        assert entry.view is not None
        self.context = context
        self.entry = entry
        self.state = state
        #: What the spec asks for.
        self.view = entry.view
        template = Key(entry.key.namespace, entry.view.template)
        self.template = context.resolver.known_template(template)
        #: What says which members fit the template.
        self.staleness: Staleness | None = None
        if self.template is not None:
            self.staleness = context.resolver.staleness(self.template)
        self.sandboxes = context.caches.sandboxes
        own_s = entry.view.readiness_grace_s
        settings = context.settings
        #: How long a member may take to become ready.
        self.grace_s = settings.sandbox_warm_pool_readiness_grace_period if own_s is None else own_s
        self.errors: list[ControlPlaneError] = []
        self.requeue = Requeue()
        #: Whether a request was made since the members were counted: they may have changed.
        self.has_acted = False

    @property
    def now(self) -> float:
        """The monotonic time now."""
        return self.context.clock.monotonic()

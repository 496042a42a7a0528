"""The progress of one reconcile of a pool, shared by all of its parts."""

from __future__ import annotations

from lean_sandbox.controllers.warmpool.context import PoolContext
from lean_sandbox.controllers.warmpool.state import PoolState
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.runtime.workers import Requeue
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import PoolEntry

#: How soon work that exceeded the batch, the rate or the time is continued.
NEXT_BATCH_S = 0.05


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
        own_s = entry.view.readiness_grace_s
        settings = context.settings
        #: How long a member may take to become ready.
        self.grace_s = settings.sandbox_warm_pool_readiness_grace_period if own_s is None else own_s
        self.errors: list[ControlPlaneError] = []
        self.requeue = Requeue()
        #: Whether a request was made since the members were counted: they may have changed.
        self.has_acted = False

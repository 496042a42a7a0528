"""The SandboxWarmPool controller: its queue and what wakes it."""

from __future__ import annotations

import msgspec

from lean_sandbox.controllers.common import Shared
from lean_sandbox.controllers.warm import WarmQueue
from lean_sandbox.controllers.warmpool.reconcile import (
    Launch,
    Parts,
    PoolReconcile,
    PoolState,
)
from lean_sandbox.kube.limits import Lane
from lean_sandbox.model import names
from lean_sandbox.model.warmpool import ReplenishHold, TokenBucket
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import REFILL, Item, WorkQueue
from lean_sandbox.runtime.workers import Result
from lean_sandbox.watch.kind import Delta, Key
from lean_sandbox.watch.resources.extensions import PoolEntry, TemplateEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# Changes of members within this time are one reason to reconcile their pool.
_GATHERING_S = 0.05
# How long pools let claims go first at most.
_LONGEST_WAIT_S = 2.0


class PoolController(Controller[PoolEntry]):
    """Keeps pools full; see :mod:`.reconcile`."""

    def __init__(
        self, shared: Shared, *, claims: WorkQueue[Key], warm: WarmQueue, launch: Launch
    ) -> None:
        caches = shared.caches
        workers = shared.settings.sandbox_warm_pool_concurrent_workers
        super().__init__("sandboxwarmpool", caches.pools, shared.clock, workers=workers)
        self.queue.gate(lambda _pool: claims.is_busy, behind=claims, longest_s=_LONGEST_WAIT_S)
        self._states: dict[Key, PoolState] = {}
        self._parts = Parts(
            **msgspec.structs.asdict(shared),
            writer=shared.writer_in(Lane.BACKGROUND),
            events=shared.events_about(self.cache.kind.resource, "sandboxwarmpool-controller"),
            claims=claims,
            warm=warm,
            launch=launch,
        )
        caches.sandboxes.subscribe(self.on_sandbox)
        caches.pools.subscribe(self.on_pool)
        caches.templates.subscribe(self.on_template)

    async def reconcile(self, item: Item[Key]) -> Result:
        """Bring one pool to what its spec asks for."""
        entry = self.cache.get(item.key)
        if entry is None or entry.is_deleting or entry.view is None:
            self._states.pop(item.key, None)
            return Result()
        state = self._states.get(item.key)
        if state is None or state.uid != entry.uid:
            settings = self._parts.settings
            state = self._states[item.key] = PoolState(
                entry.uid,
                ReplenishHold(settings.sandbox_warm_pool_replenish_delay),
                TokenBucket(settings.sandbox_warm_pool_max_refill_rate),
            )
        return await PoolReconcile(self._parts, entry, entry.view, state).run()

    def is_final(self, key: Key) -> bool:
        """Tell whether a pool is full and says so."""
        entry = self.cache.get(key)
        if entry is None or entry.is_deleting or entry.view is None:
            return True
        status, wanted = entry.status, entry.view.replicas
        return (
            status is not None
            and status.observedGeneration == entry.generation
            and status.replicas == wanted == status.readyReplicas
        )

    def wake(self, pool: Key) -> None:
        """Reconcile a pool soon; many reasons within a moment are one reconcile."""
        if pool in self.cache:
            self.queue.add(pool, priority=REFILL, after_s=_GATHERING_S, reason="member")

    def on_pool(self, delta: Delta[PoolEntry]) -> None:
        """Wake a pool that changed."""
        if delta.is_new:
            self._parts.client.ending.forget(delta.key.namespace)
        self.queue.add(delta.key, priority=REFILL, reason="pool")

    def on_template(self, delta: Delta[TemplateEntry]) -> None:
        """Wake the pools of a template that changed."""
        if not delta.initial:
            self.on_policy_there(delta.key)

    def on_policy_there(self, template: Key) -> None:
        """Wake the pools of a template that has changed or got its NetworkPolicy."""
        for pool in self._parts.resolver.pools_of(template):
            self.queue.add(pool, priority=REFILL, reason="template")

    def on_sandbox(self, delta: Delta[SandboxEntry]) -> None:
        """Wake the pool that a Sandbox belonged to or belongs to, or that it could belong to."""
        if not delta.initial:
            for entry in (delta.old, delta.new):
                if entry is not None:
                    self.wake_pool_of(entry)

    def wake_pool_of(self, entry: SandboxEntry) -> None:
        """Reconcile soon the pool of a Sandbox, or the one that may take in what has no owner."""
        if (owner := entry.owner_key(names.SANDBOX_WARM_POOL_KIND)) is not None:
            self.wake(owner)
        label = (entry.labels or {}).get(names.WARM_POOL_LABEL)
        if entry.owner is None and label:
            for pool in self.cache:
                view, place = pool.view, (entry.key.namespace, label)
                if view is not None and (view.namespace, view.pool_hash) == place:
                    self.wake(pool.key)

"""The SandboxWarmPool controller: its queue and what wakes it."""

from __future__ import annotations

from collections.abc import Callable

from lean_sandbox.clock import Clock
from lean_sandbox.controllers.blueprints import TemplateResolver
from lean_sandbox.controllers.recording import Recorder
from lean_sandbox.controllers.warmpool.act import PoolAct
from lean_sandbox.controllers.warmpool.notes import PoolNotes
from lean_sandbox.controllers.warmpool.orphans import OrphanIndex
from lean_sandbox.controllers.warmpool.reconciler import PoolOptions, PoolReconciler
from lean_sandbox.controllers.warmpool.upkeep import Neighbours, Upkeep
from lean_sandbox.kube.client import Client
from lean_sandbox.model import names
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import REFILL, Item, WorkQueue
from lean_sandbox.runtime.workers import Result
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.kind import Delta, Key
from lean_sandbox.watch.resources.pool import PoolEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry
from lean_sandbox.watch.resources.template import TemplateEntry

# Changes of members within this time are one reason to look at their pool.
_GATHERING_S = 0.05
# How long pools let claims go first at most.
_LONGEST_STAND_BACK_S = 2.0


class PoolController(Controller[PoolEntry]):
    """Keeps pools full; see :mod:`.reconciler` for a pass."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        blueprints: TemplateResolver,
        *,
        clock: Clock,
        uniform: Callable[[], float],
        options: PoolOptions,
        claims: WorkQueue[Key],
        neighbours: Neighbours,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__("sandboxwarmpool", caches.pools, clock, workers=options.workers)
        self.queue.gate(
            lambda _pool: claims.is_busy, behind=claims, longest_s=_LONGEST_STAND_BACK_S
        )
        self._client = client
        self._caches = caches
        self._orphans = OrphanIndex(caches)
        self._act = PoolAct(client, caches, timeout_s=options.request_timeout_s)
        self._reconciler = PoolReconciler(
            caches,
            blueprints,
            self._act,
            client.ending,
            Upkeep(caches, self._act, self._orphans, neighbours),
            PoolNotes(recorder),
            clock=clock,
            uniform=uniform,
            options=options,
            claims_are_waiting=lambda: claims.is_busy,
        )
        caches.sandboxes.subscribe(self.on_sandbox)
        caches.pools.subscribe(self.on_pool)
        caches.templates.subscribe(self.on_template)

    async def reconcile(self, item: Item[Key]) -> Result:
        """Bring one pool to what its spec asks for."""
        return await self._reconciler.reconcile(item.key)

    def is_final(self, key: Key) -> bool:
        """Tell whether a pool is full and says so."""
        entry = self._caches.pools.get(key)
        if entry is None or entry.is_deleting or entry.view is None:
            return True
        status, wanted = entry.status, entry.view.replicas
        return (
            status is not None
            and status.observedGeneration == entry.generation
            and status.replicas == wanted == status.readyReplicas
        )

    # -- what wakes ------------------------------------------------------------------------------

    def wake(self, pool: Key) -> None:
        """Look at a pool soon; many reasons within a moment are one look."""
        if pool in self._caches.pools:
            self.queue.add(pool, priority=REFILL, after_s=_GATHERING_S, reason="member")

    def on_pool(self, notice: Delta[PoolEntry]) -> None:
        """Wake a pool that changed."""
        if notice.is_new:
            self._client.ending.forget(notice.key.namespace)
        self.queue.add(notice.key, priority=REFILL, reason="pool")

    def on_template(self, notice: Delta[TemplateEntry]) -> None:
        """Wake the pools of a template that changed."""
        if not notice.initial:
            self.on_policy_there(notice.key)

    def on_policy_there(self, template: Key) -> None:
        """Wake the pools of a template that has changed or got its NetworkPolicy."""
        for pool in self._caches.pools:
            if (
                pool.key.namespace == template.namespace
                and pool.view is not None
                and pool.view.template == template.name
            ):
                self.queue.add(pool.key, priority=REFILL, reason="template")

    def on_sandbox(self, notice: Delta[SandboxEntry]) -> None:
        """Wake the pool that a Sandbox belonged to or belongs to, or that it could belong to."""
        for entry in (notice.old, notice.new):
            pool = pool_of(entry) if entry is not None else None
            if pool is not None and not notice.initial:
                self.wake(pool)
        if notice.old is not None:
            self._orphans.forget(notice.old)
        if notice.new is not None:
            self._saw(notice.new, wakes=not notice.initial)

    def on_status(self, entry: SandboxEntry) -> None:
        """Follow a status that our own Sandbox controller wrote, which comes as no event."""
        pool = pool_of(entry)
        if pool is not None:
            self.wake(pool)

    def _saw(self, entry: SandboxEntry, *, wakes: bool) -> None:
        label = self._orphans.saw(entry)
        if label is None or not wakes:
            return
        for pool in self._caches.pools:
            if (
                pool.key.namespace == entry.key.namespace
                and pool.view is not None
                and pool.view.pool_hash == label
            ):
                self.wake(pool.key)


def pool_of(entry: SandboxEntry) -> Key | None:
    """Return the pool that controls a Sandbox, by group, kind and name."""
    owner = entry.owner
    if (
        owner is None
        or owner.kind != names.SANDBOX_WARM_POOL_KIND
        or owner.group != names.EXTENSIONS_GROUP
    ):
        return None
    return Key(entry.key.namespace, owner.name)

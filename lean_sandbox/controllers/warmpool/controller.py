"""The SandboxWarmPool controller: what wakes a pool, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lean_sandbox.controllers.common import ObjectEvents, Shared, Undone
from lean_sandbox.controllers.warm import WarmQueue
from lean_sandbox.controllers.warmpool.reconcile import reconcile
from lean_sandbox.controllers.warmpool.refusals import Refusals
from lean_sandbox.controllers.warmpool.run import PoolContext, PoolRun
from lean_sandbox.controllers.warmpool.state import PoolState
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import MOST_SERIES, Exposition
from lean_sandbox.model import names
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.model.warmpool import ReplenishHold
from lean_sandbox.rates import TokenBucket
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import Cause, Item
from lean_sandbox.runtime.states import States
from lean_sandbox.runtime.workers import Result
from lean_sandbox.turns import Rank
from lean_sandbox.watch.kind import Delta, Key
from lean_sandbox.watch.resources.extensions import PoolEntry, TemplateEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How long changes of members are gathered: each reconcile of a pool counts all members. One that is
# gone has to be replaced soon; any other change can wait for a moment.
_GATHERING_S = 0.2
_LOSS_GATHERING_S = 0.05


class PoolController(Controller[PoolEntry]):
    """Keeps pools full.

    ``is_waited_for`` returns whether claims wait for members of a pool.
    """

    def __init__(
        self,
        shared: Shared,
        *,
        warm: WarmQueue,
        is_waited_for: Callable[[Key], bool],
    ) -> None:
        caches = shared.caches
        workers = shared.settings.sandbox_warm_pool_concurrent_workers
        super().__init__("sandboxwarmpool", caches.pools, shared.clock, workers=workers)
        self._is_waited_for = is_waited_for
        self._states: States[PoolState] = States(self._new_state)
        self._by_hash = self.cache.index(_hash_of)
        self._context = PoolContext(
            caches=caches,
            clock=shared.clock,
            events=ObjectEvents(shared, caches.pools.kind.resource, "sandboxwarmpool-controller"),
            refusals=Refusals(self._states, partial(self.wake, reason="another gets on")),
            resolver=shared.resolver,
            server_time=shared.server_time,
            settings=shared.settings,
            undone=Undone(),
            uniform=shared.uniform,
            wakes=shared.wakes,
            warm=warm,
            writer=shared.writer,
        )

    async def reconcile(self, item: Item[Key]) -> Result:
        """Bring one pool to what its spec asks for."""
        if Cause.CHILD_GONE in item.causes and item.key in self.cache:
            # Perhaps the pool is gone too, and the watch has not shown it yet.
            await self._context.writer.get(self.cache, item.key)
        entry = self.cache.get(item.key)
        if entry is None or entry.is_deleting or entry.view is None:
            self._states.pop(item.key, None)
            return Result()
        return await reconcile(PoolRun(self._context, entry, self._states.begin(entry)))

    def _new_state(self, uid: str) -> PoolState:
        settings = self._context.settings
        return PoolState(
            uid,
            ReplenishHold(settings.sandbox_warm_pool_replenish_delay),
            TokenBucket(settings.sandbox_warm_pool_max_refill_rate),
        )

    def collect(self, into: Exposition) -> None:
        """Add the series of this controller, and of the pools that make no progress."""
        super().collect(into)
        stuck = [
            ((key.namespace, key.name, state.reported.name), 1.0)
            for key, state in self._states.items()
            if state.reported is not None
        ]
        into.add(families.POOLS_STUCK, stuck[:MOST_SERIES])

    def is_final(self, entry: PoolEntry) -> bool:
        """Return whether a pool is full, and its status says so."""
        if entry.view is None:
            return True
        status = entry.status
        return (
            status is not None
            and status.observedGeneration == entry.generation
            and status.replicas == entry.view.replicas == status.readyReplicas
        )

    def due_in_s(self, key: Key) -> float | None:
        """Return the seconds until a pool is to go on with what has not failed."""
        state = self._states.get(key)
        return None if state is None else state.due_at - self._context.clock.monotonic()

    def on_member(self, pool: Key, *, is_loss: bool = False) -> None:
        """Reconcile a pool soon; many changes within a moment share one reconcile.

        ``is_loss``: a member is gone or going.
        """
        if pool in self.cache:
            self.wake(
                pool,
                after_s=_LOSS_GATHERING_S if is_loss else _GATHERING_S,
                cause=Cause.CHILD_GONE if is_loss else Cause.EVENT,
                reason="member is gone" if is_loss else "member",
            )

    def rank_of(self, entry: PoolEntry, cause: Cause) -> Rank:  # noqa: ARG002 -- whatever it is
        """Return whether somebody waits for members of a pool."""
        return Rank.CLIENT if self.is_awaited(entry.key) else Rank.SPARE

    def is_awaited(self, pool: Key) -> bool:
        """Return whether somebody waits for members of a pool.

        That is a claim, or the user who changed the pool's spec, until the pool has been full once.
        """
        entry = self.cache.get(pool)
        if entry is None or entry.is_deleting or entry.view is None:
            return False
        state = self._states.of(entry)
        full_at = state.full_at if state is not None else 0
        return full_at != entry.view.generation or self._is_waited_for(pool)

    def on_template(self, delta: Delta[TemplateEntry]) -> None:
        """Wake the pools of a template that changed."""
        if not delta.initial:
            self.on_policy_there(delta.key)

    def on_policy_there(self, template: Key) -> None:
        """Wake the pools of a template that has changed or got its NetworkPolicy."""
        for pool in self._context.resolver.pools_of(template):
            self.wake(pool, reason="template")

    def on_sandbox(self, delta: Delta[SandboxEntry]) -> None:
        """Wake the pool that a Sandbox belonged to or belongs to, or that it could belong to."""
        if delta.initial:
            return
        old = delta.old
        new = delta.new
        # A member that the pool has deleted itself is marked as being deleted already.
        was_there = old is not None and not old.is_deleting
        is_loss = was_there and (new is None or new.is_deleting)
        for entry in (old, new):
            if entry is not None:
                self._wake_pool_of(entry, is_loss=is_loss)

    def on_status(self, entry: SandboxEntry, _new: SandboxStatus) -> None:
        """Wake the pool of a Sandbox whose status was written."""
        self._wake_pool_of(entry)

    def _wake_pool_of(self, entry: SandboxEntry, *, is_loss: bool = False) -> None:
        """Wake the pool of a Sandbox, or the one that may adopt it if it has no owner."""
        if (owner := entry.owner_key(names.SANDBOX_WARM_POOL_KIND)) is not None:
            self.on_member(owner, is_loss=is_loss)
        label = (entry.labels or {}).get(names.WARM_POOL_LABEL)
        if entry.owner is None and label:
            for pool in self._by_hash.find(entry.key.namespace, label):
                self.on_member(pool)


def _hash_of(pool: PoolEntry) -> str | None:
    return pool.view.pool_hash if pool.view is not None else None

"""The SandboxWarmPool controller: what wakes a pool, and one reconcile of it.

A reconcile creates missing members, deletes surplus, stale and stuck ones, adopts orphans, and
writes the counts: at most once a second, and while a pool is being filled only after a window.

Responses are applied to the cache: a created member is there before the next reconcile counts, and
a deleted one still takes its place in the pool. A delete is guarded by uid and version: a Sandbox
that a claim took a moment ago has another version, so the claim keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from typing import Any

import anyio
import msgspec

from lean_sandbox.controllers.common import ObjectEvents, Shared, Undone, reference_to
from lean_sandbox.controllers.warm import WarmQueue
from lean_sandbox.controllers.warmpool.members import (
    PoolMembers,
    find_orphans,
    take_census,
    victims,
)
from lean_sandbox.kube.client import ENDING_S
from lean_sandbox.kube.errors import Conflict, ControlPlaneError
from lean_sandbox.kube.limits import Lane
from lean_sandbox.kube.resources import SANDBOXTEMPLATES, ObjectReference
from lean_sandbox.model import names
from lean_sandbox.model.claim_status import ClaimFault
from lean_sandbox.model.conditions import whole_status
from lean_sandbox.model.meta import with_controller_reference
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.model.times import format_duration
from lean_sandbox.model.warmpool import (
    PoolView,
    ReplenishHold,
    SandboxWarmPoolStatus,
    TokenBucket,
    Verdict,
    build_member,
    slow_start_groups,
)
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import BESIDE_WORK_S, REFILL, Cause, Item, WorkQueue
from lean_sandbox.runtime.workers import ReconcileError, Result
from lean_sandbox.watch.index import Index
from lean_sandbox.watch.kind import Delta, Key, key_of
from lean_sandbox.watch.resources.extensions import PoolEntry, TemplateEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How soon work that exceeded the batch or the rate is continued.
_NEXT_BATCH_S = 0.05
# How many members are acted on at a time.
_AT_ONCE = 8
# A refused write met a version that the watch has not shown yet. It will within this time.
_LOOK_AGAIN_S = 1.0
# How long the NetworkPolicy of a new template may take before its pools say that they wait.
_POLICY_UNDER_WAY_S = 5.0
# The counts are written at most this often.
_STATUS_INTERVAL_S = 1.0
# The share by which the check of the earliest grace may be delayed, to spread the pools.
_GRACE_JITTER = 0.5
# How often a pool without its template is reconciled, apart from events.
_MISSING_TEMPLATE_REQUEUE_S = 60.0
# How long changes of members are gathered: each reconcile of a pool counts all members. One that is
# gone has to be replaced soon; any other change can wait for a moment.
_GATHERING_S = 0.2
_LOSS_GATHERING_S = 0.05


class PoolState(msgspec.Struct):
    """What is remembered of one pool, by uid: a successor of the same name starts anew."""

    uid: str
    hold: ReplenishHold
    bucket: TokenBucket
    status_at: float = -math.inf
    differs_since: float | None = None
    # Why it makes no progress, as the last Event said; empty if it does.
    stuck_for: str = ""
    # The last generation at which the pool was full, and since when its refill waits for claims.
    full_at: int = 0
    put_off_since: float | None = None
    # Since when the pool has waited for the NetworkPolicy of its template.
    unprotected_since: float | None = None


class PoolController(Controller[PoolEntry]):
    """Keeps pools full; ``launch`` has the Sandbox controller reconcile a new member."""

    def __init__(
        self,
        shared: Shared,
        *,
        claims: WorkQueue[Key],
        warm: WarmQueue,
        precedence_s: Callable[[Key], float],
        launch: Callable[[Key, Sandbox | None], None],
    ) -> None:
        caches = shared.caches
        workers = shared.settings.sandbox_warm_pool_concurrent_workers
        super().__init__("sandboxwarmpool", caches.pools, shared.clock, workers=workers)
        self.queue.gate(lambda pool: min(precedence_s(pool), BESIDE_WORK_S), behind=claims)
        self._states: dict[Key, PoolState] = {}
        self._by_hash: Index[PoolEntry] = Index(_hash_of)
        self.cache.on_change.append(self._by_hash.follow)
        self.shared = shared
        self.writer = shared.writer_in(Lane.BACKGROUND)
        self.events = ObjectEvents(shared, caches.pools.kind.resource, "sandboxwarmpool-controller")
        self.undone = Undone()
        self.precedence_s = precedence_s
        self.warm = warm
        self.launch = launch
        caches.sandboxes.handlers.append(self.on_sandbox)
        caches.pools.handlers.append(self.on_pool)
        caches.templates.handlers.append(self.on_template)

    async def reconcile(self, item: Item[Key]) -> Result:
        """Bring one pool to what its spec asks for."""
        if Cause.CHILD_GONE in item.causes and item.key in self.cache:
            # Perhaps the pool is gone too, and the watch has not shown it yet.
            await self.writer.get(self.cache, item.key)
        entry = self.cache.get(item.key)
        if entry is None or entry.is_deleting or entry.view is None:
            self._states.pop(item.key, None)
            return Result()
        state = self._states.get(item.key)
        if state is None or state.uid != entry.uid:
            settings = self.shared.settings
            state = self._states[item.key] = PoolState(
                entry.uid,
                ReplenishHold(settings.sandbox_warm_pool_replenish_delay),
                TokenBucket(settings.sandbox_warm_pool_max_refill_rate),
            )
        return await PoolReconcile(self, entry, entry.view, state).run()

    def is_final(self, entry: PoolEntry) -> bool:
        """Return whether a pool is full, and its status says so."""
        if entry.view is None:
            return True
        status, wanted = entry.status, entry.view.replicas
        return (
            status is not None
            and status.observedGeneration == entry.generation
            and status.replicas == wanted == status.readyReplicas
        )

    def wake(self, pool: Key, *, is_loss: bool = False) -> None:
        """Reconcile a pool soon; many wake-ups within a moment share one reconcile.

        ``is_loss``: a member is gone or going.
        """
        if pool in self.cache:
            self.queue.add(
                pool,
                priority=REFILL,
                after_s=_LOSS_GATHERING_S if is_loss else _GATHERING_S,
                cause=Cause.CHILD_GONE if is_loss else Cause.EVENT,
                reason="member is gone" if is_loss else "member",
            )

    def replace_refused(self, sandbox: Key, uid: str) -> None:
        """Wake the pool of a member that no claim can take over."""
        entry = self.shared.caches.sandboxes.get(sandbox)
        if entry is not None and entry.uid == uid:
            self.wake_pool_of(entry)

    def on_pool(self, delta: Delta[PoolEntry]) -> None:
        """Wake a pool that changed."""
        self.queue.add(delta.key, priority=REFILL, reason="pool")

    def on_template(self, delta: Delta[TemplateEntry]) -> None:
        """Wake the pools of a template that changed."""
        if not delta.initial:
            self.on_policy_there(delta.key)

    def on_policy_there(self, template: Key) -> None:
        """Wake the pools of a template that has changed or got its NetworkPolicy."""
        for pool in self.shared.resolver.pools_of(template):
            self.queue.add(pool, priority=REFILL, reason="template")

    def on_sandbox(self, delta: Delta[SandboxEntry]) -> None:
        """Wake the pool that a Sandbox belonged to or belongs to, or that it could belong to."""
        if delta.initial:
            return
        old, new = delta.old, delta.new
        # A member that the pool has deleted itself is marked as being deleted already.
        was_there = old is not None and not old.is_deleting
        is_loss = was_there and (new is None or new.is_deleting)
        for entry in (old, new):
            if entry is not None:
                self.wake_pool_of(entry, is_loss=is_loss)

    def wake_pool_of(self, entry: SandboxEntry, *, is_loss: bool = False) -> None:
        """Wake the pool of a Sandbox, or the one that may adopt it if it has no owner."""
        if (owner := entry.owner_key(names.SANDBOX_WARM_POOL_KIND)) is not None:
            self.wake(owner, is_loss=is_loss)
        label = (entry.labels or {}).get(names.WARM_POOL_LABEL)
        if entry.owner is None and label:
            for pool in self._by_hash.find(entry.key.namespace, label):
                self.wake(pool)


def _hash_of(pool: PoolEntry) -> str | None:
    return pool.view.pool_hash if pool.view is not None else None


class PoolReconcile:
    """One reconcile of one pool: the pool, its template, and the outcome so far."""

    def __init__(
        self, pools: PoolController, entry: PoolEntry, view: PoolView, state: PoolState
    ) -> None:
        shared = self._shared = pools.shared
        self._pools = pools
        self._sandboxes = shared.caches.sandboxes
        self._writer = pools.writer
        self._resolver = shared.resolver
        self._settings = shared.settings
        self._entry = entry
        self._view = view
        self._state = state
        self._template = shared.resolver.known_template(Key(view.namespace, view.template))
        self._errors: list[ControlPlaneError] = []
        # Seconds until the pool has to be reconciled again; the shortest counts.
        self._requeues: list[float] = []
        # Whether a request was made since the members were counted: they may have changed.
        self._has_acted = False

    async def run(self) -> Result:
        """Bring the pool to its spec; raises ReconcileError when that has to be retried."""
        members = await self._put_in_order()
        await self._refill(members)
        await self._shrink(members)
        members = self._recounted(members)
        self._signal(members)
        if members.looks_s:
            spread = 1 + _GRACE_JITTER * self._shared.uniform()
            self._requeues.append(min(members.looks_s) * spread)
        await self._report(members)
        errors = self._errors
        if not all(error.namespace_terminating for error in errors):
            raise ReconcileError("; ".join(map(str, errors)), *errors)
        if errors:
            return Result(requeue_after_s=ENDING_S)
        return Result(requeue_after_s=min((s for s in self._requeues if s > 0), default=None))

    # -- who belongs to the pool -----------------------------------------------------------------

    def _recounted(self, members: PoolMembers) -> PoolMembers:
        return self._count() if self._has_acted else members

    def _count(self) -> PoolMembers:
        self._has_acted = False
        return take_census(
            self._sandboxes,
            self._view,
            now_s=self._shared.server_time.now_s(),
            readiness_grace_s=self._grace_s,
        )

    @property
    def _grace_s(self) -> float:
        own_s = self._view.readiness_grace_s
        return self._settings.sandbox_warm_pool_readiness_grace_period if own_s is None else own_s

    async def _put_in_order(self) -> PoolMembers:
        """Adopt orphans, delete stale and stuck members, and count the rest."""
        await self._for_each(find_orphans(self._sandboxes, self._view), self._take_in)
        members = self._count()
        if self._template is not None and self._view.is_recreate:
            await self._for_each(members.active, partial(self._drop_if_stale, is_orphan=False))
            members = self._recounted(members)
            for member in members.active:
                # A claim may have dropped it as stale, and the template been changed back since.
                self._pools.warm.offer(member)
        # If the patch fails, it is a member all the same.
        await self._for_each(members.unlabelled, self._label)
        await self._for_each(members.stuck, partial(self._delete, why="not ready in time"))
        return self._recounted(members)

    async def _for_each(
        self, members: list[SandboxEntry], act: Callable[[SandboxEntry], Awaitable[object]]
    ) -> None:
        """Act on each of some Sandboxes: first on one, then on a few at a time.

        What the first shows may hold for all that are made alike. One after the other, a rollout of
        thousands would keep other pools waiting.
        """
        waiting = iter(members)

        async def work(most: int | None = None) -> None:
            for member in islice(waiting, most):
                await self._attempt(act, member)

        await work(1)
        if len(members) > 1:
            async with anyio.create_task_group() as group:
                for _ in range(min(_AT_ONCE, len(members) - 1)):
                    group.start_soon(work)

    async def _attempt(self, act: Callable[..., Awaitable[object]], *arguments: Any) -> None:
        """Act on one Sandbox; an error is collected and does not stop the others."""
        try:
            await act(*arguments)
        except ControlPlaneError as error:
            self._errors.append(error)

    async def _in_groups(
        self,
        total: int,
        act: Callable[[], Awaitable[None]],
        *,
        is_put_off: Callable[[], bool] = lambda: False,
    ) -> tuple[int, int]:
        """Act ``total`` times, in groups; return how many were tried, and how many succeeded.

        The groups grow, and end with one that has an error or after which the rest is put off.
        """
        tried, failed = 0, len(self._errors)
        for size in slow_start_groups(total):
            async with anyio.create_task_group() as group:
                for _ in range(size):
                    group.start_soon(self._attempt, act)
            tried += size
            if len(self._errors) > failed or is_put_off():
                break
        return tried, tried - (len(self._errors) - failed)

    async def _take_in(self, orphan: SandboxEntry) -> None:
        """Adopt an orphan that fits the template, delete it otherwise.

        With the template missing all are adopted. One GET and one PATCH, or one DELETE (after a GET
        if the labels do not decide).
        """
        whole = await self._drop_if_stale(orphan, is_orphan=True)
        if whole is None:
            return
        meta = whole.metadata
        if meta.deletion_timestamp or meta.controller is not None:
            # The watch is late; its event leads to another reconcile.
            return
        owners = with_controller_reference(meta.owners, self._view.reference)
        patch = {
            "resourceVersion": meta.resource_version,
            "ownerReferences": owners,
            "labels": {names.LAUNCH_TYPE_LABEL: names.LAUNCH_TYPE_WARM},
        }
        undone = self._pools.undone
        if undone.is_in_vain(orphan.uid, orphan.generation):
            return
        made = await self._patch(orphan, patch)
        if made.owner is None:
            undone.note(made.uid, made.generation)
        self._pools.launch(orphan.key, None)

    async def _drop_if_stale(self, member: SandboxEntry, *, is_orphan: bool) -> Sandbox | None:
        """Delete a Sandbox that does not fit the template; return one that does, if it was fetched.

        At most one DELETE, and one GET if the labels do not decide.
        """
        staleness = self._resolver.staleness(self._template) if self._template else None
        verdict = Verdict.UNDECIDED
        if staleness is not None:
            verdict = staleness.by_labels(member.metadata, is_orphan=is_orphan)
        whole: Sandbox | None = None
        if verdict is Verdict.UNDECIDED:
            self._has_acted = True
            whole = await self._writer.peek(self._sandboxes, member.key)
            if whole is None or whole.metadata.uid != member.uid:
                return None
            if staleness is not None:
                verdict = staleness.by_spec(whole.metadata, whole.spec, is_orphan=is_orphan)
        if verdict is Verdict.STALE:
            await self._delete(member, "stale")
            return None
        return whole

    async def _label(self, member: SandboxEntry) -> None:
        undone, label = self._pools.undone, names.LAUNCH_TYPE_LABEL
        if undone.is_in_vain(member.uid, member.labels):
            return
        labels = {label: names.LAUNCH_TYPE_WARM}
        version = await self._writer.guard(self._sandboxes, member)
        made = await self._patch(member, {"resourceVersion": version, "labels": labels})
        if (made.labels or {}).get(label) != names.LAUNCH_TYPE_WARM:
            undone.note(made.uid, made.labels)

    async def _patch(self, member: SandboxEntry, metadata: dict[str, Any]) -> SandboxEntry:
        self._has_acted = True
        written = await self._writer.patch(self._sandboxes, member, {"metadata": metadata})
        return written.entry

    async def _delete(self, member: SandboxEntry, why: str) -> None:
        """Delete a Sandbox unless it changed meanwhile; until it is gone, claims cannot take it."""
        self._has_acted = True
        self._pools.warm.forget(member)
        try:
            await self._writer.delete(self._sandboxes, member, is_guarded=True)
        except Conflict:
            self._requeues.append(_LOOK_AGAIN_S)
        except ControlPlaneError as error:
            self._errors.append(error)
        else:
            # No event of a later version can say otherwise.
            member.is_deleting = True
            self._pools.events.log(
                self._entry, "Normal", "MemberDeleted", sandbox=member.key.name, why=why
            )
            return
        if (held := self._sandboxes.latest(member)) is not None:
            self._pools.warm.offer(held)

    async def _shrink(self, members: PoolMembers) -> None:
        surplus = len(members.active) - self._view.replicas
        if surplus <= 0:
            return
        batch = min(surplus, self._settings.sandbox_warm_pool_max_batch_size)
        chosen = iter(victims(members.active, batch))
        tried, _ = await self._in_groups(batch, lambda: self._delete(next(chosen), "surplus"))
        if surplus > tried:
            self._requeues.append(_NEXT_BATCH_S)

    # -- what is missing -------------------------------------------------------------------------

    async def _refill(self, members: PoolMembers) -> None:
        view, state, template = self._view, self._state, self._template
        now = self._shared.clock.monotonic()
        hold_s = state.hold.observe(len(members.active), view.replicas, now)
        most = self._settings.sandbox_warm_pool_max_batch_size
        wanted = min(view.replicas - members.total, most)
        if template is None or self._resolver.unprotected(template) is not None:
            return
        if hold_s > 0:
            self._requeues.append(hold_s)
            return
        if wanted <= 0:
            state.full_at, state.put_off_since = view.generation, None
            return
        if self._is_put_off():
            self._requeues.append(BESIDE_WORK_S)
            return
        granted, wait_s = state.bucket.take(wanted, now)
        if granted == 0:
            self._requeues.append(wait_s)
            return
        eviction = self._settings.enable_warm_pool_eviction
        body = msgspec.json.encode(build_member(view, template, eviction=eviction))
        tried, created = await self._in_groups(
            granted, lambda: self._create(body), is_put_off=self._is_put_off
        )
        state.bucket.give_back(granted - tried)
        state.hold.created(created)
        if view.replicas > members.total + created:
            self._requeues.append(_NEXT_BATCH_S)

    def _is_put_off(self) -> bool:
        """Return whether the refill of a pool that was full waits for a crowd of claims."""
        state, now = self._state, self._shared.clock.monotonic()
        longest_s = self._pools.precedence_s(self._entry.key)
        if longest_s <= BESIDE_WORK_S or state.full_at != self._view.generation:
            return False
        if state.put_off_since is None:
            state.put_off_since = now
        return now < state.put_off_since + longest_s

    async def _create(self, body: bytes) -> None:
        self._has_acted = True
        written = await self._writer.create(
            self._sandboxes, self._view.namespace, body, owner=self._view.uid
        )
        meta = written.item.metadata
        if meta.creation_timestamp:
            self._shared.server_time.made_now(meta.creation_timestamp)
        self._pools.launch(key_of(meta.namespace, meta.name), written.item)

    # -- what is reported ------------------------------------------------------------------------

    def _signal(self, members: PoolMembers) -> None:
        """Emit an Event when the pool stops or resumes progress, or another reason stops it.

        The pool is requeued while it makes none.
        """
        view, state = self._view, self._state
        note = cause = ""
        related: ObjectReference | None = None
        if self._template is None and view.replicas > 0:
            template = Key(view.namespace, view.template)
            fault = self._resolver.template_fault(template)
            if fault and (held := self._shared.caches.templates.get(template)) is not None:
                # Otherwise it would be a repetition of the Event that the template is missing.
                related = reference_to(held, SANDBOXTEMPLATES)
            note = cause = fault or f'SandboxTemplate not found: "{view.template}"'
            self._requeues.append(_MISSING_TEMPLATE_REQUEUE_S)
        elif policy_note := self._policy_note(members):
            note = cause = policy_note
        elif members.held:
            cause = "unschedulable"
            note = (
                f"{members.held}/{view.replicas} sandboxes are unschedulable past the "
                f"{format_duration(self._grace_s)} readiness grace period; holding them instead of "
                "replacing (replacements would be equally unschedulable)"
            )
            self._requeues.append(self._settings.sandbox_warm_pool_unschedulable_recheck_interval)
        emit = self._pools.events.emit
        if note and cause != state.stuck_for:
            emit(self._entry, "Warning", "WarmPoolNotProgressing", "Reconciling", note, related)
        elif not note and state.stuck_for:
            text = "Warm pool is progressing again"
            emit(self._entry, "Normal", "WarmPoolProgressing", "Reconciling", text)
        state.stuck_for = cause

    def _policy_note(self, members: PoolMembers) -> str:
        """Return why a NetworkPolicy prevents new members, "" if none does or it may come soon."""
        state, template = self._state, self._template
        is_short = members.total < self._view.replicas
        lack = self._resolver.unprotected(template) if template is not None and is_short else None
        if lack is None:
            state.unprotected_since = None
            return ""
        now = self._shared.clock.monotonic()
        if state.unprotected_since is None:
            state.unprotected_since = now
        left_s = state.unprotected_since + _POLICY_UNDER_WAY_S - now
        if lack.fault is ClaimFault.POLICY_IMPOSSIBLE or left_s <= 0:
            return lack.text
        self._requeues.append(left_s)
        return ""

    async def _report(self, members: PoolMembers) -> None:
        """Write the counts if they changed, or requeue if it is too early for that.

        A pool that is being refilled differs from its status for a moment only: when it is full
        again within the window, nothing has to be written at all. A new pool's status is written at
        once: whoever scales it or waits for it needs its selector.
        """
        if members.unknown:
            return
        entry, state, now = self._entry, self._state, self._shared.clock.monotonic()
        # None after a write whose response was lost.
        old = entry.status
        new = SandboxWarmPoolStatus(
            replicas=len(members.active),
            readyReplicas=members.ready,
            selector=self._view.selector,
            observedGeneration=self._view.generation,
        )
        if new == old:
            state.differs_since = None
            return
        is_full = new.replicas == new.readyReplicas == self._view.replicas
        is_new = old is not None and not old.selector
        is_settled = is_full or is_new or bool(self._errors)
        window_s = 0.0 if is_settled else self._settings.sandbox_status_window
        if state.differs_since is None:
            state.differs_since = now
        due = max(state.status_at + _STATUS_INTERVAL_S, state.differs_since + window_s)
        if due > now:
            self._requeues.append(due - now)
            return
        try:
            await self._writer.patch(
                self._pools.cache,
                entry,
                {"status": whole_status(new)},
                status=new,
                generation=entry.generation,
            )
        except ControlPlaneError as error:
            # The backoff of the pool says when to try again.
            self._errors.append(error)
        else:
            state.status_at, state.differs_since = now, None

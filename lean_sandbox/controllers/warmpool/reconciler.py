"""One pass over one pool (pools, section 5).

Creates what is missing, deletes what is too much, stale or stuck, takes in orphans, and writes the
counts: at most once a second, and while a pool is being filled only after a window. Claims go
first: while any wait, refilling stands back, but never longer than a bound. Own creations and
deletions are learnt from their answers (see :mod:`.state`), where the reference controller expects
events and waits for them.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.controllers.blueprints import TemplateResolver
from lean_sandbox.controllers.warmpool.act import PoolAct
from lean_sandbox.controllers.warmpool.members import PoolMembers, take_census
from lean_sandbox.controllers.warmpool.notes import PoolNotes
from lean_sandbox.controllers.warmpool.state import PoolState, Visit
from lean_sandbox.controllers.warmpool.upkeep import Upkeep
from lean_sandbox.kube.errors import ControlPlaneError, Forbidden
from lean_sandbox.kube.terminating import ENDING_S, TerminatingNamespaces
from lean_sandbox.model.template import TemplateView
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.model.warmpool import (
    EMPTY_POOL_STATUS,
    MISSING_TEMPLATE_REQUEUE_S,
    PoolView,
    ReplenishHold,
    SandboxWarmPoolStatus,
    TokenBucket,
    build_member,
    creation_deficit,
    jittered_requeue_s,
    next_pool_status,
    pool_status_patch,
    slow_start_groups,
    template_missing_note,
    unschedulable_note,
    victims,
)
from lean_sandbox.runtime.failures import ReconcileError
from lean_sandbox.runtime.workers import Result
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.kind import Key, key_of
from lean_sandbox.watch.resources.pool import PoolEntry

# What a pass could not do within its batch or rate is tried again this soon.
_NEXT_BATCH_S = 0.05
# How long the NetworkPolicy of a new template may take before its pools say that they wait.
_POLICY_UNDER_WAY_S = 5.0
# Dates of objects are whole seconds, and an answer takes a while.
_CLOCKS_AGREE_S = 5.0


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller is told from outside; the settings describe each field."""

    workers: int = 1
    max_batch_size: int = 300
    replenish_delay_s: float = 0.0
    max_refill_rate: float = 0.0
    readiness_grace_s: float = 300.0
    unschedulable_recheck_s: float = 60.0
    eviction: bool = True
    status_interval_s: float = 1.0
    status_window_s: float = 2.0
    request_timeout_s: float = 15.0


class PoolReconciler:
    """Keeps pools as their specs say."""

    def __init__(
        self,
        caches: Caches,
        blueprints: TemplateResolver,
        act: PoolAct,
        terminating: TerminatingNamespaces,
        upkeep: Upkeep,
        notes: PoolNotes,
        *,
        clock: Clock,
        uniform: Callable[[], float],
        options: PoolOptions,
        claims_are_waiting: Callable[[], bool],
    ) -> None:
        self._pools = caches.pools
        self._caches = caches
        self._blueprints = blueprints
        self._act = act
        self._terminating = terminating
        self._upkeep = upkeep
        self._notes = notes
        self._clock = clock
        self._uniform = uniform
        self._options = options
        self._claims_are_waiting = claims_are_waiting
        self._states: dict[Key, PoolState] = {}
        # How far our clock is ahead of the server's, which dates the members.
        self._ahead_s = 0.0

    async def reconcile(self, key: Key) -> Result:
        """Make one pass; raises :class:`ReconcileError` when it has to be repeated."""
        entry = self._pools.get(key)
        if entry is None or entry.is_deleting or entry.view is None:
            self._states.pop(key, None)
            return Result()
        view = entry.view
        template = self._blueprints.known_template(Key(key.namespace, view.template))
        visit = Visit(view, template, self._state_of(entry))
        census = await self._put_in_order(visit)
        await self._refill(visit, census)
        await self._shrink(visit, census)
        census = self._recount(visit, census)
        self._signal(visit, entry, census)
        if census.grace_s is not None:
            visit.requeues.append(jittered_requeue_s(census.grace_s, self._uniform()))
        await self._report(visit, entry, census)
        return self._outcome(visit)

    def _state_of(self, entry: PoolEntry) -> PoolState:
        state = self._states.get(entry.key)
        if state is None or state.uid != entry.uid:
            state = self._states[entry.key] = PoolState(
                entry.uid,
                ReplenishHold(self._options.replenish_delay_s),
                TokenBucket(self._options.max_refill_rate),
            )
        return state

    @staticmethod
    def _outcome(visit: Visit) -> Result:
        errors = visit.errors
        if errors and not all(
            isinstance(error, Forbidden) and error.namespace_terminating for error in errors
        ):
            raise ReconcileError("; ".join(str(error) for error in errors), *errors)
        if errors:
            return Result(requeue_after_s=ENDING_S)
        due = [seconds for seconds in visit.requeues if seconds > 0]
        return Result(requeue_after_s=min(due) if due else None)

    def _recount(self, visit: Visit, census: PoolMembers) -> PoolMembers:
        """Return the census as it is now; counting anew is for a pass that made requests."""
        return self._census(visit) if visit.has_acted else census

    def _census(self, visit: Visit) -> PoolMembers:
        visit.has_acted = False
        return take_census(
            self._caches,
            visit.view,
            visit.state.going(self._caches.sandboxes),
            now_s=self._clock.now().timestamp() - self._ahead_s,
            readiness_grace_s=self._grace_s(visit.view),
        )

    def _grace_s(self, view: PoolView) -> float:
        """Return how long a member may be unready: as the pool says, else as the settings do."""
        own_s = view.readiness_grace_s
        return self._options.readiness_grace_s if own_s is None else own_s

    # -- what has to go --------------------------------------------------------------------------

    async def _put_in_order(self, visit: Visit) -> PoolMembers:
        """Settle who belongs to the pool, delete who is stale or stuck, and count who is left."""
        await self._upkeep.take_in_orphans(visit)
        census = self._census(visit)
        if visit.template is not None and visit.view.is_recreate:
            await self._upkeep.drop_stale(visit, visit.template, census)
            census = self._recount(visit, census)
        await self._upkeep.complete_labels(visit, census)
        for stuck in census.stuck:
            await self._upkeep.delete(visit, stuck)
        return self._recount(visit, census)

    async def _shrink(self, visit: Visit, census: PoolMembers) -> None:
        """Delete the members that are too many, those of least use first."""
        surplus = min(len(census.active) - visit.view.replicas, self._options.max_batch_size)
        if surplus <= 0:
            return
        by_name = {entry.key.name: entry for entry in census.active}
        chosen = iter(victims(census.members(), surplus))
        for size in slow_start_groups(surplus):
            failed = len(visit.errors)
            async with anyio.create_task_group() as group:
                for _ in range(size):
                    victim = by_name[next(chosen).name]
                    group.start_soon(self._upkeep.delete, visit, victim)
            if len(visit.errors) > failed:
                return
        if len(census.active) - surplus > visit.view.replicas:
            visit.requeues.append(_NEXT_BATCH_S)

    # -- what is missing -------------------------------------------------------------------------

    async def _refill(self, visit: Visit, census: PoolMembers) -> None:
        """Create members, as many as are missing and may be created now."""
        view, state = visit.view, visit.state
        now = self._clock.monotonic()
        hold_s = state.hold.observe(len(census.active), view.replicas, now)
        wanted = creation_deficit(view.replicas, census.total, self._options.max_batch_size)
        if visit.template is None or self._blueprints.unprotected(visit.template) is not None:
            return
        if hold_s > 0:
            visit.requeues.append(hold_s)
            return
        if wanted <= 0:
            return
        if (refused_s := self._terminating.left_s(view.namespace)) > 0:
            # Members that go with the namespace wake the pool, each once.
            visit.requeues.append(refused_s)
            return
        grant = state.bucket.take(wanted, now)
        if grant.granted == 0:
            visit.requeues.append(grant.wait_s)
            return
        created = await self._create_all(visit, visit.template, grant.granted)
        state.hold.created(created)
        if view.replicas > census.total + created:
            visit.requeues.append(_NEXT_BATCH_S)

    async def _create_all(self, visit: Visit, template: TemplateView, granted: int) -> int:
        """Create members in growing groups until one has an error; return how many were made."""
        body = msgspec.json.encode(
            build_member(visit.view, template, eviction=self._options.eviction)
        )
        created = 0
        for size in slow_start_groups(granted):
            failed = len(visit.errors)
            async with anyio.create_task_group() as group:
                for _ in range(size):
                    group.start_soon(self._create, visit, body)
            created += size - (len(visit.errors) - failed)
            if len(visit.errors) > failed:
                break
            if self._claims_are_waiting() and created < granted:
                # The rest of the batch waits for its turn like any other refill.
                visit.state.bucket.give_back(granted - created)
                break
        return created

    async def _create(self, visit: Visit, body: bytes) -> None:
        visit.has_acted = True
        try:
            made = await self._act.create(visit.view.namespace, body)
        except ControlPlaneError as error:
            visit.errors.append(error)
            return
        meta = made.metadata
        self._compare_clocks(meta.creationTimestamp)
        self._upkeep.neighbours.launch(key_of(meta.namespace, meta.name), made)

    def _compare_clocks(self, created_at: str | None) -> None:
        """Take a member that was made just now for as young as it is, whatever our clock says.

        Else a clock that is ahead by more than the grace, as on a laptop beside a virtual machine
        that slept, has each new member replaced at once.
        """
        if created_at:
            ahead_s = self._clock.now().timestamp() - parse_rfc3339(created_at).timestamp()
            self._ahead_s = ahead_s if abs(ahead_s) > _CLOCKS_AGREE_S else 0.0

    # -- what is told ----------------------------------------------------------------------------

    def _signal(self, visit: Visit, entry: PoolEntry, census: PoolMembers) -> None:
        """Say when the pool stops and starts to make progress, and come back while it does not."""
        view, state = visit.view, visit.state
        note = ""
        requeue_s = 0.0
        if visit.template is None and view.replicas > 0:
            fault = self._blueprints.template_fault(Key(view.namespace, view.template))
            note = fault or template_missing_note(view.template)
            requeue_s = MISSING_TEMPLATE_REQUEUE_S
        elif policy_note := self._policy_note(visit, census):
            note = policy_note
        elif census.held:
            note = unschedulable_note(census.held, view.replicas, self._grace_s(view))
            requeue_s = self._options.unschedulable_recheck_s
        if note:
            visit.requeues.append(requeue_s)
        if note and not state.is_stuck:
            self._notes.not_progressing(entry, note)
        elif not note and state.is_stuck:
            self._notes.progressing(entry)
        state.is_stuck = bool(note)

    def _policy_note(self, visit: Visit, census: PoolMembers) -> str:
        """Return why members that are missing are not made: for want of a NetworkPolicy.

        One that is under way is nothing to tell of.
        """
        state, template = visit.state, visit.template
        is_short = census.total < visit.view.replicas
        lack = self._blueprints.unprotected(template) if template is not None and is_short else None
        if lack is None:
            state.unprotected_since = None
            return ""
        now = self._clock.monotonic()
        if state.unprotected_since is None:
            state.unprotected_since = now
        left_s = state.unprotected_since + _POLICY_UNDER_WAY_S - now
        if lack.is_final or left_s <= 0:
            return lack.text
        visit.requeues.append(left_s)
        return ""

    async def _report(self, visit: Visit, entry: PoolEntry, census: PoolMembers) -> None:
        """Write the counts if they changed, or come back when it is too early for that."""
        if census.unknown:
            return
        new = next_pool_status(visit.view, len(census.active), census.ready)
        patch = pool_status_patch(entry.status or EMPTY_POOL_STATUS, new)
        state, now = visit.state, self._clock.monotonic()
        if patch is None:
            state.differs_since = None
            return
        is_new = not (entry.status or EMPTY_POOL_STATUS).selector
        is_settled = is_new or bool(visit.errors) or _is_settled(visit.view, new)
        early_s = self._too_early_s(state, now, is_settled=is_settled)
        if early_s > 0:
            visit.requeues.append(early_s)
            return
        state.status_at, state.differs_since = now, None
        try:
            await self._act.patch_status(entry, patch, new)
        except ControlPlaneError as error:
            visit.errors.append(error)

    def _too_early_s(self, state: PoolState, now: float, *, is_settled: bool) -> float:
        """Return for how long the counts are not to be written yet.

        A pool that is being refilled differs from what it told for a moment only: when it is full
        again within the window, nothing has to be told at all. A new pool is told at once: who
        scales it or waits for it reads the selector.
        """
        due = now if state.status_at is None else state.status_at + self._options.status_interval_s
        if state.differs_since is None:
            state.differs_since = now
        if not is_settled:
            due = max(due, state.differs_since + self._options.status_window_s)
        return due - now


def _is_settled(view: PoolView, status: SandboxWarmPoolStatus) -> bool:
    return status.replicas == status.readyReplicas == view.replicas

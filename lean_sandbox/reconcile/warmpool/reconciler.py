"""One pass over one pool (pools, section 5).

Creates what is missing, deletes what is too much, stale or stuck, and writes the counts, at most
once a second. Claims go first: while any wait, refilling stands back, but never longer than a
bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import msgspec
import structlog

from lean_sandbox.api.errors import ControlPlaneError, Forbidden
from lean_sandbox.clock import Clock
from lean_sandbox.model.blueprint import Staleness, Verdict
from lean_sandbox.model.pool_members import jittered_requeue_s, victims
from lean_sandbox.model.refill import (
    ReplenishHold,
    TokenBucket,
    creation_deficit,
    slow_start_groups,
)
from lean_sandbox.model.template import TemplateView
from lean_sandbox.model.warmpool import (
    EMPTY_POOL_STATUS,
    MISSING_TEMPLATE_REQUEUE_S,
    PoolView,
    build_member,
    next_pool_status,
    pool_status_patch,
    template_missing_note,
    unschedulable_note,
)
from lean_sandbox.reconcile.blueprints import Blueprints
from lean_sandbox.reconcile.warmpool.act import PoolAct
from lean_sandbox.reconcile.warmpool.members import Census, take_census
from lean_sandbox.reconcile.warmpool.notes import PoolNotes
from lean_sandbox.run.standback import StandBack
from lean_sandbox.run.workers import Result
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.extension_objects import PoolEntry
from lean_sandbox.watch.objects import SandboxEntry
from lean_sandbox.watch.store import Key, Store

__all__ = ["PoolFailedError", "PoolOptions", "PoolReconciler"]

log = structlog.get_logger("warmpool")

# Refilling stands back for claims in steps of the first, and never longer than the second.
_STAND_BACK_S = 0.05
_LONGEST_STAND_BACK_S = 2.0
_NAMESPACE_TERMINATING_REQUEUE_S = 30.0


class PoolFailedError(Exception):
    """A pass that could not do all it should have; it is repeated with backoff."""

    retryable = True

    def __init__(self, errors: list[ControlPlaneError]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        waits = [
            after
            for error in errors
            if (after := getattr(error, "retry_after_s", None)) is not None
        ]
        self.retry_after_s: float | None = max(waits) if waits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """What the controller is told from outside; the settings describe each field."""

    workers: int = 1
    max_batch_size: int = 300
    replenish_delay_s: float = 0.0
    max_refill_rate: float = 0.0
    readiness_grace_s: float = 300.0
    unschedulable_recheck_s: float = 60.0
    eviction: bool = True
    status_interval_s: float = 1.0
    request_timeout_s: float = 15.0


@dataclass(slots=True)
class _PoolState:
    """What is remembered of a pool between passes."""

    hold: ReplenishHold
    bucket: TokenBucket
    deleted: set[str] = field(default_factory=set)
    status_at: float | None = None
    is_stuck: bool = False


class PoolReconciler:
    """Keeps pools as their specs say."""

    def __init__(
        self,
        pools: Store[PoolEntry],
        caches: Caches,
        blueprints: Blueprints,
        act: PoolAct,
        notes: PoolNotes,
        *,
        clock: Clock,
        uniform: Callable[[], float],
        options: PoolOptions,
        claims_are_waiting: Callable[[], bool],
        launch: Callable[[Key], None],
        forget_member: Callable[[Key, str], None],
    ) -> None:
        self._pools = pools
        self._caches = caches
        self._blueprints = blueprints
        self._act = act
        self._notes = notes
        self._clock = clock
        self._uniform = uniform
        self._options = options
        self._claims_are_waiting = claims_are_waiting
        self._stand_back: StandBack[Key] = StandBack(
            claims_are_waiting, clock, longest_s=_LONGEST_STAND_BACK_S
        )
        self._launch = launch
        self._forget_member = forget_member
        self._states: dict[Key, _PoolState] = {}

    def gone(self, pool: Key, uid: str) -> None:
        """Take note that a member this process deleted is gone."""
        state = self._states.get(pool)
        if state is not None:
            state.deleted.discard(uid)

    async def reconcile(self, key: Key) -> Result:
        """Make one pass; raises :class:`PoolFailedError` when it has to be repeated."""
        entry = self._pools.get(key)
        if entry is None or entry.is_deleting or entry.view is None:
            self._states.pop(key, None)
            return Result()
        view = entry.view
        state = self._states.setdefault(
            key,
            _PoolState(
                ReplenishHold(self._options.replenish_delay_s),
                TokenBucket(self._options.max_refill_rate),
            ),
        )
        template = self._blueprints.known_template(Key(key.namespace, view.template))
        errors: list[ControlPlaneError] = []
        requeues: list[float] = []
        if template is not None and view.is_recreate:
            await self._drop_stale(state, view, template, errors)
        census = self._census(state, view)
        for stuck in census.stuck:
            await self._delete(state, stuck, errors)
        if census.stuck:
            census = self._census(state, view)
        before = census
        requeues += await self._refill(state, view, template, census, errors)
        await self._shrink(state, view, census, errors)
        requeues += self._signals(entry, state, view, template, census)
        if census.grace_s is not None:
            requeues.append(jittered_requeue_s(census.grace_s, self._uniform()))
        requeues += await self._report(entry, state, before, errors)
        if errors:
            if all(
                isinstance(error, Forbidden) and error.namespace_terminating for error in errors
            ):
                return Result(requeue_after_s=_NAMESPACE_TERMINATING_REQUEUE_S)
            raise PoolFailedError(errors)
        due = [seconds for seconds in requeues if seconds > 0]
        return Result(requeue_after_s=min(due) if due else None)

    def _census(self, state: _PoolState, view: PoolView) -> Census:
        return take_census(
            self._caches,
            view,
            frozenset(state.deleted),
            now_s=self._clock.now().timestamp(),
            readiness_grace_s=self._options.readiness_grace_s,
        )

    # -- what has to go --------------------------------------------------------------------------

    async def _delete(
        self, state: _PoolState, entry: SandboxEntry, errors: list[ControlPlaneError]
    ) -> bool:
        # Out of the warm queue first: no claim may take what is about to go.
        self._forget_member(entry.key, entry.uid)
        state.deleted.add(entry.uid)
        try:
            goes = await self._act.delete(entry)
        except ControlPlaneError as error:
            state.deleted.discard(entry.uid)
            errors.append(error)
            return False
        if not goes or self._caches.sandboxes.get(entry.key) is None:
            state.deleted.discard(entry.uid)
        return goes

    async def _drop_stale(
        self,
        state: _PoolState,
        view: PoolView,
        template: TemplateView,
        errors: list[ControlPlaneError],
    ) -> None:
        judge = Staleness(template)
        for entry in self._census(state, view).active:
            verdict = judge.by_labels(entry.labels, is_orphan=False)
            if verdict is Verdict.UNDECIDED:
                try:
                    whole = await self._act.get(entry.key)
                except ControlPlaneError as error:
                    errors.append(error)
                    continue
                if whole is None:
                    continue
                verdict = judge.by_spec(entry.labels, whole.spec, is_orphan=False)
            if verdict is Verdict.STALE:
                await self._delete(state, entry, errors)

    async def _shrink(
        self,
        state: _PoolState,
        view: PoolView,
        census: Census,
        errors: list[ControlPlaneError],
    ) -> None:
        surplus = min(len(census.active) - view.replicas, self._options.max_batch_size)
        if surplus <= 0:
            return
        by_name = {entry.key.name: entry for entry in census.active}
        chosen = iter(victims(census.members(), surplus))
        for size in slow_start_groups(surplus):
            failed = len(errors)
            async with anyio.create_task_group() as group:
                for _ in range(size):
                    victim = by_name[next(chosen).name]
                    group.start_soon(self._delete, state, victim, errors)
            if len(errors) > failed:
                return

    # -- what is missing -------------------------------------------------------------------------

    async def _refill(
        self,
        state: _PoolState,
        view: PoolView,
        template: TemplateView | None,
        census: Census,
        errors: list[ControlPlaneError],
    ) -> list[float]:
        """Create members; return when to come back for more."""
        current = len(census.active)
        now = self._clock.monotonic()
        hold_s = state.hold.observe(current, view.replicas, now)
        wanted = creation_deficit(view.replicas, census.total, self._options.max_batch_size)
        if template is None or wanted <= 0:
            return []
        if hold_s > 0:
            return [hold_s]
        if self._stand_back.must_wait(Key(view.namespace, view.name)):
            return [_STAND_BACK_S]
        grant = state.bucket.take(wanted, now)
        if grant.granted == 0:
            return [grant.wait_s]
        body = msgspec.json.encode(build_member(view, template, eviction=self._options.eviction))
        created = 0
        for size in slow_start_groups(grant.granted):
            failed = len(errors)
            async with anyio.create_task_group() as group:
                for _ in range(size):
                    group.start_soon(self._create, view.namespace, body, errors)
            created += size - (len(errors) - failed)
            if len(errors) > failed:
                break
            if self._claims_are_waiting() and created < grant.granted:
                # The rest of the batch waits for its turn like any other refill.
                state.bucket.give_back(grant.granted - created)
                break
        state.hold.created(created)
        more = view.replicas - census.total - created
        return [_STAND_BACK_S] if more > 0 and not errors else []

    async def _create(self, namespace: str, body: bytes, errors: list[ControlPlaneError]) -> None:
        try:
            made = await self._act.create(namespace, body)
        except ControlPlaneError as error:
            errors.append(error)
            return
        self._launch(made.key)

    # -- what is told ----------------------------------------------------------------------------

    def _signals(
        self,
        entry: PoolEntry,
        state: _PoolState,
        view: PoolView,
        template: TemplateView | None,
        census: Census,
    ) -> list[float]:
        note = ""
        requeue_s = 0.0
        if template is None and view.replicas > 0:
            note, requeue_s = template_missing_note(view.template), MISSING_TEMPLATE_REQUEUE_S
        elif census.held:
            grace_s = self._options.readiness_grace_s
            note = unschedulable_note(census.held, view.replicas, grace_s)
            requeue_s = self._options.unschedulable_recheck_s
        if note and not state.is_stuck:
            self._notes.not_progressing(entry, note)
        elif not note and state.is_stuck:
            self._notes.progressing(entry)
        state.is_stuck = bool(note)
        return [requeue_s] if note else []

    async def _report(
        self,
        entry: PoolEntry,
        state: _PoolState,
        census: Census,
        errors: list[ControlPlaneError],
    ) -> list[float]:
        """Write the counts if they changed; return when to come back if it is too early."""
        assert entry.view is not None
        old = entry.status or EMPTY_POOL_STATUS
        new = next_pool_status(entry.view, census.members())
        patch = pool_status_patch(old, new)
        if patch is None:
            return []
        now = self._clock.monotonic()
        if state.status_at is not None:
            early_s = state.status_at + self._options.status_interval_s - now
            if early_s > 0:
                return [early_s]
        state.status_at = now
        try:
            await self._act.patch_status(entry, patch, new)
        except ControlPlaneError as error:
            errors.append(error)
        return []

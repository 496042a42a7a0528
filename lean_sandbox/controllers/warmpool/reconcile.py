"""One reconcile of one pool.

It creates missing members, deletes surplus, stale and stuck ones, adopts orphans, and writes the
counts: at most once a second, and while a pool is being filled only after a window.

Responses are applied to the cache: a created member is there before the next reconcile counts, and
a deleted one still takes its place in the pool.
"""

from __future__ import annotations

from functools import partial

import msgspec

from lean_sandbox.controllers.warmpool.context import PoolContext
from lean_sandbox.controllers.warmpool.members import (
    Census,
    PoolMembers,
    find_orphans,
    is_refused,
    newest,
    seconds_of,
    victims,
)
from lean_sandbox.controllers.warmpool.report import PoolReport, why_unready
from lean_sandbox.controllers.warmpool.requests import MemberRequests
from lean_sandbox.controllers.warmpool.run import Run
from lean_sandbox.controllers.warmpool.state import Backoff, PoolState
from lean_sandbox.kube.client import ENDING_S
from lean_sandbox.kube.errors import said
from lean_sandbox.model import names
from lean_sandbox.model.times import format_duration
from lean_sandbox.model.warmpool import build_member
from lean_sandbox.runtime.workers import ReconcileError, Result
from lean_sandbox.watch.resources.extensions import PoolEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How soon work that exceeded the batch, the rate or the time is continued.
_NEXT_BATCH_S = 0.05
# For how long one reconcile creates members: then its status and other pools go first.
_LONGEST_BATCH_S = 0.5
# The share by which the check of the earliest grace may be delayed, to spread the pools.
_GRACE_JITTER = 0.5


class PoolReconcile:
    """One reconcile of one pool."""

    def __init__(self, context: PoolContext, entry: PoolEntry, state: PoolState) -> None:
        self._context = context
        self._run = Run(context, entry, state)
        self._requests = MemberRequests(self._run)
        self._report = PoolReport(self._run)

    async def run(self) -> Result:
        """Bring the pool to its spec; raises ReconcileError when that has to be retried."""
        run = self._run
        members = await self._put_in_order()
        was_full = run.state.full_at == run.view.generation
        if was_full and self._report.tells_too_many(members):
            # Before the refill, which takes a while: meanwhile its reader would take it for full.
            await self._report.write_status(members)
        await self._refill(members)
        await self._shrink(members)
        members = self._recounted(members)
        self._try_refused(members)
        self._report.signal(members)
        if members.checks.after_s is not None:
            spread = 1 + _GRACE_JITTER * self._context.uniform()
            run.requeue.within(members.checks.after_s * spread)
        await self._report.write_status(members)
        if not all(error.namespace_terminating for error in run.errors):
            raise ReconcileError("; ".join(map(str, run.errors)), *run.errors)
        if run.errors:
            return Result(requeue_after_s=ENDING_S)
        return run.requeue.result

    # -- who belongs to the pool -----------------------------------------------------------------

    def _recounted(self, members: PoolMembers) -> PoolMembers:
        return self._count() if self._run.has_acted else members

    def _count(self) -> PoolMembers:
        self._run.has_acted = False
        context, state, now_s = self._context, self._run.state, self._now_s
        census = Census(
            self._run.view,
            context.caches.sandboxes,
            context.caches.pods,
            now_s=now_s,
            ahead_s=context.clock.now().timestamp() - now_s,
            readiness_grace_s=self._run.grace_s,
            kept_at=state.kept_at,
        )
        members = census.take()
        kept = [*members.refused, *members.held]
        if kept or state.kept_at:
            unready = {one.uid for one in members.active if not one.is_ready}
            before = {uid: at for uid, at in state.kept_at.items() if uid in unready}
            state.kept_at = before | dict.fromkeys([one.uid for one in kept], now_s)
        state.outcomes.ready(members.newest_ready)
        return members

    @property
    def _now_s(self) -> float:
        return self._context.server_time.now_s()

    async def _put_in_order(self) -> PoolMembers:
        """Adopt orphans, delete stale and stuck members, and count the rest."""
        requests, sandboxes = self._requests, self._context.caches.sandboxes
        await requests.for_each(find_orphans(sandboxes, self._run.view), requests.take_in)
        members = self._count()
        if self._run.template is not None:
            self._follow(self._run.template.blueprint_hash)
            # Members of no use are replaced by better ones whatever the strategy.
            checked = members.active if self._run.view.is_recreate else members.no_use
            await requests.for_each(checked, partial(requests.drop_if_stale, is_orphan=False))
            members = self._recounted(members)
        # If that fails, they are members all the same.
        await requests.for_each(members.unlabelled, requests.label)
        for member in members.stuck:
            why = f"not ready within {format_duration(self._run.grace_s)}: {why_unready(member)}"
            self._note_failure(member, why)
        await requests.for_each(members.stuck, partial(requests.delete, why="not ready in time"))
        await self._replace(members)
        return self._recounted(members)

    def _follow(self, blueprint: str) -> None:
        """Forget the failures of members that were made from another template."""
        state = self._run.state
        if state.blueprint not in ("", blueprint):
            state.outcomes, state.pace = type(state.outcomes)(), type(state.pace)()
            state.creates = Backoff()
        state.blueprint = blueprint

    async def _replace(self, members: PoolMembers) -> None:
        """Replace members that have ended, and those that claims cannot take over, at a pace.

        The next may fare no better: so only one is replaced at a time, the newest. All that have
        ended are replaced where newer ones become ready.
        """
        state, now_s = self._run.state, self._now_s
        for member in members.ended:
            self._note_failure(member, f'sandbox "{member.key.name}": {why_unready(member)}')
        state.passed_over.intersection_update([one.uid for one in members.active])
        passed_over = [one for one in members.active if one.uid in state.passed_over]
        candidates = [*members.ended, *passed_over]
        if not candidates:
            return
        if (wait_s := state.pace.wait_s(now_s)) > 0:
            self._run.requeue.within(wait_s)
            return
        first = max(candidates, key=lambda one: one.created_at)
        chosen = [first]
        if members.ended and newest(members.ended) <= members.newest_ready:
            chosen = members.ended
        state.pace.replaced(seconds_of(first.created_at) if first.created_at else 0.0, now_s)
        ended = {one.uid for one in members.ended}
        for member in chosen:
            why = "ended" if member.uid in ended else "claims cannot take it"
            await self._requests.delete(member, why)

    def _note_failure(self, member: SandboxEntry, why: str) -> None:
        now = self._context.clock.monotonic()
        self._run.state.outcomes.failed(member.created_at, f"new sandboxes fail, {why}", now)

    def _try_refused(self, members: PoolMembers) -> None:
        """Have refused members tried again: one at a time, more as soon as some get on.

        They do not try by themselves, and no event tells that a quota or a policy has changed.
        """
        context, state = self._context, self._run.state
        now = context.clock.monotonic()
        found = [*members.refused, *members.refused_alone]
        refused = [one for one in found if _may_be_let_in(one)]
        before, state.refused = state.refused, len(refused)
        progress = max(0, before - len(refused))
        if progress:
            state.launches.in_vain = 0
            context.refusals.let_in(self._run.entry.key, now)
        if not refused:
            state.launches = Backoff()
            return
        backoff = state.launches
        number = 2 * progress if progress else int(before > 0 and now >= backoff.next_at)
        for turn in range(min(number, len(refused))):
            context.wakes.launch(refused[(backoff.in_vain + turn) % len(refused)].key, None)
        if number or not before:
            context.refusals.put_off(self._run.entry.key, backoff, now)
        self._run.requeue.within(backoff.next_at - now)

    async def _shrink(self, members: PoolMembers) -> None:
        surplus = len(members.active) - self._run.view.replicas
        if surplus <= 0:
            return
        batch = min(surplus, self._context.settings.sandbox_warm_pool_max_batch_size)
        chosen = iter(victims(members.active, batch))
        done = await self._requests.in_groups(
            batch, lambda: self._requests.delete(next(chosen), "surplus")
        )
        if surplus > done.tried:
            self._run.requeue.within(_NEXT_BATCH_S)

    # -- what is missing -------------------------------------------------------------------------

    async def _refill(self, members: PoolMembers) -> None:
        view, state, template = self._run.view, self._run.state, self._run.template
        requeue, settings = self._run.requeue, self._context.settings
        now = self._context.clock.monotonic()
        hold_s = state.hold.observe(len(members.active), view.replicas, now)
        missing = view.replicas - members.total
        if template is None or self._context.resolver.unprotected(template) is not None:
            state.refusal = ""
            return
        if missing <= 0:
            state.refusal = ""
        if hold_s > 0:
            requeue.within(hold_s)
            return
        if missing <= 0:
            state.full_at = view.generation
            return
        if now < state.creates.next_at:
            requeue.within(state.creates.next_at - now)
            return
        if members.is_refused:
            # What is refused to the newest member would be refused to the next as well.
            return
        wanted = min(missing, settings.sandbox_warm_pool_max_batch_size)
        granted, wait_s = state.bucket.take(wanted, now)
        if granted == 0:
            requeue.within(wait_s)
            return
        eviction = settings.enable_warm_pool_eviction
        body = msgspec.json.encode(build_member(view, template, eviction=eviction))

        made: list[SandboxEntry] = []

        async def create() -> None:
            made.append(await self._requests.create(body))

        def is_over() -> bool:
            is_late = self._context.clock.monotonic() > now + _LONGEST_BATCH_S
            # What is refused to the first would be refused to the others as well.
            first = self._context.caches.sandboxes.latest(made[0]) if made else None
            is_in_vain = first is not None and is_refused(first)
            return is_late or is_in_vain

        known = len(self._run.errors)
        done = await self._requests.in_groups(
            granted,
            create,
            first=state.next_size,
            is_over=is_over,
        )
        state.bucket.give_back(granted - done.tried)
        state.hold.created(done.succeeded)
        self._take_refusals(known)
        is_whole = missing <= done.succeeded
        state.next_size = 1 if is_whole else done.next_size
        if not (is_whole or state.refusal):
            requeue.within(_NEXT_BATCH_S)

    def _take_refusals(self, known: int) -> None:
        """Tell refused creates from errors: they are told once, and tried again after a pause."""
        state, errors = self._run.state, self._run.errors
        now = self._context.clock.monotonic()
        refusals = [error for error in errors[known:] if error.is_refusal]
        if not refusals:
            if state.refusal and len(errors) == known:
                self._context.refusals.let_in(self._run.entry.key, now)
            state.refusal = ""
            state.creates = Backoff()
            return
        errors[known:] = [error for error in errors[known:] if not error.is_refusal]
        state.refusal = said(refusals[0])
        # Whatever wakes the pool until then: the attempt itself may do so.
        pause_s = self._context.refusals.put_off(self._run.entry.key, state.creates, now)
        self._run.requeue.within(pause_s)


def _may_be_let_in(member: SandboxEntry) -> bool:
    # A spec that the schema refuses is refused until it is edited.
    ready = member.ready
    return ready is not None and ready.reason == names.REASON_RECONCILER_ERROR

"""One reconcile of one pool.

It creates missing members, deletes surplus, stale and stuck ones, adopts orphans, and writes the
counts: at most once a second, and while a pool is being filled only after a window.

Responses are applied to the cache: a created member is there before the next reconcile counts, and
a deleted one still takes its place in the pool.
"""

from __future__ import annotations

import math
from functools import partial

from lean_sandbox.controllers.warmpool.members import (
    Census,
    PoolMembers,
    find_orphans,
    may_be_let_in,
    newest,
    seconds_of,
    to_delete,
)
from lean_sandbox.controllers.warmpool.refill import refill
from lean_sandbox.controllers.warmpool.report import (
    report_progress,
    reports_too_many,
    why_unready,
    write_status,
)
from lean_sandbox.controllers.warmpool.requests import (
    delete_member,
    drop_if_stale,
    for_each,
    give_labels,
    in_groups,
    take_in,
)
from lean_sandbox.controllers.warmpool.run import NEXT_BATCH_S, PoolContext, PoolRun
from lean_sandbox.controllers.warmpool.state import Backoff, PoolState
from lean_sandbox.model.times import format_duration
from lean_sandbox.runtime.workers import ReconcileError, Result
from lean_sandbox.watch.resources.extensions import PoolEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# The end of the earliest grace is checked up to this share later, to spread the pools over time.
_GRACE_JITTER = 0.5


class PoolReconcile:
    """One reconcile of one pool."""

    def __init__(self, context: PoolContext, entry: PoolEntry, state: PoolState) -> None:
        self._context = context
        self._run = PoolRun(context, entry, state)

    async def run(self) -> Result:
        """Bring the pool to its spec.

        Raises ReconcileError when that has to be retried, and a refusal of the server if that only
        says that the namespace is being deleted.
        """
        run = self._run
        members = await self._put_in_order()
        was_full = run.state.full_at == run.view.generation
        if was_full and reports_too_many(run, members):
            # Before the refill, which takes a while: meanwhile its reader would take it for full.
            await write_status(run, members)
        await refill(run, members)
        await self._shrink(members)
        members = self._recounted(members)
        self._try_refused(members)
        report_progress(run, members)
        if members.checks.after_s is not None:
            spread = 1 + _GRACE_JITTER * self._context.uniform()
            run.requeue.within(members.checks.after_s * spread)
        await write_status(run, members)
        if not all(error.namespace_terminating for error in run.errors):
            # One member that cannot be changed must not make all others wait.
            text = "; ".join(map(str, run.errors))
            after_s = math.inf if run.requeue.after_s is None else run.requeue.after_s
            run.state.due_at = self._run.now + after_s
            raise ReconcileError(text, *run.errors)
        if run.errors:
            raise run.errors[0]
        return run.requeue.result

    # -- who belongs to the pool -----------------------------------------------------------------

    def _recounted(self, members: PoolMembers) -> PoolMembers:
        return self._count() if self._run.has_acted else members

    def _count(self) -> PoolMembers:
        self._run.has_acted = False
        state = self._run.state
        members = Census(self._run).take()
        kept = [*members.refused, *members.held]
        if kept or state.kept_at:
            unready = {one.uid for one in members.active if not one.is_ready}
            before = {uid: at for uid, at in state.kept_at.items() if uid in unready}
            state.kept_at = before | dict.fromkeys([one.uid for one in kept], self._now_s)
        state.outcomes.ready(members.newest_ready)
        return members

    @property
    def _now_s(self) -> float:
        return self._context.server_time.now_s()

    async def _put_in_order(self) -> PoolMembers:
        """Adopt orphans, delete stale and stuck members, and count the rest."""
        run = self._run
        await for_each(run, find_orphans(run.sandboxes, run.view), partial(take_in, run))
        template = run.template
        if template is not None:
            self._follow(template.blueprint_hash)
        members = self._count()
        if template is not None:
            # Those that do not get on by themselves are replaced under any strategy.
            waiting = members.not_progressing
            uids = {one.uid for one in waiting}
            await for_each(
                run,
                members.active if run.view.is_recreate else waiting,
                lambda one: drop_if_stale(run, one, gets_on=one.uid not in uids),
            )
            members = self._recounted(members)
        # If that fails, they are members all the same.
        await for_each(run, members.unlabelled, partial(give_labels, run))
        for member in members.stuck:
            why = f"not ready within {format_duration(run.grace_s)}: {why_unready(member)}"
            self._note_failure(member, why)
        await for_each(run, members.stuck, partial(delete_member, run, why="not ready in time"))
        await self._replace(members)
        return self._recounted(members)

    def _follow(self, blueprint: str) -> None:
        """Forget the failures of members that were made from another template."""
        state = self._run.state
        if state.blueprint not in ("", blueprint):
            state.outcomes = type(state.outcomes)()
            state.pace = type(state.pace)()
            state.creates = Backoff()
        state.blueprint = blueprint

    async def _replace(self, members: PoolMembers) -> None:
        """Replace members that have ended, and those that claims cannot take over, at a pace.

        The next may fare no better: so only one is replaced at a time, the newest. All that have
        ended are replaced where newer ones become ready.
        """
        state = self._run.state
        now_s = self._now_s
        for member in members.ended:
            self._note_failure(member, f'sandbox "{member.key.name}": {why_unready(member)}')
        refused = [one for one in members.active if self._context.warm.is_refused(one)]
        candidates = [*members.ended, *refused]
        if not candidates:
            return
        if (wait_s := state.pace.wait_s(now_s)) > 0:
            self._run.requeue.within(wait_s)
            return
        first = max(candidates, key=lambda one: one.created_at)
        state.pace.replaced(seconds_of(first.created_at), now_s)
        all_at_once = bool(members.ended) and newest(members.ended) <= members.newest_ready
        doomed = members.ended if all_at_once else [first]
        why = "ended" if doomed[0] in members.ended else "claims cannot take it"
        await for_each(self._run, doomed, partial(delete_member, self._run, why=why))

    def _note_failure(self, member: SandboxEntry, why: str) -> None:
        now = self._run.now
        self._run.state.outcomes.failed(member.created_at, f"new sandboxes fail, {why}", now)

    def _try_refused(self, members: PoolMembers) -> None:
        """Have refused members tried again: one at a time, more as soon as some get on.

        They do not try by themselves, and no event tells that a quota or a policy has changed.
        """
        context = self._context
        state = self._run.state
        now = self._run.now
        found = [*members.refused, *members.refused_alone]
        refused = [one for one in found if may_be_let_in(one)]
        before = state.refused
        state.refused = len(refused)
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
        chosen = iter(to_delete(members.active, batch))
        done = await in_groups(
            self._run, batch, lambda: delete_member(self._run, next(chosen), "surplus")
        )
        if surplus > done.tried == done.succeeded:
            self._run.requeue.within(NEXT_BATCH_S)

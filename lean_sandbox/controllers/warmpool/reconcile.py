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
from lean_sandbox.controllers.warmpool.run import NEXT_BATCH_S, PoolRun
from lean_sandbox.controllers.warmpool.state import Backoff
from lean_sandbox.model.times import format_duration
from lean_sandbox.runtime.workers import ReconcileError, Result
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# The end of the earliest grace is checked up to this share later, to spread the pools over time.
_GRACE_JITTER = 0.5


async def reconcile(run: PoolRun) -> Result:
    """Bring the pool to its spec.

    Raises ReconcileError when that has to be retried, and a refusal of the server if that only says
    that the namespace is being deleted.
    """
    members = await _put_in_order(run)
    was_full = run.state.full_at == run.view.generation
    if was_full and reports_too_many(run, members):
        # Before the refill, which takes a while: meanwhile its reader would take it for full.
        await write_status(run, members)
    await refill(run, members)
    await _shrink(run, members)
    members = _recounted(run, members)
    _try_refused(run, members)
    report_progress(run, members)
    if members.checks.after_s is not None:
        spread = 1 + _GRACE_JITTER * run.context.uniform()
        run.requeue.within(members.checks.after_s * spread)
    await write_status(run, members)
    if not all(error.namespace_terminating for error in run.errors):
        # One member that cannot be changed must not make all others wait.
        text = "; ".join(map(str, run.errors))
        after_s = math.inf if run.requeue.after_s is None else run.requeue.after_s
        run.state.due_at = run.now + after_s
        raise ReconcileError(text, *run.errors)
    if run.errors:
        raise run.errors[0]
    return run.requeue.result


# --- who belongs to the pool ---------------------------------------------------------------------


def _recounted(run: PoolRun, members: PoolMembers) -> PoolMembers:
    return _count(run) if run.has_acted else members


def _count(run: PoolRun) -> PoolMembers:
    run.has_acted = False
    state = run.state
    members = Census(run).take()
    kept = [*members.refused, *members.held]
    if kept or state.kept_at:
        unready = {one.uid for one in members.active if not one.is_ready}
        before = {uid: at for uid, at in state.kept_at.items() if uid in unready}
        now_s = run.context.server_time.now_s()
        state.kept_at = before | dict.fromkeys([one.uid for one in kept], now_s)
    state.outcomes.ready(members.newest_ready)
    return members


async def _put_in_order(run: PoolRun) -> PoolMembers:
    """Adopt orphans, delete stale and stuck members, and count the rest."""
    await for_each(run, find_orphans(run.sandboxes, run.view), partial(take_in, run))
    template = run.template
    if template is not None:
        _follow(run, template.blueprint_hash)
    members = _count(run)
    if template is not None:
        # Those that do not get on by themselves are replaced under any strategy.
        waiting = members.not_progressing
        uids = {one.uid for one in waiting}
        await for_each(
            run,
            members.active if run.view.is_recreate else waiting,
            lambda one: drop_if_stale(run, one, gets_on=one.uid not in uids),
        )
        members = _recounted(run, members)
    # If that fails, they are members all the same.
    await for_each(run, members.unlabelled, partial(give_labels, run))
    for member in members.stuck:
        why = f"not ready within {format_duration(run.grace_s)}: {why_unready(member)}"
        _note_failure(run, member, why)
    await for_each(run, members.stuck, partial(delete_member, run, why="not ready in time"))
    await _replace(run, members)
    return _recounted(run, members)


def _follow(run: PoolRun, blueprint: str) -> None:
    """Forget the failures of members that were made from another template."""
    state = run.state
    if state.blueprint not in ("", blueprint):
        state.outcomes = type(state.outcomes)()
        state.pace = type(state.pace)()
        state.creates = Backoff()
    state.blueprint = blueprint


async def _replace(run: PoolRun, members: PoolMembers) -> None:
    """Replace members that have ended, and those that claims cannot take over, at a pace.

    The next may fare no better: so only one is replaced at a time, the newest. All that have ended
    are replaced where newer ones become ready.
    """
    state = run.state
    now_s = run.context.server_time.now_s()
    for member in members.ended:
        _note_failure(run, member, f'sandbox "{member.key.name}": {why_unready(member)}')
    refused = [one for one in members.active if run.context.warm.is_refused(one)]
    candidates = [*members.ended, *refused]
    if not candidates:
        return
    if (wait_s := state.pace.wait_s(now_s)) > 0:
        run.requeue.within(wait_s)
        return
    first = max(candidates, key=lambda one: one.created_at)
    state.pace.replaced(seconds_of(first.created_at), now_s)
    all_at_once = bool(members.ended) and newest(members.ended) <= members.newest_ready
    doomed = members.ended if all_at_once else [first]
    why = "ended" if doomed[0] in members.ended else "claims cannot take it"
    await for_each(run, doomed, partial(delete_member, run, why=why))


def _note_failure(run: PoolRun, member: SandboxEntry, why: str) -> None:
    run.state.outcomes.failed(member.created_at, f"new sandboxes fail, {why}", run.now)


def _try_refused(run: PoolRun, members: PoolMembers) -> None:
    """Have refused members tried again: one at a time, more as soon as some get on.

    They do not try by themselves, and no event tells that a quota or a policy has changed.
    """
    context = run.context
    state = run.state
    now = run.now
    found = [*members.refused, *members.refused_alone]
    refused = [one for one in found if may_be_let_in(one)]
    before = state.refused
    state.refused = len(refused)
    progress = max(0, before - len(refused))
    if progress:
        state.launches.in_vain = 0
        context.refusals.let_in(run.entry.key, now)
    if not refused:
        state.launches = Backoff()
        return
    backoff = state.launches
    number = 2 * progress if progress else int(before > 0 and now >= backoff.next_at)
    for turn in range(min(number, len(refused))):
        context.wakes.launch(refused[(backoff.in_vain + turn) % len(refused)].key, None)
    if number or not before:
        context.refusals.put_off(run.entry.key, backoff, now)
    run.requeue.within(backoff.next_at - now)


async def _shrink(run: PoolRun, members: PoolMembers) -> None:
    surplus = len(members.active) - run.view.replicas
    if surplus <= 0:
        return
    batch = min(surplus, run.context.settings.sandbox_warm_pool_max_batch_size)
    chosen = iter(to_delete(members.active, batch))
    done = await in_groups(run, batch, lambda: delete_member(run, next(chosen), "surplus"))
    if surplus > done.tried == done.succeeded:
        run.requeue.within(NEXT_BATCH_S)

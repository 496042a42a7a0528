"""How a pool gets the members that it lacks."""

from __future__ import annotations

import msgspec

from lean_sandbox.controllers.warmpool.members import PoolMembers, is_refused, newest
from lean_sandbox.controllers.warmpool.requests import create_member, in_groups
from lean_sandbox.controllers.warmpool.run import NEXT_BATCH_S, PoolRun
from lean_sandbox.controllers.warmpool.state import Backoff
from lean_sandbox.kube.errors import message_of
from lean_sandbox.model.template import TemplateView
from lean_sandbox.model.warmpool import build_member
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# For how long one reconcile creates members: then its status and other pools go first.
_LONGEST_BATCH_S = 0.5


async def refill(run: PoolRun, members: PoolMembers) -> None:
    """Create what is missing, as far as settings and the server allow, or note when to go on."""
    state = run.state
    template = run.template
    resolver = run.context.resolver
    now = run.now
    hold_s = state.hold.observe(len(members.active), run.view.replicas, now)
    if template is None or resolver.unprotected(template) is not None:
        state.refusal = ""
        return
    missing = run.view.replicas - members.total
    if missing <= 0:
        state.refusal = ""
    if hold_s > 0:
        run.requeue.within(hold_s)
    elif missing <= 0:
        state.full_at = run.view.generation
    elif now < state.creates.next_at:
        run.requeue.within(state.creates.next_at - now)
    elif newest(members.refused) <= state.outcomes.newest_ready:
        # What the server refuses to the newest member, it would also refuse to the next, unless
        # one as new has been ready: a claim may have taken that since.
        await _create_missing(run, template, missing, now)


async def _create_missing(run: PoolRun, template: TemplateView, missing: int, now: float) -> None:
    state = run.state
    settings = run.context.settings
    wanted = min(missing, settings.sandbox_warm_pool_max_batch_size)
    granted, wait_s = state.bucket.take(wanted, now)
    if granted == 0:
        run.requeue.within(wait_s)
        return
    eviction = settings.enable_warm_pool_eviction
    body = msgspec.json.encode(build_member(run.view, template, eviction=eviction))

    made: list[SandboxEntry] = []

    async def create() -> None:
        made.append(await create_member(run, body))

    def is_over() -> bool:
        is_late = run.now > now + _LONGEST_BATCH_S
        # What the server refuses to the first, it would also refuse to the others.
        first = run.sandboxes.latest(made[0]) if made else None
        is_in_vain = first is not None and is_refused(first)
        return is_late or is_in_vain

    known = len(run.errors)
    done = await in_groups(run, granted, create, first=state.next_size, is_over=is_over)
    state.bucket.give_back(granted - done.tried)
    state.hold.created(done.succeeded)
    take_refusals(run, known, made=done.succeeded)
    is_whole = missing <= done.succeeded
    state.next_size = 1 if is_whole else done.next_size
    if done.tried == done.succeeded and not is_whole:
        run.requeue.within(NEXT_BATCH_S)


def take_refusals(run: PoolRun, known: int, *, made: int) -> None:
    """Take refused creates out of the errors; they are tried again after a pause.

    A create that fails for another reason does not say that it would not be refused.
    """
    state = run.state
    errors = run.errors
    now = run.now
    refusals = [error for error in errors[known:] if error.is_refusal]
    if not refusals:
        if made:
            if state.refusal:
                run.context.refusals.let_in(run.entry.key, now)
            state.refusal = ""
            state.creates = Backoff()
        return
    errors[known:] = [error for error in errors[known:] if not error.is_refusal]
    state.refusal = message_of(refusals[0])
    # Even if something wakes the pool before: the attempt itself may do that.
    pause_s = run.context.refusals.put_off(run.entry.key, state.creates, now)
    run.requeue.within(pause_s)

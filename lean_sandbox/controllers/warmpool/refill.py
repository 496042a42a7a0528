"""How a pool gets the members that it lacks."""

from __future__ import annotations

import msgspec

from lean_sandbox.controllers.warmpool.members import PoolMembers, is_refused, newest
from lean_sandbox.controllers.warmpool.requests import MemberRequests
from lean_sandbox.controllers.warmpool.run import NEXT_BATCH_S, PoolRun
from lean_sandbox.controllers.warmpool.state import Backoff
from lean_sandbox.kube.errors import message_of
from lean_sandbox.model.template import TemplateView
from lean_sandbox.model.warmpool import build_member
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# For how long one reconcile creates members: then its status and other pools go first.
_LONGEST_BATCH_S = 0.5


class Refill:
    """Creates the missing members of one pool, as far as its settings and the server allow."""

    def __init__(self, run: PoolRun, requests: MemberRequests) -> None:
        self._run = run
        self._context = run.context
        self._requests = requests

    async def create(self, members: PoolMembers) -> None:
        """Create what is missing, or note when to try again."""
        state = self._run.state
        template = self._run.template
        resolver = self._context.resolver
        now = self._context.clock.monotonic()
        hold_s = state.hold.observe(len(members.active), self._run.view.replicas, now)
        if template is None or resolver.unprotected(template) is not None:
            state.refusal = ""
            return
        missing = self._run.view.replicas - members.total
        if missing <= 0:
            state.refusal = ""
        if hold_s > 0:
            self._run.requeue.within(hold_s)
        elif missing <= 0:
            state.full_at = self._run.view.generation
        elif now < state.creates.next_at:
            self._run.requeue.within(state.creates.next_at - now)
        elif newest(members.refused) <= state.outcomes.newest_ready:
            # What the server refuses to the newest member, it would also refuse to the next, unless
            # one as new has been ready: a claim may have taken that since.
            await self._create_missing(template, missing, now)

    async def _create_missing(self, template: TemplateView, missing: int, now: float) -> None:
        state = self._run.state
        settings = self._context.settings
        wanted = min(missing, settings.sandbox_warm_pool_max_batch_size)
        granted, wait_s = state.bucket.take(wanted, now)
        if granted == 0:
            self._run.requeue.within(wait_s)
            return
        eviction = settings.enable_warm_pool_eviction
        body = msgspec.json.encode(build_member(self._run.view, template, eviction=eviction))

        made: list[SandboxEntry] = []

        async def create() -> None:
            made.append(await self._requests.create(body))

        def is_over() -> bool:
            is_late = self._context.clock.monotonic() > now + _LONGEST_BATCH_S
            # What the server refuses to the first, it would also refuse to the others.
            first = self._context.caches.sandboxes.latest(made[0]) if made else None
            is_in_vain = first is not None and is_refused(first)
            return is_late or is_in_vain

        known = len(self._run.errors)
        done = await self._requests.in_groups(
            granted, create, first=state.next_size, is_over=is_over
        )
        state.bucket.give_back(granted - done.tried)
        state.hold.created(done.succeeded)
        self._take_refusals(known, made=done.succeeded)
        is_whole = missing <= done.succeeded
        state.next_size = 1 if is_whole else done.next_size
        if done.tried == done.succeeded and not is_whole:
            self._run.requeue.within(NEXT_BATCH_S)

    def _take_refusals(self, known: int, *, made: int) -> None:
        """Take refused creates out of the errors; they are tried again after a pause.

        A create that fails for another reason does not say that it would not be refused.
        """
        state = self._run.state
        errors = self._run.errors
        now = self._context.clock.monotonic()
        refusals = [error for error in errors[known:] if error.is_refusal]
        if not refusals:
            if made:
                if state.refusal:
                    self._context.refusals.let_in(self._run.entry.key, now)
                state.refusal = ""
                state.creates = Backoff()
            return
        errors[known:] = [error for error in errors[known:] if not error.is_refusal]
        state.refusal = message_of(refusals[0])
        # Even if something wakes the pool before: the attempt itself may do that.
        pause_s = self._context.refusals.put_off(self._run.entry.key, state.creates, now)
        self._run.requeue.within(pause_s)

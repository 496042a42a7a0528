"""The SandboxClaim controller: what wakes a claim, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from filters import Change
from lean_sandbox.controllers.claim.annotations import AnnotationWriter
from lean_sandbox.controllers.claim.owned import assigned_name, is_controlled
from lean_sandbox.controllers.claim.reconcile import reconcile
from lean_sandbox.controllers.claim.run import ClaimContext
from lean_sandbox.controllers.claim.state import ClaimState
from lean_sandbox.controllers.claim.waiting import WaitingClaims
from lean_sandbox.controllers.common import ObjectEvents, Shared
from lean_sandbox.controllers.warm import build_warm_queue
from lean_sandbox.model import names
from lean_sandbox.model.claim import expire_at
from lean_sandbox.model.conditions import Condition, find, has_reason, is_true
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.model.times import time_left_s
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import Cause, Item
from lean_sandbox.runtime.states import States
from lean_sandbox.runtime.tracing import in_span
from lean_sandbox.runtime.workers import Result
from lean_sandbox.turns import Rank
from lean_sandbox.watch.kind import Delta, Key
from lean_sandbox.watch.resources.extensions import ClaimEntry, PoolEntry, TemplateEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

_WANT_NO_MEMBER = frozenset(
    {
        names.REASON_INVALID_METADATA,
        names.REASON_CLAIM_EXPIRED,
        names.REASON_POD_SUCCEEDED,
        names.REASON_POD_FAILED,
    }
)
# Reasons of a claim that is not ready and stays so until somebody changes something.
_SETTLED = frozenset(
    {
        names.REASON_INVALID_METADATA,
        names.REASON_ENV_VARS_REJECTED,
        names.REASON_CLAIM_TEMPLATES_ERROR,
        names.REASON_INVALID_CONFIGURATION,
        names.REASON_POD_SUCCEEDED,
        names.REASON_POD_FAILED,
        names.REASON_SANDBOX_SUSPENDED,
        names.REASON_SANDBOX_EXPIRED,
    }
)


class ClaimController(Controller[ClaimEntry]):
    """Serves claims, from the warm queue as far as that has members for them."""

    def __init__(self, shared: Shared) -> None:
        settings = shared.settings
        caches = shared.caches
        workers = settings.sandbox_claim_concurrent_workers
        super().__init__("sandboxclaim", caches.claims, shared.clock, workers=workers)
        self.warm = build_warm_queue(caches, shared.resolver)
        wake = partial(self.queue.add, reason="member available")
        self.waiting = WaitingClaims(wake, self.warm.to_take)
        self.warm.available.append(self.waiting.available)
        self.warm.released.append(self.waiting.level)
        self._by_pool = self.cache.index(_pool_of)
        self._by_assigned = self.cache.index(_awaited_name)
        self._states: States[ClaimState] = States(ClaimState)
        self.annotator = AnnotationWriter(shared, self._states)
        self._context = ClaimContext(
            writer=shared.writer,
            caches=caches,
            resolver=shared.resolver,
            settings=settings,
            clock=shared.clock,
            server_time=shared.server_time,
            metrics=shared.metrics,
            wakes=shared.wakes,
            warm=self.warm,
            events=ObjectEvents(
                shared,
                self.cache.kind.resource,
                "sandboxclaim-controller",
                is_off=settings.disable_claim_events,
            ),
            annotator=self.annotator,
        )

    def enqueue_all(self, reason: str) -> None:
        """Queue everything, as after a start; claims wait again for members not fetched yet."""
        self._context.began_at = self._context.clock.monotonic()
        super().enqueue_all(reason)

    async def reconcile(self, item: Item[Key]) -> Result:
        """Serve one claim."""
        arrivals = self.waiting.arrivals
        try:
            return await self._reconcile(item.key)
        finally:
            self._note_waiting(item.key, arrivals)

    async def _reconcile(self, key: Key) -> Result:
        entry = self.cache.get(key)
        if entry is None:
            return Result()
        state = self._states.begin(entry)
        state.is_in_use = True
        try:
            parent = state.trace_of(entry)
            with in_span("ReconcileSandboxClaim", _attributes(entry), parent) as trace:
                state.trace = trace or state.trace
                return await reconcile(self._context, entry, state)
        finally:
            state.is_in_use = False
            self._states.settle(entry)

    def _note_waiting(self, key: Key, arrivals: int) -> None:
        entry = self.cache.get(key)
        pool = _awaited_pool(entry) if entry is not None else None
        if entry is None or pool is None or self._bound_to(entry) is not None:
            self.waiting.forget(key)
        else:
            is_first = not self.waiting.waits_for(pool)
            self.waiting.wait(key, pool, entry.created_at, tried=arrivals)
            if is_first:
                # What makes members for it is waited for from now on.
                self._context.wakes.pool(pool)

    def rank_of(self, entry: ClaimEntry, cause: Cause) -> Rank:
        """Return whether a client waits for a claim: not if a list has shown that it is served."""
        return Rank.SPARE if _is_ready(entry) and cause is Cause.LISTED else Rank.CLIENT

    def has_edited_claim(self, sandbox: SandboxEntry) -> bool:
        """Return whether the claim of a Sandbox was edited, so that the Pod may lack metadata."""
        claim = self._owner_of(sandbox)
        return claim is not None and claim.generation > 1

    def due_in_s(self, key: Key) -> float | None:
        """Return the seconds until a claim expires."""
        entry = self.cache.get(key)
        if entry is None or entry.view is None or entry.status is None:
            return None
        return time_left_s(expire_at(entry.view, entry.status), self._context.server_time.now())

    def is_final(self, entry: ClaimEntry) -> bool:
        """Return whether a claim is in its final state until something else changes."""
        if entry.needs_fetch:
            return False
        assert entry.status is not None
        ready = find(entry.status.conditions, names.READY)
        if ready is None or ready.observedGeneration != entry.generation:
            return False
        if ready.reason == names.REASON_CLAIM_EXPIRED:
            owned = self._context.caches.sandboxes.owned_by(entry.key.namespace, entry.uid)
            return not owned
        if ready.status != names.TRUE:
            return ready.reason in _SETTLED
        bound = self._bound_to(entry)
        return bound is not None and bound.status is not None and _repeats(entry, bound.status)

    def on_claim(self, delta: Delta[ClaimEntry]) -> None:
        """Wake a claim that changed; drop what was remembered of one that is gone."""
        if delta.new is None:
            self.forget_failures(delta)
            self._states.pop(delta.key, None)
            self.waiting.forget(delta.key)
            return
        self.annotator.saw(delta.new)
        if delta.new.view is not None:
            self._context.resolver.forget_absence(Key(delta.key.namespace, delta.new.view.pool))
        self.on_change(delta)

    def on_sandbox(self, delta: Delta[SandboxEntry]) -> None:
        """Wake the claims that had or have a Sandbox that changed.

        If only its status may have changed, :meth:`on_status` wakes the claim once the Sandbox's
        own controller has fetched it, which it does unless the Sandbox is being deleted.
        """
        new = delta.new
        is_being_fetched = new is not None and new.status is None and not new.is_deleting
        if delta.initial or (is_being_fetched and delta.change is Change.COLUMNS):
            return
        if delta.new is None or delta.new.owner is None:
            # A claim that needs the name may have it now: the Sandbox is gone, or has no owner.
            waiting = [delta.key] if self._may_take_name(delta) else []
            for key in (*waiting, *self._by_assigned.find(*delta.key)):
                self.queue.add(key, after_s=0.1, reason="sandbox")
        for entry in (delta.old, delta.new):
            claim = self._owner_of(entry) if entry is not None else None
            if claim is not None:
                # With the claim itself its Sandbox goes, and the claim's end may follow shortly.
                after_s = 0.1 if delta.new is None else 0.0
                if delta.new is None:
                    self._states.begin(claim).ended = delta.key.name
                self.queue.add(claim.key, after_s=after_s, reason="sandbox")

    def _may_take_name(self, delta: Delta[SandboxEntry]) -> bool:
        """Return whether a claim has the name, and the Sandbox was not made for it in vain."""
        claim = self.cache.get(delta.key)
        sandbox = delta.new or delta.old
        if claim is None or sandbox is None:
            return False
        state = self._states.of(claim)
        return state is None or state.disowned != sandbox.uid

    def on_status(self, entry: SandboxEntry, new: SandboxStatus) -> None:
        """Follow a status that our Sandbox controller wrote or read, for which no event comes.

        A claim that reports the same already is woken only if it is being reconciled: that
        reconcile may be about to write an older status.
        """
        claim = self._owner_of(entry)
        if claim is not None and (not _repeats(claim, new) or self.queue.is_running(claim.key)):
            self.queue.add(claim.key, reason="sandbox")

    def _owner_of(self, entry: SandboxEntry) -> ClaimEntry | None:
        owner = entry.owner_key(names.SANDBOX_CLAIM_KIND)
        return self.cache.get(owner) if owner is not None else None

    def on_pool(self, delta: Delta[PoolEntry]) -> None:
        """Wake the claims that wait for a pool."""
        # No claim waits for a change of the pool's status.
        if not delta.initial and _spec_of(delta.old) != _spec_of(delta.new):
            # It may name a template whose absence was found before the template came.
            self._context.resolver.forget_absence(delta.key)
            self._wake_claims([delta.key], "pool", unless=self._is_served)

    def on_template(self, delta: Delta[TemplateEntry]) -> None:
        """Wake the claims that wait for a template, of all of its pools.

        A template that is new wakes those that are served as well: its metadata may differ from
        that of their Sandboxes.
        """
        old = delta.old
        new = delta.new
        if delta.initial or _spec_of(old) == _spec_of(new):
            return
        is_first = new is not None and (old is None or old.uid != new.uid)
        pools = self._context.resolver.pools_of(delta.key)
        self._wake_claims(pools, "template", unless=None if is_first else self._is_served)

    def on_policy_there(self, template: Key) -> None:
        """Wake the claims that may have waited for the NetworkPolicy of a template."""
        pools = self._context.resolver.pools_of(template)
        self._wake_claims(pools, "template", unless=self._is_served)

    def _bound_to(self, claim: ClaimEntry) -> SandboxEntry | None:
        """Return the Sandbox that the status of a claim names, if it is there and the claim's."""
        named = claim.status.bound.name if claim.status is not None else ""
        held = self._context.caches.sandboxes.get(Key(claim.key.namespace, named))
        return held if held is not None and is_controlled(held, claim) else None

    def _is_served(self, claim: ClaimEntry) -> bool:
        """Return whether a claim has its Sandbox, and no edit of its template can mend anything."""
        if self._bound_to(claim) is None or not self.is_final(claim):
            return False
        assert claim.status is not None
        # What it asks for may be too much only together with what the template asks for.
        return not has_reason(claim.status.conditions, names.READY, names.REASON_INVALID_METADATA)

    def _wake_claims(
        self, pools: list[Key], reason: str, *, unless: Callable[[ClaimEntry], bool] | None = None
    ) -> None:
        keys = [claim for pool in pools for claim in self._by_pool.find(*pool)]
        for claim in filter(None, map(self.cache.get, keys)):
            if not claim.is_deleting and (unless is None or not unless(claim)):
                self.queue.add(claim.key, reason=reason)


def _pool_of(claim: ClaimEntry) -> str | None:
    return claim.view.pool if claim.view is not None else None


def _awaited_name(claim: ClaimEntry) -> str | None:
    """Return the Sandbox that a claim was assigned and has not reported as ready."""
    return None if _is_ready(claim) else assigned_name(claim) or None


def _is_ready(claim: ClaimEntry) -> bool:
    return claim.status is not None and is_true(claim.status.conditions, names.READY)


def _awaited_pool(entry: ClaimEntry) -> Key | None:
    """Return the pool of which a claim takes a member as soon as there is one."""
    if entry.view is None or entry.view.needs_cold_start or entry.is_deleting:
        return None
    conditions = entry.status.conditions if entry.status is not None else ()
    ready = find(conditions, names.READY)
    # A claim that is refused waits for nothing until its spec changes, nor does an expired one.
    is_over = ready is not None and ready.reason in _WANT_NO_MEMBER
    return None if is_over else Key(entry.key.namespace, entry.view.pool)


def _spec_of(entry: PoolEntry | TemplateEntry | None) -> tuple[str, int, bool] | None:
    return (entry.uid, entry.generation, entry.is_deleting) if entry is not None else None


def _repeats(claim: ClaimEntry, status: SandboxStatus) -> bool:
    """Return whether a claim reports what it should of the status of its Sandbox."""
    if claim.status is None:
        return False

    def reported(conditions: Iterable[Condition]) -> tuple[Condition | None, tuple[str, ...]]:
        # Finished is repeated as a whole. The generation of Ready is that of the claim.
        ready = find(conditions, names.READY)
        words = (ready.status, ready.reason, ready.message) if ready is not None else ()
        return find(conditions, names.FINISHED), words

    bound = claim.status.bound
    is_there = (bound.podIPs, bound.serviceFQDN) == (status.podIPs, status.serviceFQDN)
    return is_there and reported(claim.status.conditions) == reported(status.conditions)


def _attributes(entry: ClaimEntry) -> dict[str, str]:
    """Return the attributes of the span of a claim's reconcile, as in the reference controller."""
    created_by = (entry.labels or {}).get(names.CREATED_BY_LABEL)
    return {names.CREATED_BY_LABEL: names.normalise_created_by(created_by)} if created_by else {}

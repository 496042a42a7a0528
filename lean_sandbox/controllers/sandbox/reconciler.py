"""The Sandbox reconciler: one pass over one Sandbox (spec, section 3).

A pass reads the caches, fetches a full object only where something relevant is not known, lets the
pure plans decide, acts, and ends by writing the status if it differs. Requests of a pass: none when
nothing is to be done; docs/design.md has the budget of each flow.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog

from lean_sandbox.clock import Clock
from lean_sandbox.controllers.sandbox.act import Act
from lean_sandbox.controllers.sandbox.children import Children, ChildrenOutcome
from lean_sandbox.controllers.sandbox.failures import OvertakenError
from lean_sandbox.controllers.sandbox.launch import StatusThrottle, is_news, is_on_the_way_up
from lean_sandbox.controllers.sandbox.metrics import SandboxMetrics
from lean_sandbox.controllers.sandbox.notes import Notes
from lean_sandbox.controllers.sandbox.teardown import Teardown
from lean_sandbox.kube.errors import Invalid
from lean_sandbox.kube.terminating import ENDING_S
from lean_sandbox.model import conditions, names
from lean_sandbox.model.sandbox import EMPTY_STATUS, Sandbox, SandboxStatus
from lean_sandbox.model.times import has_come, time_left_s
from lean_sandbox.runtime.tracing import Tracing
from lean_sandbox.runtime.workers import Result
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.objects import SandboxEntry
from lean_sandbox.watch.store import Key

log = structlog.get_logger("sandbox")

# A reconcile for the expiry alone never comes sooner: expiry may be noticed up to this much late.
_LEAST_EXPIRY_WAIT_S = 2.0
# After a Sandbox was marked as expired, its teardown follows in a reconcile of its own.
_MARKED_REQUEUE_S = 0.001
_SUSPENDED_FOR_GOOD = frozenset({names.REASON_POD_TERMINATED, names.REASON_POD_NOT_OWNED})


class PassFailedError(Exception):
    """A pass that could not bring the Sandbox to the state it should have; it is repeated.

    ``retry_after_s`` is how long the server asked to wait, if it did.
    """

    retryable = True

    def __init__(self, text: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the reconciler takes from the settings."""

    cluster_domain: str = "cluster.local"


class SandboxReconciler:
    """Brings Sandboxes to the state their spec asks for."""

    def __init__(
        self,
        caches: Caches,
        act: Act,
        children: Children,
        teardown: Teardown,
        notes: Notes,
        launches: StatusThrottle,
        *,
        clock: Clock,
        options: Options,
        metrics: SandboxMetrics,
        tracing: Tracing | None = None,
        on_gone: Callable[[Key], None] = lambda _key: None,
        on_status: Callable[[SandboxEntry, SandboxStatus, SandboxStatus], None] | None = None,
    ) -> None:
        self._caches = caches
        self._act = act
        self._children = children
        self._teardown = teardown
        self._notes = notes
        self._launches = launches
        self._clock = clock
        self._options = options
        self._metrics = metrics
        self._tracing = tracing
        self._on_gone = on_gone
        self._on_status = on_status
        # Sandboxes of which the server refuses any update, whatever it says, at this generation.
        self._refused: dict[Key, tuple[str, int]] = {}

    async def reconcile(self, key: Key, *, is_start: bool = False) -> Result:
        """Make one pass over a Sandbox.

        ``is_start`` says that only a list has led to it, at the start or the periodic one: what the
        status says was found is then believed, so that neither asks for anything.
        Raises :class:`PassFailedError` or an error of the API tree when it has to be repeated.
        """
        entry = self._caches.sandboxes.get(key)
        if entry is None or entry.is_deleting:
            # Children go by their owner references; nothing is written about an object on its way
            # out.
            self._forget(key)
            return Result()
        sandbox = None
        if entry.needs_look:
            was_unknown = entry.status is None
            sandbox = await self._act.get_sandbox(key)
            entry = self._caches.sandboxes.get(key)
            if sandbox is None or entry is None or entry.is_deleting:
                self._forget(key)
                return Result()
            if entry.needs_look:
                # A newer event has overtaken the answer, and has this key looked at again.
                return Result()
            if was_unknown:
                self._tell_what_was_found(entry)
        if self._tracing is None:
            return await self._pass(entry, sandbox, is_start=is_start)
        parent = (entry.annotations or {}).get(names.TRACE_CONTEXT_ANNOTATION)
        with self._tracing.span("ReconcileSandbox", _attributes(entry), parent):
            await self._leave_trace(entry)
            return await self._pass(entry, sandbox, is_start=is_start)

    async def _pass(
        self, entry: SandboxEntry, sandbox: Sandbox | None, *, is_start: bool
    ) -> Result:
        assert entry.status is not None
        assert entry.view is not None
        old = entry.status
        if entry.fault:
            return await self._refuse(entry, old)
        if self._expired(entry):
            return await self._expire(entry, old)
        self._metrics.looked(entry, old)
        try:
            outcome = await self._children.run(entry, sandbox, is_start=is_start)
        except OvertakenError:
            return Result(requeue_after_s=0.0)
        return await self._conclude(entry, old, outcome)

    def _tell_what_was_found(self, entry: SandboxEntry) -> None:
        """Hand on a status that somebody else wrote: its event has told only that there is one."""
        if self._on_status is not None and entry.status not in (None, EMPTY_STATUS):
            assert entry.status is not None
            self._on_status(entry, EMPTY_STATUS, entry.status)

    def _forget(self, key: Key) -> None:
        self._launches.settled(key)
        self._children.forget(key)
        self._metrics.forget(key)
        self._refused.pop(key, None)
        self._on_gone(key)

    def due_in_s(self, key: Key) -> float | None:
        """Return when a Sandbox expires, in seconds: a backoff must not sleep through it."""
        entry = self._caches.sandboxes.get(key)
        if entry is None or entry.view is None:
            return None
        return self._remaining_s(entry)

    def is_final(self, key: Key) -> bool:
        """Tell whether nothing is to be expected of a Sandbox until somebody changes something."""
        entry = self._caches.sandboxes.get(key)
        if entry is None or entry.is_deleting:
            return True
        if entry.needs_look:
            return False
        assert entry.status is not None
        assert entry.view is not None
        status, view = entry.status, entry.view
        if self._refused.get(key) == (entry.uid, entry.generation):
            return True
        ready = conditions.find(status.conditions, names.READY)
        if ready is None or ready.observedGeneration != entry.generation:
            return False
        if ready.reason == names.REASON_INVALID_CONFIGURATION:
            return True
        if self._expired(entry):
            cleared = conditions.expired_cleared(status, entry.generation, self._clock.now())
            return (
                conditions.is_marked_expired(status)
                and view.shutdown_policy != names.SHUTDOWN_POLICY_DELETE
                and conditions.status_patch(status, cleared) is None
            )
        if view.is_suspended:
            suspended = conditions.find(status.conditions, names.SUSPENDED)
            return suspended is not None and suspended.reason in _SUSPENDED_FOR_GOOD
        if conditions.is_true(status.conditions, names.FINISHED):
            return True
        pods = self._caches.pods.owned_by(key.namespace, entry.uid)
        return ready.status == names.TRUE and len(pods) == 1 and not pods[0].is_stale

    async def _leave_trace(self, entry: SandboxEntry) -> None:
        if self._tracing is None or (entry.annotations or {}).get(names.TRACE_CONTEXT_ANNOTATION):
            return
        carrier = self._tracing.carrier()
        if carrier is not None:
            patch = {"metadata": {"annotations": {names.TRACE_CONTEXT_ANNOTATION: carrier}}}
            await self._act.patch_sandbox(entry, patch)

    async def _refuse(self, entry: SandboxEntry, old: SandboxStatus) -> Result:
        """Say why the spec cannot be acted upon; only a change of it can help."""
        refused = conditions.ready(
            conditions.Observation(generation=entry.generation, invalid=entry.fault)
        )
        listed = conditions.upsert(old.conditions, refused, self._clock.now())
        await self._write_status(entry, old, msgspec.structs.replace(old, conditions=listed))
        return Result()

    # -- expiry ----------------------------------------------------------------------------------

    def _expired(self, entry: SandboxEntry) -> bool:
        assert entry.view is not None
        return has_come(entry.view.shutdown_time, self._clock.now())

    def _remaining_s(self, entry: SandboxEntry) -> float | None:
        assert entry.view is not None
        left_s = time_left_s(entry.view.shutdown_time, self._clock.now())
        return None if left_s is None else max(left_s, _LEAST_EXPIRY_WAIT_S)

    async def _expire(self, entry: SandboxEntry, old: SandboxStatus) -> Result:
        self._launches.settled(entry.key)
        if not conditions.is_marked_expired(old):
            if not old.selector:
                # A selector is published with the first Pod: without one nothing shows whether
                # there is a Pod that lacks the tracking label.
                self._children.lost_sight_of_pod(entry.pod_key)
            marked = conditions.expired_mark(old, entry.generation, self._clock.now())
            await self._write_status(entry, old, marked)
            return Result(requeue_after_s=_MARKED_REQUEUE_S)
        failures = await self._teardown.run(entry)
        assert entry.view is not None
        if entry.view.shutdown_policy == names.SHUTDOWN_POLICY_DELETE:
            # The object goes whatever became of its children: they are collected with it.
            await self._act.delete_sandbox(entry)
            return Result()
        if failures:
            raise PassFailedError("\n".join(failures))
        cleared = conditions.expired_cleared(old, entry.generation, self._clock.now())
        await self._write_status(entry, old, cleared)
        return Result()

    # -- the end of a pass -----------------------------------------------------------------------

    async def _conclude(
        self, entry: SandboxEntry, old: SandboxStatus, outcome: ChildrenOutcome
    ) -> Result:
        now = self._clock.now()
        new = conditions.next_status(
            old,
            outcome.observation,
            now,
            name=entry.key.name,
            namespace=entry.key.namespace,
            cluster_domain=self._options.cluster_domain,
        )
        requeues = [outcome.requeue_after_s, self._remaining_s(entry)]
        has_expired = self._expired(entry)
        if has_expired:
            new = conditions.expired_mark(new, entry.generation, now)
            requeues = [_MARKED_REQUEUE_S]
        if outcome.is_namespace_terminating:
            # Everything in it is about to go; a status would only add to the work (changes,
            # v1.0.3).
            return Result(requeue_after_s=ENDING_S)
        if outcome.is_many_pods:
            self._notes.many_pods(entry, old, new)
        wait_s = 0.0 if outcome.failures else self._may_wait_s(entry.key, old, new)
        if wait_s > 0:
            requeues.append(wait_s)
        else:
            await self._write_status(entry, old, new)
            if not is_on_the_way_up(old, new):
                self._launches.settled(entry.key)
            elif conditions.status_patch(old, new) is not None:
                # Only what was told lengthens the next wait: neither a pass with nothing to tell
                # nor a write that failed, which is repeated as soon as the backoff allows.
                self._launches.published(entry.key, self._clock.monotonic())
        if outcome.failures or outcome.observation.invalid:
            self._metrics.failed(entry)
        if outcome.failures and not has_expired:
            raise _failure(outcome)
        due = [seconds for seconds in requeues if seconds is not None]
        return Result(requeue_after_s=min(due) if due else None)

    def _may_wait_s(self, key: Key, old: SandboxStatus, new: SandboxStatus) -> float:
        if not is_on_the_way_up(old, new) or conditions.status_patch(old, new) is None:
            return 0.0
        news = is_news(old, new)
        return self._launches.remaining_s(key, self._clock.monotonic(), is_news=news)

    async def _write_status(
        self, entry: SandboxEntry, old: SandboxStatus, new: SandboxStatus
    ) -> None:
        patch = conditions.status_patch(old, new)
        if patch is None:
            return
        try:
            await self._act.patch_status(entry, {"status": patch}, new)
        except Invalid as error:
            # An object that its own schema refuses to update, whatever the change: repeating the
            # write cannot help until somebody changes the object (changes, v1.0.6).
            log.warning("status_refused", key=str(entry.key), reason=error.message)
            self._refused[entry.key] = (entry.uid, entry.generation)
            return
        self._notes.status_written(entry, old, new)
        self._metrics.status_written(entry, old, new)
        fresh = self._caches.sandboxes.get(entry.key)
        if self._on_status is not None and fresh is not None and fresh.uid == entry.uid:
            self._on_status(fresh, old, new)


def _failure(outcome: ChildrenOutcome) -> PassFailedError:
    waits = [
        after
        for failure in outcome.failures
        if (after := getattr(failure, "retry_after_s", None)) is not None
    ]
    text = "; ".join(str(failure) for failure in outcome.failures)
    return PassFailedError(text, retry_after_s=max(waits) if waits else None)


def _attributes(entry: SandboxEntry) -> dict[str, str]:
    """Return what the span of a pass says of its Sandbox (spec, 7.6)."""
    attributes = {"sandbox.name": entry.key.name, "sandbox.namespace": entry.key.namespace}
    created_by = (entry.labels or {}).get(names.CREATED_BY_LABEL)
    if created_by is not None:
        attributes[names.CREATED_BY_LABEL] = names.normalise_created_by(created_by)
    return attributes

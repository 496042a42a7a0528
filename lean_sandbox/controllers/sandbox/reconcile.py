"""Brings one Sandbox to the state its spec asks for.

No requests when nothing is to be done; docs/design.md has the budget of each flow.
"""

from __future__ import annotations

import msgspec
import structlog

from lean_sandbox.controllers.sandbox.children import Children
from lean_sandbox.controllers.sandbox.expiry import SandboxExpiry
from lean_sandbox.controllers.sandbox.run import (
    OvertakenError,
    SandboxContext,
    SandboxRun,
    SandboxState,
)
from lean_sandbox.controllers.sandbox.throttle import (
    acknowledges,
    facts_of,
    is_on_the_way_up,
    is_unplaced,
)
from lean_sandbox.kube.errors import ControlPlaneError, message_of
from lean_sandbox.kube.events import Severity
from lean_sandbox.model import names, sandbox_status
from lean_sandbox.model.conditions import find, has_reason, is_true
from lean_sandbox.model.sandbox import EMPTY_STATUS, SandboxStatus
from lean_sandbox.model.times import has_come, time_left_s
from lean_sandbox.runtime.tracing import in_span
from lean_sandbox.runtime.workers import AT_ONCE_S, ReconcileError, Result
from lean_sandbox.watch.kind import Knowledge
from lean_sandbox.watch.resources.sandbox import SandboxEntry

log = structlog.get_logger("sandbox")

# A reconcile for the expiry alone never comes sooner: expiry may be noticed up to this much late.
_LEAST_EXPIRY_WAIT_S = 2.0
# How soon a member of a pool that is refused something tries again, if the pool says nothing. It
# replaces the looks of the safety net, so it is no longer than their longest interval.
_OF_POOL_RETRY_S = 300.0
_SUSPENDED_FOR_GOOD = frozenset({names.REASON_POD_TERMINATED, names.REASON_POD_NOT_OWNED})

# Reason of the Ready condition -> (type, reason, action, note) of the Event emitted when it
# appears, as by the reference controller since v1.0.4; "" stands for the condition's message.
_EVENTS: dict[str, tuple[Severity, str, str, str]] = {
    names.REASON_DEPENDENCIES_READY: ("Normal", "SandboxReady", "Ready", "Sandbox is ready"),
    names.REASON_SANDBOX_SUSPENDED: ("Normal", "SandboxSuspended", "Suspension", ""),
    names.REASON_SANDBOX_EXPIRED: ("Normal", "SandboxExpired", "Expiry", ""),
    names.REASON_POD_SUCCEEDED: ("Normal", "PodSucceeded", "PodCompletion", ""),
    names.REASON_POD_FAILED: ("Warning", "PodFailed", "PodCompletion", ""),
    names.REASON_MULTIPLE_PODS: ("Warning", "MultiplePods", "Reconciling", ""),
}


def is_final(context: SandboxContext, entry: SandboxEntry, state: SandboxState | None) -> bool:
    """Return whether a Sandbox is in its final state until something changes."""
    if entry.needs_fetch:
        return False
    status = entry.status
    view = entry.view
    assert status is not None
    assert view is not None
    if state is not None and state.refused == entry.generation:
        return True
    ready = find(status.conditions, names.READY)
    if ready is None or ready.observedGeneration != entry.generation:
        return False
    if ready.reason == names.REASON_INVALID_CONFIGURATION:
        return True
    now = context.server_time.now()
    if has_come(view.shutdown_time, now):
        cleared = sandbox_status.expired_cleared(status, entry.generation, now)
        return (
            has_reason(status.conditions, names.READY, names.REASON_SANDBOX_EXPIRED)
            and not view.is_deleted_at_expiry
            and sandbox_status.status_patch(status, cleared) is None
        )
    if view.is_suspended:
        suspended = find(status.conditions, names.SUSPENDED)
        return suspended is not None and suspended.reason in _SUSPENDED_FOR_GOOD
    if is_true(status.conditions, names.FINISHED):
        return True
    pods = context.caches.pods.owned_by(entry.key.namespace, entry.uid)
    return ready.status == names.TRUE and len(pods) == 1 and not pods[0].needs_fetch


class SandboxReconcile:
    """One reconcile of one Sandbox: its children, then its status.

    ``is_start``: only a list has led to it, so the published status is trusted without a request.
    """

    def __init__(
        self, context: SandboxContext, entry: SandboxEntry, state: SandboxState, *, is_start: bool
    ) -> None:
        self._context = context
        self._requests = context.requests
        self._run = SandboxRun(context, entry, state, is_start=is_start)
        self._children = Children(self._run)
        self._expiry = SandboxExpiry(self._run)

    async def run(self) -> Result:
        """Bring the Sandbox to what its spec asks for.

        Raises ReconcileError or an API error when that has to be retried.
        """
        was_unknown = self._run.entry.knowledge is Knowledge.UNKNOWN
        if self._run.entry.needs_fetch and not await self._run.fetch():
            return Result()
        try:
            return await self._in_span()
        finally:
            latest = self._context.caches.sandboxes.latest(self._run.entry)
            if was_unknown and latest is not None and latest.status not in (None, EMPTY_STATUS):
                # Somebody else wrote the status. The event showed only that it changed; now it is
                # corrected.
                assert latest.status is not None
                self._context.wakes.status(latest, latest.status)

    async def _in_span(self) -> Result:
        entry = self._run.entry
        parent = (entry.annotations or {}).get(names.TRACE_CONTEXT_ANNOTATION, "")
        with in_span("ReconcileSandbox", _attributes(entry), parent) as trace:
            if trace:
                await self._requests.annotate(entry, names.TRACE_CONTEXT_ANNOTATION, trace)
            return await self._serve()

    async def _serve(self) -> Result:
        try:
            if self._is_expired():
                return await self._expire()
            self._context.metrics.looked(self._run.entry, self._run.old)
            await self._children.sync()
            return await self._conclude()
        except OvertakenError:
            return Result(requeue_after_s=0.0)

    def _is_of_pool(self) -> bool:
        # The pool does not try a member again whose spec somebody has edited.
        owner = self._run.entry.owner_key(names.SANDBOX_WARM_POOL_KIND)
        return owner is not None and self._run.entry.generation <= 1

    def _is_expired(self) -> bool:
        return has_come(self._run.view.shutdown_time, self._context.server_time.now())

    async def _expire(self) -> Result:
        entry = self._run.entry
        old = self._run.old
        # A step of its Pod may have been seen since it was marked.
        self._context.throttle.settled(self._run.key)
        # Nothing is deleted before the status says why, unless the schema refuses every status.
        is_mute = self._run.state.refused == entry.generation
        if not is_mute and not has_reason(
            old.conditions, names.READY, names.REASON_SANDBOX_EXPIRED
        ):
            return await self._mark_expired(old)
        failures = []
        for end in (self._expiry.end_pod, self._expiry.end_service):
            self._run.check_unchanged()
            try:
                await end()
            except ReconcileError as error:
                failures.append(error)
        if self._run.view.is_deleted_at_expiry:
            # It is deleted even if its children could not be: they are garbage-collected with it.
            await self._requests.delete_sandbox(self._run.check_unchanged())
            return Result()
        if failures:
            raise ReconcileError("\n".join(map(str, failures)), *failures)
        if not is_mute:
            now = self._context.server_time.now()
            await self._write_status(sandbox_status.expired_cleared(old, entry.generation, now))
        return Result()

    async def _mark_expired(self, status: SandboxStatus) -> Result:
        """Write ``status`` as that of an expired Sandbox; a reconcile of its own tears it down.

        The status keeps the selector while there is a Pod: the next process may find the Pod by
        nothing else.
        """
        entry = self._run.entry
        # A Sandbox that is deleted takes its Pod with it.
        is_looked_for = not (status.selector or self._run.view.is_deleted_at_expiry)
        if is_looked_for and await self._expiry.find_pod(entry.pod_key) is not None:
            selector = sandbox_status.selector_of(self._run.key.name)
            status = msgspec.structs.replace(status, selector=selector)
        now = self._context.server_time.now()
        marked = sandbox_status.expired_mark(status, entry.generation, now)
        # Its user may have postponed the end, which the watch is yet to show.
        await self._write_status(marked, is_guarded=True)
        return Result(requeue_after_s=AT_ONCE_S)

    async def _conclude(self) -> Result:
        context = self._context
        old = self._run.old
        key = self._run.key
        now = context.server_time.now()
        observation = self._children.observation()
        new = sandbox_status.next_status(
            old,
            observation,
            now,
            name=key.name,
            namespace=key.namespace,
            cluster_domain=context.settings.cluster_domain,
        )
        if self._run.failures or observation.invalid:
            context.metrics.failed(self._run.entry)
        if has_come(self._run.view.shutdown_time, now):
            return await self._mark_expired(new)
        requeue = self._run.requeue
        # By the same moment: between two of them its time could end unseen.
        left_s = time_left_s(self._run.view.shutdown_time, now)
        requeue.within(None if left_s is None else max(left_s, _LEAST_EXPIRY_WAIT_S))
        await self._publish(new, observation)
        if self._run.failures:
            failure = ReconcileError("; ".join(map(str, self._run.failures)), *self._run.failures)
            if not (failure.is_refusal and self._is_of_pool()):
                raise failure
            # The pool says when its members try again, so that all together do so seldom.
            requeue.within(_OF_POOL_RETRY_S)
        return requeue.result

    async def _publish(self, new: SandboxStatus, observation: sandbox_status.Observation) -> None:
        """Write the status, or ask for another reconcile if its step has to wait for a window."""
        clock = self._context.clock
        throttle = self._context.throttle
        key = self._run.key
        old = self._run.old
        is_going_up = is_on_the_way_up(old, new)
        is_step = is_going_up and sandbox_status.status_patch(old, new) is not None
        facts = facts_of(trouble=observation.pod and observation.pod.trouble, address=new.podIPs)
        if is_step and not self._run.failures and not acknowledges(old, new):
            wait_s = throttle.hold_step(
                key, clock.monotonic(), is_news=is_unplaced(old, new), facts=facts
            )
            if wait_s > 0:
                self._run.requeue.within(wait_s)
                return
        await self._write_status(new)
        if not is_going_up:
            throttle.settled(key)
        elif is_step:
            # Only what was published lengthens the next wait.
            throttle.published(key, clock.monotonic(), facts=facts)

    async def _write_status(self, new: SandboxStatus, *, is_guarded: bool = False) -> None:
        entry = self._run.check_unchanged() if is_guarded else self._run.entry
        old = self._run.old
        patch = sandbox_status.status_patch(old, new)
        if patch is None:
            return
        try:
            await self._requests.patch_status(entry, {"status": patch}, new, is_guarded=is_guarded)
        except ControlPlaneError as error:
            if not error.is_schema_refusal:
                raise
            # The schema refuses any update of the object until the object is changed.
            log.warning("status_refused", key=str(entry.key), reason=message_of(error))
            self._run.state.refused = entry.generation
            return
        self._run.state.refused = None
        self._report(new)
        self._context.metrics.status_written(entry, old, new)
        if (fresh := self._context.caches.sandboxes.latest(entry)) is not None:
            self._context.wakes.status(fresh, new)

    def _report(self, new: SandboxStatus) -> None:
        ready = find(new.conditions, names.READY)
        before = find(self._run.old.conditions, names.READY)
        assert ready is not None
        if before is not None and before.reason == ready.reason:
            return
        is_lost = before is not None and before.status == names.TRUE
        if ready.reason == names.REASON_SANDBOX_EXPIRED and self._run.view.is_deleted_at_expiry:
            return
        if ready.reason in _EVENTS:
            type_, reason, action, note = _EVENTS[ready.reason]
            self._context.events.emit(self._run.entry, type_, reason, action, note or ready.message)
        elif ready.reason != names.REASON_DEPENDENCIES_NOT_READY or is_lost:
            self._context.events.log(
                self._run.entry,
                "Warning",
                "SandboxNotReady",
                reason=ready.reason,
                message=ready.message,
            )


def _attributes(entry: SandboxEntry) -> dict[str, str]:
    attributes = {"sandbox.name": entry.key.name, "sandbox.namespace": entry.key.namespace}
    created_by = (entry.labels or {}).get(names.CREATED_BY_LABEL)
    if created_by is not None:
        attributes[names.CREATED_BY_LABEL] = names.normalise_created_by(created_by)
    return attributes

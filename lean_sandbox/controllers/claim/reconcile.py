"""One reconcile of one claim.

The writes that a client waits for come first: the patch that takes a member over, the patch after
which its Pod no longer looks free, and the status that names it, with the annotations in parallel.
Events follow. The reconcile of a bound claim whose Sandbox reports nothing new makes no request.
"""

from __future__ import annotations

from collections.abc import Awaitable

from lean_sandbox.controllers.claim.adopt import Adoption
from lean_sandbox.controllers.claim.bind import Binding
from lean_sandbox.controllers.claim.context import ClaimContext
from lean_sandbox.controllers.claim.expiry import ClaimExpiry, observed
from lean_sandbox.controllers.claim.find import OwnSandbox
from lean_sandbox.controllers.claim.legacy import delete_legacy_policy
from lean_sandbox.controllers.claim.requests import ClaimRequests
from lean_sandbox.controllers.claim.state import ClaimState
from lean_sandbox.controllers.claim.sync import BoundMetadata
from lean_sandbox.controllers.claim.usable import make_usable
from lean_sandbox.controllers.metrics import launch_of
from lean_sandbox.controllers.resolver import NotYetError
from lean_sandbox.kube.errors import Conflict, ControlPlaneError, Forbidden, Invalid, message_of
from lean_sandbox.model import names
from lean_sandbox.model.claim import EMPTY_CLAIM_STATUS, SandboxClaimSpec, SandboxClaimStatus
from lean_sandbox.model.claim_additions import validate_additional_metadata
from lean_sandbox.model.claim_status import (
    ClaimError,
    ClaimFault,
    Retry,
    expired_claim_status,
    next_claim_status,
    requeue_after_s,
)
from lean_sandbox.model.conditions import find, is_true
from lean_sandbox.runtime.workers import AT_ONCE_S, ReconcileError, Requeue, Result
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry


async def reconcile(context: ClaimContext, entry: ClaimEntry, state: ClaimState) -> Result:
    """Serve a claim; raises ReconcileError or an API error when it has to be retried."""
    await delete_legacy_policy(context, entry)
    if entry.is_deleting:
        return Result()
    if entry.needs_fetch:
        await context.writer.get(context.caches.claims, entry.key)
        fetched = context.caches.claims.latest(entry)
        if fetched is None or fetched.needs_fetch or fetched.is_deleting:
            # If there is another claim of the name, its own event leads to a reconcile.
            return Result()
        entry = fetched
    return await ClaimReconcile(context, entry, state).run()


class ClaimReconcile:
    """One reconcile of one claim: which Sandbox it gets, and its status."""

    def __init__(self, context: ClaimContext, entry: ClaimEntry, state: ClaimState) -> None:
        assert entry.view is not None
        assert entry.status is not None
        self._context = context
        self._entry = entry
        self._view = entry.view
        self._state = state
        self._old = entry.status
        self._requests = ClaimRequests(context, entry)
        self._expiry = ClaimExpiry(context, entry, self._requests)
        self._adoption = Adoption(context, entry, state)
        self._own = OwnSandbox(context, entry, state, self._adoption)
        self._binding = Binding(context, entry, state, self._adoption)
        self._metadata = BoundMetadata(context, entry, self._adoption)
        # Both are set when something fails for a bound Sandbox.
        self._sandbox: SandboxEntry | None = None
        self._error: ClaimError | None = None
        # Whether the work of the claim has ended, and the Sandbox that did it is gone.
        self._is_over = False

    async def run(self) -> Result:
        """Serve the claim, or end it."""
        entry = self._entry
        try:
            if self._expiry.is_due(self._old):
                return await self._expiry.run()
            await self._attempt(self._bind())
            return await self._conclude()
        except NotYetError as wait:
            requeue = Requeue()
            requeue.within(wait.after_s)
            requeue.within(self._expiry.left_s(self._old))
            return requeue.result
        except Conflict:
            # The next try has to know the state that this one did not.
            await self._context.writer.get(self._context.caches.claims, entry.key)
            raise
        finally:
            self._adoption.judge(has_sandbox=self._sandbox is not None)
            self._binding.announce()

    # -- serving ---------------------------------------------------------------------------------

    async def _attempt(self, step: Awaitable[None]) -> None:
        """Run one step of serving the claim; its error becomes the condition of the claim."""
        try:
            await step
        except ClaimError as error:
            self._error = error
        except ControlPlaneError as error:
            if error.namespace_terminating:
                raise
            self._error = ClaimError(ClaimFault.OTHER, message_of(error))
            self._error.__cause__ = error

    async def _bind(self) -> None:
        """Find the claim's Sandbox, or bind the claim to the first of these that exists.

        1. Its own, by the table of :mod:`.owned`.
        2. None if its work has ended, which is not done again.
        3. The one that its annotation names, which another process began to hand over.
        4. The one of its own name, if that was restored without its owner.
        5. A member of its pool, unless no member can serve the claim, or one just could not.
        6. A new one.
        """
        view = self._view
        if self._entry.fault:
            raise ClaimError(ClaimFault.OTHER, self._entry.fault)
        domains = self._context.settings.allowed_label_domains
        validate_additional_metadata(view.additional, domains, refusal=view.refusal)
        self._sandbox = await self._own.find()
        if self._sandbox is None and is_true(self._old.conditions, names.FINISHED):
            self._is_over = True
            return
        if self._sandbox is None:
            self._sandbox = await self._own.find_named()
        # Perhaps it has lost its Sandbox because it is being deleted itself.
        was_bound = bool(self._old.bound.name)
        if self._sandbox is None and not (view.needs_cold_start or self._state.needs_new):
            if was_bound and self._context.warm.to_take(self._adoption.pool):
                await self._requests.fetch()
            self._sandbox = await self._binding.take()
        if self._sandbox is not None:
            # A member just taken needs no request, unless its pool has another template by now.
            self._sandbox = await self._metadata.sync(self._sandbox)
            return
        template = await self._binding.template()
        # Variables and volume claims are not in the cache.
        is_read = was_bound or view.needs_cold_start
        spec = (await self._requests.fetch()).spec if is_read else SandboxClaimSpec()
        self._sandbox = await self._binding.make(spec, template)

    # -- reporting -------------------------------------------------------------------------------

    async def _conclude(self) -> Result:
        if self._is_status_unknown():
            raise NotYetError
        new = self._next_status()
        if self._sandbox is not None and self._is_to_become_ready(new):
            await self._attempt(make_usable(self._context, self._sandbox, self._state))
            if self._error is not None and self._is_member_refused(self._error):
                await self._binding.start_anew(self._error.text)
            new = self._next_status()
        else:
            self._state.unusable_s = 0.0
        if self._sandbox is not None:
            self._state.needs_new = False
            self._state.ended = ""
        error = self._error
        if error is None and self._expiry.is_due(new):
            now = self._context.server_time.now()
            await self._write(expired_claim_status(new, self._entry.generation, now))
            return self._expiry.reported()
        await self._publish(new)
        left_s = self._expiry.left_s(new)
        if left_s == AT_ONCE_S:
            # Its end has come meanwhile.
            return Result(requeue_after_s=left_s)
        collisions = self._state.count_collisions(error)
        if error is not None and error.fault.retry is Retry.BACKOFF:
            raise ReconcileError(str(error), error.__cause__)
        requeue = Requeue()
        requeue.within(requeue_after_s(error, collisions))
        requeue.within(left_s)
        return requeue.result

    def _is_member_refused(self, error: ClaimError) -> bool:
        """Return whether the server does not let the Pod of the member just taken be patched."""
        is_refusal = isinstance(error.__cause__, (Forbidden, Invalid))
        return self._binding.taken is not None and is_refusal

    def _next_status(self) -> SandboxClaimStatus:
        now = self._context.server_time.now()
        seen = observed(self._entry, self._sandbox, self._error, is_over=self._is_over)
        return next_claim_status(self._old, seen, now)

    async def _publish(self, new: SandboxClaimStatus) -> None:
        """Write the status, then the annotations, and drop what it does not name."""
        is_first = self._old == EMPTY_CLAIM_STATUS
        if is_first:
            # Before the status, so that the annotations are sent in parallel.
            self._annotate(new)
        written = await self._write(new)
        if written and not is_first:
            # Not in parallel: they change the version that may guard this status.
            self._annotate(new)
        if self._sandbox is not None and self._error is None:
            await self._requests.drop_unnamed(self._sandbox)
        if written:
            self._log_outcome(new)

    async def _write(self, new: SandboxClaimStatus) -> bool:
        """Write the status if it differs; false if the claim is gone, or bound elsewhere."""
        began = self._context.clock.monotonic()
        written = await self._requests.write_status(new, has_sandbox=self._sandbox is not None)
        if self._binding.taken is not None:
            self._context.metrics.stage("status", began)
        return written

    def _log_outcome(self, new: SandboxClaimStatus) -> None:
        """Log, after the status was written, that the claim is ready or why it is not served."""
        entry = self._entry
        context = self._context
        sandbox = self._sandbox
        was_ready = is_true(self._old.conditions, names.READY)
        is_ready_now = is_true(new.conditions, names.READY) and not was_ready
        first_seen = self._state.first_seen
        if sandbox is not None and is_ready_now and first_seen is not None:
            self._state.first_seen = None
            now = context.server_time.now()
            took_ms = context.metrics.first_ready(entry, sandbox, first_seen, now)
            name = sandbox.key.name
            launch = launch_of(sandbox)
            context.events.log(
                entry, "Normal", "ClaimReady", sandbox=name, launch=launch, took_ms=took_ms
            )
        ready = find(new.conditions, names.READY)
        if self._error is None or ready is None:
            return
        said = find(self._old.conditions, names.READY)
        if said is None or (said.reason, said.message) != (ready.reason, ready.message):
            context.events.log(
                entry, "Warning", "ClaimNotServed", reason=ready.reason, message=ready.message
            )

    def _is_status_unknown(self) -> bool:
        """Return whether somebody else wrote the bound Sandbox's status, and it is not read yet.

        The fetch that follows wakes the claim; until then the claim's status stays as it is.
        """
        sandbox = self._sandbox
        return (
            sandbox is not None
            and sandbox.key.name == self._old.bound.name
            and sandbox.status is None
        )

    def _is_to_become_ready(self, new: SandboxClaimStatus) -> bool:
        """Return whether ``new`` tells a client for the first time that it can use the Sandbox."""
        was_ready = is_true(self._old.conditions, names.READY)
        is_another = new.bound.name != self._old.bound.name
        return is_true(new.conditions, names.READY) and (is_another or not was_ready)

    def _annotate(self, new: SandboxClaimStatus) -> None:
        # The latest entry: this reconcile may have removed a reference to another's Sandbox.
        self._context.annotator.annotate(
            self._context.caches.claims.latest(self._entry) or self._entry,
            self._state,
            self._sandbox,
            was_ready=is_true(self._old.conditions, names.READY),
            is_ready=is_true(new.conditions, names.READY),
            is_refused=self._error is not None,
        )

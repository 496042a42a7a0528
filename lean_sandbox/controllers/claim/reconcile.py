"""One reconcile of one claim.

The writes that a client waits for come first: the patch that takes a member over, the patch after
which its Pod no longer looks free, and the status that names it, with the annotations in parallel.
Events follow. The reconcile of a bound claim whose Sandbox reports nothing new makes no request.
"""

from __future__ import annotations

from collections.abc import Awaitable

from lean_sandbox.controllers.claim.adopt import judge
from lean_sandbox.controllers.claim.bind import (
    announce,
    make_sandbox,
    start_anew,
    take_member,
    template_to_start,
)
from lean_sandbox.controllers.claim.expiry import expire, is_due, left_s, mark_expired
from lean_sandbox.controllers.claim.find import find_named, find_own
from lean_sandbox.controllers.claim.legacy import delete_legacy_policy
from lean_sandbox.controllers.claim.requests import drop_unnamed, fetch_claim, write_status
from lean_sandbox.controllers.claim.run import ClaimContext, ClaimRun
from lean_sandbox.controllers.claim.state import ClaimState
from lean_sandbox.controllers.claim.sync import sync_metadata
from lean_sandbox.controllers.claim.usable import make_usable
from lean_sandbox.controllers.metrics import launch_of
from lean_sandbox.controllers.resolver import NotYetError
from lean_sandbox.kube.errors import Conflict, ControlPlaneError, Forbidden, Invalid, message_of
from lean_sandbox.model import names
from lean_sandbox.model.claim import EMPTY_CLAIM_STATUS, SandboxClaimSpec, SandboxClaimStatus
from lean_sandbox.model.claim_additions import validate_additional_metadata
from lean_sandbox.model.claim_status import ClaimError, ClaimFault, Retry, requeue_after_s
from lean_sandbox.model.conditions import find, is_true
from lean_sandbox.runtime.workers import ReconcileError, Requeue, Result
from lean_sandbox.watch.resources.extensions import ClaimEntry


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
    return await _serve(ClaimRun(context, entry, state))


async def _serve(run: ClaimRun) -> Result:
    """Serve the claim, or end it."""
    try:
        if is_due(run, run.old):
            return await expire(run)
        await _attempt(run, _bind(run))
        return await _conclude(run)
    except NotYetError as wait:
        requeue = Requeue()
        requeue.within(wait.after_s)
        requeue.within(left_s(run, run.old))
        return requeue.result
    except Conflict:
        # The next try has to know the state that this one did not.
        await run.writer.get(run.context.caches.claims, run.entry.key)
        raise
    finally:
        judge(run)
        announce(run)


# --- serving -------------------------------------------------------------------------------------


async def _attempt(run: ClaimRun, step: Awaitable[None]) -> None:
    """Run one step of serving the claim; its error becomes the condition of the claim."""
    try:
        await step
    except ClaimError as error:
        run.error = error
    except ControlPlaneError as error:
        if error.namespace_terminating:
            raise
        run.error = ClaimError(ClaimFault.OTHER, message_of(error))
        run.error.__cause__ = error


async def _bind(run: ClaimRun) -> None:
    """Find the claim's Sandbox, or bind the claim to the first of these that exists.

    1. Its own, by the table of :mod:`.owned`.
    2. None if its work has ended, which is not done again.
    3. The one that its annotation names, which another process began to hand over.
    4. The one of its own name, if that was restored without its owner.
    5. A member of its pool, unless no member can serve the claim, or one just could not.
    6. A new one.
    """
    view = run.view
    if run.entry.fault:
        raise ClaimError(ClaimFault.OTHER, run.entry.fault)
    domains = run.context.settings.allowed_label_domains
    validate_additional_metadata(view.additional, domains, refusal=view.refusal)
    run.sandbox = await find_own(run)
    if run.sandbox is None and is_true(run.old.conditions, names.FINISHED):
        run.is_over = True
        return
    if run.sandbox is None:
        run.sandbox = await find_named(run)
    # Perhaps it has lost its Sandbox because it is being deleted itself.
    was_bound = bool(run.old.bound.name)
    if run.sandbox is None and not (view.needs_cold_start or run.state.needs_new):
        if was_bound and run.context.warm.to_take(run.pool):
            await fetch_claim(run)
        run.sandbox = await take_member(run)
    if run.sandbox is not None:
        # A member just taken needs no request, unless its pool has another template by now.
        run.sandbox = await sync_metadata(run, run.sandbox)
        return
    template = await template_to_start(run)
    # Variables and volume claims are not in the cache.
    is_read = was_bound or view.needs_cold_start
    spec = (await fetch_claim(run)).spec if is_read else SandboxClaimSpec()
    run.sandbox = await make_sandbox(run, spec, template)


# --- reporting -----------------------------------------------------------------------------------


async def _conclude(run: ClaimRun) -> Result:
    if _is_status_unknown(run):
        raise NotYetError
    new = run.next_status()
    if run.sandbox is not None and _is_to_become_ready(run, new):
        await _attempt(run, make_usable(run, run.sandbox))
        if run.taken is not None and _is_refused(run):
            await start_anew(run, run.taken)
        new = run.next_status()
    else:
        run.state.unusable_s = 0.0
    if run.sandbox is not None:
        run.state.needs_new = False
        run.state.ended = ""
    error = run.error
    if error is None and is_due(run, new):
        return await mark_expired(run, new)
    await _publish(run, new)
    collisions = run.state.count_collisions(error)
    if error is not None and error.fault.retry is Retry.BACKOFF:
        raise ReconcileError(str(error), error.__cause__)
    requeue = Requeue()
    requeue.within(requeue_after_s(error, collisions))
    requeue.within(left_s(run, new))
    return requeue.result


async def _publish(run: ClaimRun, new: SandboxClaimStatus) -> None:
    """Write the status, then the annotations, and drop what it does not name."""
    is_first = run.old == EMPTY_CLAIM_STATUS
    if is_first:
        # Before the status, so that the annotations are sent in parallel.
        _annotate(run, new)
    written = await write_status(run, new)
    if written and not is_first:
        # Not in parallel: they change the version that may guard this status.
        _annotate(run, new)
    if run.sandbox is not None and run.error is None:
        await drop_unnamed(run, run.sandbox)
    if written:
        _log_outcome(run, new)


def _log_outcome(run: ClaimRun, new: SandboxClaimStatus) -> None:
    """Log, after the status was written, that the claim is ready or why it is not served."""
    context = run.context
    was_ready = is_true(run.old.conditions, names.READY)
    is_ready_now = is_true(new.conditions, names.READY) and not was_ready
    first_seen = run.state.first_seen
    if run.sandbox is not None and is_ready_now and first_seen is not None:
        run.state.first_seen = None
        now = context.server_time.now()
        took_ms = context.metrics.first_ready(run.entry, run.sandbox, first_seen, now)
        name = run.sandbox.key.name
        launch = launch_of(run.sandbox)
        context.events.log(
            run.entry, "Normal", "ClaimReady", sandbox=name, launch=launch, took_ms=took_ms
        )
    ready = find(new.conditions, names.READY)
    if run.error is None or ready is None:
        return
    said = find(run.old.conditions, names.READY)
    if said is None or (said.reason, said.message) != (ready.reason, ready.message):
        context.events.log(
            run.entry, "Warning", "ClaimNotServed", reason=ready.reason, message=ready.message
        )


def _is_refused(run: ClaimRun) -> bool:
    """Return whether the server refuses what serves the claim, such as a patch of its Pod."""
    error = run.error
    return error is not None and isinstance(error.__cause__, (Forbidden, Invalid))


def _is_status_unknown(run: ClaimRun) -> bool:
    """Return whether somebody else wrote the bound Sandbox's status, and it is not read yet.

    The fetch that follows wakes the claim; until then the claim's status stays as it is.
    """
    sandbox = run.sandbox
    return sandbox is not None and sandbox.key.name == run.old.bound.name and sandbox.status is None


def _is_to_become_ready(run: ClaimRun, new: SandboxClaimStatus) -> bool:
    """Return whether ``new`` tells a client for the first time that it can use the Sandbox."""
    old = run.old
    was_ready = is_true(old.conditions, names.READY)
    is_another = new.bound.name != old.bound.name
    return is_true(new.conditions, names.READY) and (is_another or not was_ready)


def _annotate(run: ClaimRun, new: SandboxClaimStatus) -> None:
    # The latest entry: this reconcile may have removed a reference to another's Sandbox.
    run.context.annotator.annotate(
        run.context.caches.claims.latest(run.entry) or run.entry,
        run.state,
        run.sandbox,
        was_ready=is_true(run.old.conditions, names.READY),
        is_ready=is_true(new.conditions, names.READY),
        is_refused=run.error is not None,
    )

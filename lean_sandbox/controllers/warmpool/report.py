"""What a pool reports: that it makes no progress and why, and the counts of its status."""

from __future__ import annotations

from lean_sandbox.controllers.common import reference_to
from lean_sandbox.controllers.warmpool.members import PoolMembers, may_be_let_in
from lean_sandbox.controllers.warmpool.run import PoolRun
from lean_sandbox.controllers.warmpool.state import PoolProblem
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.kube.resources import SANDBOXTEMPLATES
from lean_sandbox.model.claim_status import ClaimFault
from lean_sandbox.model.conditions import whole_status
from lean_sandbox.model.times import format_duration
from lean_sandbox.model.warmpool import SandboxWarmPoolStatus
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How long a problem that may pass by itself, such as a refusal, lasts before it is reported.
_PATIENCE_S = 5.0
# The counts are written at most this often.
_STATUS_INTERVAL_S = 1.0
# How long a new leader takes to learn how members do; one that cannot be read is never known.
_UNKNOWN_S = 60.0
# While a window lasts, the status may report this many ready members too many.
_MOST_AHEAD = 10
# How often a pool without its template is reconciled, apart from events.
_MISSING_TEMPLATE_REQUEUE_S = 60.0
# How long failed members count as the newest outcome, at least and in periods of grace.
_LEAST_FAILURE_S = 600.0
_FAILURE_GRACES = 2.0


def report_progress(run: PoolRun, members: PoolMembers) -> None:
    """Emit an Event when the pool stops or resumes progress, or another reason stops it.

    The pool is requeued while it makes none.
    """
    state = run.state
    emit = run.context.events.emit
    problem = _problem(run, members)
    now = run.now
    if problem is None:
        state.stuck_by = ""
        if state.reported is not None:
            text = "Warm pool is progressing again"
            emit(run.entry, "Normal", "WarmPoolProgressing", "Reconciling", text)
        state.reported = None
        return
    run.requeue.within(problem.requeue_s)
    if state.stuck_by != problem.reported_as:
        state.stuck_since = now
        state.stuck_by = problem.reported_as
    if state.reported is None or state.reported.reported_as != problem.reported_as:
        left_s = state.stuck_since + _PATIENCE_S - now
        if problem.may_pass and left_s > 0:
            run.requeue.within(left_s)
            return
        note = problem.note
        related = problem.related
        emit(run.entry, "Warning", "WarmPoolNotProgressing", "Reconciling", note, related)
    state.reported = problem


def _problem(run: PoolRun, members: PoolMembers) -> PoolProblem | None:
    view = run.view
    state = run.state
    context = run.context
    if run.template is None:
        if view.replicas == 0:
            return None
        key = Key(view.namespace, view.template)
        fault = context.resolver.template_fault(key)
        held = context.caches.templates.get(key)
        note = fault or f'SandboxTemplate not found: "{view.template}"'
        # Otherwise it would be a repetition of the Event that the template is missing.
        related = reference_to(held, SANDBOXTEMPLATES) if held is not None else None
        return PoolProblem("template", note, _MISSING_TEMPLATE_REQUEUE_S, related=related)
    if members.total < view.replicas:
        lack = context.resolver.unprotected(run.template)
        if lack is not None:
            may_pass = lack.fault is not ClaimFault.POLICY_IMPOSSIBLE
            return PoolProblem("policy", lack.text, may_pass=may_pass)
        if state.refusal:
            note = f"creating sandboxes is refused: {state.refusal}"
            return PoolProblem("create", note, may_pass=True)
    if members.refused:
        return PoolProblem("refused", _refusal(run, members.refused), may_pass=True)
    if members.held:
        text = (
            f"{len(members.held)}/{view.replicas} sandboxes are unschedulable past the "
            f"{format_duration(run.grace_s)} readiness grace period; holding them "
            "instead of replacing (replacements would be equally unschedulable)"
        )
        recheck_s = context.settings.sandbox_warm_pool_unschedulable_recheck_interval
        return PoolProblem("unschedulable", text, recheck_s)
    lasts_s = max(_LEAST_FAILURE_S, _FAILURE_GRACES * run.grace_s)
    failure = state.outcomes.failure(run.now, lasts_s=lasts_s)
    if failure and view.replicas > 0:
        return PoolProblem("failing", failure, may_pass=True)
    return None


def _refusal(run: PoolRun, refused: list[SandboxEntry]) -> str:
    latest = max(refused, key=lambda one: one.created_at)
    until = "and tried again" if may_be_let_in(latest) else "until the template is edited"
    count = f"{len(refused)}/{run.view.replicas}"
    return f"{count} sandboxes are refused {until}: {why_unready(latest)}"


async def write_status(run: PoolRun, members: PoolMembers) -> None:
    """Write the counts if they changed, or requeue if it is too early for that.

    A pool that is being refilled differs from its status for a moment only: when it is full again
    within the window, nothing has to be written at all. The first status of a pool, and of each
    other spec of it, is written at once, because autoscalers and waiting users need its selector
    and its generation. So is a status that reports far too many ready members, because readers
    would take the pool for full.
    """
    context = run.context
    entry = run.entry
    state = run.state
    now = run.now
    # None after a write whose response was lost.
    old = entry.status
    new = _status_of(run, members)
    if new == old:
        state.differs_since = None
        return
    if state.differs_since is None:
        state.differs_since = now
    window_s = _window_s(run, new, members)
    due = max(state.status_at + _STATUS_INTERVAL_S, state.differs_since + window_s)
    if due > now:
        run.requeue.within(due - now)
        return
    try:
        await context.writer.patch(
            context.caches.pools,
            entry,
            {"status": whole_status(new)},
            status=new,
            generation=entry.generation,
        )
    except ControlPlaneError as error:
        # The backoff of the pool says when to try again.
        run.errors.append(error)
    else:
        state.status_at = run.now
        state.differs_since = None


def _status_of(run: PoolRun, members: PoolMembers) -> SandboxWarmPoolStatus:
    return SandboxWarmPoolStatus(
        replicas=len(members.active),
        readyReplicas=members.ready,
        selector=run.view.selector,
        observedGeneration=run.view.generation,
    )


def _window_s(run: PoolRun, new: SandboxWarmPoolStatus, members: PoolMembers) -> float:
    """Return for how long a status that differs may wait."""
    if members.unknown:
        return _UNKNOWN_S
    old = run.entry.status
    is_full = new.replicas == new.readyReplicas == run.view.replicas
    # The first status of a pool, or of another spec of it.
    is_first = old is not None and old.observedGeneration != new.observedGeneration
    is_failing = bool(run.errors or run.state.refusal)
    is_urgent = is_full or is_first or is_failing or reports_too_many(run, members)
    return 0.0 if is_urgent else run.context.settings.sandbox_status_window


def reports_too_many(run: PoolRun, members: PoolMembers) -> bool:
    """Return whether the status reports far more ready members than there are."""
    old = run.entry.status
    return old is not None and old.readyReplicas - members.ready > _MOST_AHEAD


def why_unready(member: SandboxEntry) -> str:
    """Return what a member says of itself."""
    ready = member.ready
    return (ready.message or ready.reason) if ready is not None else "nothing is known of it yet"

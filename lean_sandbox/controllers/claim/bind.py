"""From a claim to its Sandbox: one of its pool, or a new one.

A warm claim costs one request here: the patch that takes the member over. A member is handed out in
memory to one claim at a time; a claim takes the next one at once if another process was faster, or
if an admission policy refuses the member.

Each function may raise ClaimError if the claim cannot have what it asks for, NotYetError if nothing
is to be written yet, and the errors of requests.
"""

from __future__ import annotations

from typing import Never

from lean_sandbox.controllers.claim.adopt import give_up, is_recreate, staleness_of, take_over
from lean_sandbox.controllers.claim.owned import is_controlled
from lean_sandbox.controllers.claim.run import SOON_READY_S, ClaimRun
from lean_sandbox.controllers.common import reference_to
from lean_sandbox.controllers.resolver import NotYetError
from lean_sandbox.kube.errors import AlreadyExists, ControlPlaneError, message_of
from lean_sandbox.kube.resources import SANDBOXES
from lean_sandbox.model import names
from lean_sandbox.model.claim import SandboxClaimSpec
from lean_sandbox.model.claim_sandbox import build_cold_sandbox
from lean_sandbox.model.claim_status import ClaimError, ClaimFault, not_controlled, owner_taken_away
from lean_sandbox.model.template import TemplateView
from lean_sandbox.model.warmpool import Freshness
from lean_sandbox.runtime.workers import AT_ONCE_S
from lean_sandbox.watch.resources.sandbox import SandboxEntry

_MOST_TRIES = 64
# How many members a claim tries that the server refuses to hand over; then it gets a new Sandbox.
_MOST_REFUSALS = 3


# --- warm ----------------------------------------------------------------------------------------


async def take_member(run: ClaimRun) -> SandboxEntry | None:
    """Take a member of the claim's pool; ``None`` when there is none to wait for.

    Raises NotYetError while members are starting and the claim is young.
    """
    warm = run.context.warm
    staleness = staleness_of(run)
    if staleness is None and is_recreate(run):
        # It is unknown which members are stale: they stay, and the cold path reports why.
        return None

    def may_be_fresh(member: SandboxEntry) -> bool:
        return staleness is None or staleness.by_hash(member.metadata) is not Freshness.STALE

    for _ in range(_MOST_TRIES):
        member = warm.acquire(run.pool, accept=may_be_fresh)
        if member is None:
            if warm.counts(run.pool).waiting:
                _wait_while_young(run)
            return None
        began = run.context.clock.monotonic()
        run.taken = await take_over(run, member, staleness)
        if run.taken is not None:
            run.context.metrics.stage("adopt", began)
            return run.taken
        if len(run.passed_over) == _MOST_REFUSALS:
            return None
    return None


def _wait_while_young(run: ClaimRun) -> None:
    if run.entry.created_at:
        context = run.context
        context.server_time.saw(run.entry.created_at)
        age_s = context.server_time.age_s(run.entry.created_at)
        waited_s = min(age_s, context.clock.monotonic() - context.began_at)
        left_s = context.settings.sandbox_claim_warm_candidate_grace_period - waited_s
        if left_s > 0:
            raise NotYetError(min(SOON_READY_S, left_s))


async def start_anew(run: ClaimRun, member: SandboxEntry) -> Never:
    """Delete the member that was taken, of which no client was told. One DELETE.

    The server does not let its Pod be patched, perhaps because a policy is newer than the Pod. That
    of a new Sandbox is created as the claim's. Raises NotYetError.
    """
    run.taken = None
    run.state.needs_new = True
    assert run.error is not None
    await give_up(run, member, run.error.text)
    raise NotYetError(AT_ONCE_S)


def announce(run: ClaimRun) -> None:
    """Report the member that was taken, by an Event and to its pool and its own controller.

    Called after the claim's status is written, so that the work it starts does not delay that.
    """
    if run.taken is None:
        return
    context = run.context
    context.wakes.sandbox(run.taken.key)
    context.metrics.bound(run.entry, run.taken, names.LAUNCH_TYPE_WARM)
    note = f'Adopted warm pool Sandbox "{run.taken.key.name}"'
    # Another Sandbox makes another Event, not a repetition of the one that names the first.
    related = reference_to(run.taken, SANDBOXES)
    context.events.emit(run.entry, "Normal", "SandboxAdopted", "Adoption", note, related)
    context.wakes.pool(run.pool)


# --- cold ----------------------------------------------------------------------------------------


async def template_to_start(run: ClaimRun) -> TemplateView:
    """Return the template of the claim's pool, if Pods of it may start. At most two GETs."""
    resolver = run.context.resolver
    template = await resolver.template_of(run.pool)
    lack = resolver.unprotected(template)
    if lack is not None:
        raise lack
    return template


async def make_sandbox(
    run: ClaimRun, spec: SandboxClaimSpec, template: TemplateView
) -> SandboxEntry:
    """Create the claim's own Sandbox. One POST, and a DELETE if it is not the claim's."""
    body = build_cold_sandbox(run.facts, spec, template)
    key = run.entry.key
    try:
        written = await run.writer.create(run.sandboxes, key.namespace, body, name=key.name)
    except AlreadyExists:
        return await _collided(run)
    except ControlPlaneError as error:
        if error.namespace_terminating:
            raise
        text = f"sandbox create error: {message_of(error)}"
        raise ClaimError(ClaimFault.OTHER, text) from error
    made = written.entry
    if not is_controlled(made, run.entry):
        # A mutating policy or a webhook has taken the owner away.
        run.state.disowned = made.uid
        await run.writer.delete(run.sandboxes, made)
        raise owner_taken_away(made.key.name)
    run.state.disowned = ""
    context = run.context
    context.metrics.bound(run.entry, made, names.LAUNCH_TYPE_COLD)
    note = f'Created Sandbox "{made.key.name}"'
    context.events.emit(run.entry, "Normal", "SandboxProvisioned", "Provisioning", note)
    context.wakes.launch(made.key, written.item)
    return made


async def _collided(run: ClaimRun) -> SandboxEntry:
    key = run.entry.key
    pending = ClaimError(ClaimFault.CREATE_PENDING, f'sandbox "{key.name}" already exists')
    try:
        found = await run.fetch(key)
    except ControlPlaneError as error:
        raise pending from error
    if found is None:
        raise pending
    if not is_controlled(found, run.entry):
        raise not_controlled(key.name)
    return found

"""Takes a member of a pool over for a claim: one guarded patch of the Sandbox."""

from __future__ import annotations

from lean_sandbox.controllers.claim.owned import is_controlled
from lean_sandbox.controllers.claim.run import MOST_PATCHES, ClaimRun
from lean_sandbox.controllers.common import reference_to
from lean_sandbox.controllers.warm import pool_of
from lean_sandbox.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, message_of
from lean_sandbox.kube.resources import SANDBOXES
from lean_sandbox.model import names
from lean_sandbox.model.claim_additions import desired_pod_metadata
from lean_sandbox.model.claim_sandbox import adoption_patch, needs_template_touch
from lean_sandbox.model.claim_status import ClaimError, ClaimFault
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.model.warmpool import Freshness, Staleness
from lean_sandbox.watch.resources.sandbox import SandboxEntry


def is_recreate(run: ClaimRun) -> bool:
    """Return whether stale members of the claim's pool are not to be taken."""
    pool = run.context.resolver.known_pool(run.pool)
    return pool is not None and pool.is_recreate


def staleness_of(run: ClaimRun) -> Staleness | None:
    """Return what says which members are stale, ``None`` if none is or that is unknown."""
    resolver = run.context.resolver
    template = resolver.known_template_of(run.pool) if is_recreate(run) else None
    return resolver.staleness(template) if template is not None else None


async def take_over(
    run: ClaimRun, member: SandboxEntry, staleness: Staleness | None
) -> SandboxEntry | None:
    """Take over a member that the warm queue has reserved; ``None`` if it is not to be had.

    At most one GET for each unknown hash, before the patch. A member that the server does not let
    be taken over is passed over, and stays reserved until :func:`judge`.
    """
    warm = run.context.warm
    try:
        if staleness is not None and not await _is_fresh(run, member, staleness):
            warm.forget(member)
            return None
        return await _adopt(run, member)
    finally:
        if member.uid not in run.passed_over:
            # The cache has the result of the patch, and the warm queue follows the cache.
            warm.release(member)


def judge(run: ClaimRun) -> None:
    """Hand the members that the claim was refused to their pool, to be replaced.

    If the server has not let the claim have any other Sandbox either, the members need not be at
    fault: then they are free again.
    """
    for member, why in run.passed_over.values():
        if run.sandbox is not None:
            run.context.warm.refuse(member)
            _report(run, member, why)
        else:
            run.context.warm.release(member)


async def give_up(run: ClaimRun, member: SandboxEntry, why: str) -> None:
    """Delete a member that was taken over, and that no client was told of. One DELETE."""
    await run.writer.delete(run.sandboxes, member)
    _report(run, member, why)


def _report(run: ClaimRun, member: SandboxEntry, why: str) -> None:
    """Report a member that does not serve the claim, by an Event and to its pool."""
    note = f'Pool Sandbox "{member.key.name}" is passed over: {why}'
    related = reference_to(member, SANDBOXES)
    run.context.events.emit(run.entry, "Warning", "SandboxNotAdopted", "Adoption", note, related)
    run.context.wakes.pool(run.pool)


async def _is_fresh(run: ClaimRun, member: SandboxEntry, staleness: Staleness) -> bool:
    verdict = staleness.by_hash(member.metadata)
    if verdict is Freshness.UNDECIDED:
        found = await run.writer.get(run.sandboxes, member.key)
        if found is None or found.entry.uid != member.uid:
            return False
        whole: Sandbox = found.item
        verdict = staleness.by_spec(whole.metadata, whole.spec)
    return verdict is not Freshness.STALE


async def _adopt(run: ClaimRun, held: SandboxEntry) -> SandboxEntry | None:
    """Take one member over; ``None`` when it is no longer available, or is passed over.

    One PATCH; after a refused PATCH a GET shows whether somebody else has taken the member. If it
    has only changed, it is patched again, so that its pool does not lose it. It is passed over when
    the server refuses the patch for its content: a policy may be newer than the member. Raises
    ClaimError (AdoptionConflict) when others keep writing to it.
    """
    refused: ApiError | None = None
    by_version = False
    for _ in range(MOST_PATCHES):
        try:
            taken = await _patch_over(run, held, by_version=by_version)
        except NotFound:
            return None
        except (Invalid, Conflict, Forbidden) as error:
            refused = error
        else:
            if is_controlled(taken, run.entry):
                return taken
            # A mutating policy or a webhook has put another owner in its place, or none.
            why = "it was accepted without the claim as its owner"
            run.passed_over[held.uid] = held, why
            return None
        fresh = await run.fetch(held.key)
        if fresh is None or fresh.uid != held.uid:
            return None
        if is_controlled(fresh, run.entry):
            # An earlier patch of ours was applied, but its response was lost.
            return fresh
        if pool_of(fresh) != run.pool:
            return None
        if _metadata_of(fresh) == _metadata_of(held):
            is_invalid = isinstance(refused, Invalid)
            has_passed_its_test = by_version and fresh.version == held.version
            if isinstance(refused, Forbidden) or (is_invalid and has_passed_its_test):
                run.passed_over[held.uid] = held, message_of(refused)
                return None
            # The pool may not be the first owner, the one that the patch tests.
            by_version = by_version or is_invalid
        held = fresh
    text = f"completing adoption of {held.key.name} for claim {run.entry.key.name}"
    raise ClaimError(ClaimFault.ADOPTION_CONFLICT, text, conflict=str(refused)) from refused


async def _patch_over(run: ClaimRun, held: SandboxEntry, *, by_version: bool) -> SandboxEntry:
    # A member has both.
    assert held.owner is not None
    assert held.labels is not None
    template = run.context.resolver.known_template_of(run.pool)
    ref_hash = held.labels[names.TEMPLATE_REF_HASH_LABEL]
    if not ref_hash and template is not None:
        ref_hash = template.ref_hash
    current = held.view.template_metadata if held.view is not None else None
    desired = desired_pod_metadata(template, run.facts, ref_hash=ref_hash, current=current)
    touched = desired if needs_template_touch(current, desired) else None
    version = await run.writer.guard(run.sandboxes, held) if by_version else None
    patch = adoption_patch(
        run.facts,
        touched,
        pool_uid=held.owner.uid,
        labels=held.labels,
        annotations=held.annotations,
        is_applied=held.is_applied,
        ref_hash=ref_hash,
        version=version,
    )
    try:
        taken = await run.patch(held, patch)
    except (NotFound, Invalid, Conflict, Forbidden):
        raise
    except BaseException:
        run.state.unanswered = held.key
        raise
    if run.facts.trace_context and not held.annotations:
        annotations = {names.TRACE_CONTEXT_ANNOTATION: run.facts.trace_context}
        return await run.patch(taken, {"metadata": {"annotations": annotations}})
    return taken


def _metadata_of(member: SandboxEntry) -> tuple[object, ...]:
    return member.owner, member.labels, member.annotations

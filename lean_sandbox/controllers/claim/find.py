"""Finds the Sandbox that a claim has already, or is to have by name.

Each function may raise ClaimError if the claim cannot have what it asks for, NotYetError if nothing
is to be written yet, and the errors of requests.
"""

from __future__ import annotations

from lean_sandbox.controllers.claim.adopt import staleness_of, take_over
from lean_sandbox.controllers.claim.owned import (
    assigned_name,
    is_controlled,
    is_of_extensions,
    own_sandbox,
)
from lean_sandbox.controllers.claim.run import ClaimRun
from lean_sandbox.controllers.warm import pool_of
from lean_sandbox.kube.errors import ControlPlaneError, message_of
from lean_sandbox.model import names
from lean_sandbox.model.claim_status import (
    ClaimError,
    ClaimFault,
    not_controlled,
    owner_taken_away,
    stale_reference,
)
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry


async def find_own(run: ClaimRun) -> SandboxEntry | None:
    """Return the Sandbox that the claim is known to have. No request in the ordinary case.

    The Sandbox that the status names is fetched in two cases. Either the cache shows neither the
    claim's Sandbox nor its end: another process may have bound it, and its event is still to come.
    Or it is being deleted and its status is unknown: its own controller no longer fetches it.
    """
    own = own_sandbox(run.sandboxes, run.entry)
    named = _name_to_fetch(run, own)
    if named:
        try:
            await run.fetch(Key(run.entry.key.namespace, named))
        except ControlPlaneError as error:
            # The claim's status stays as it is until the Sandbox can be read.
            text = f'sandbox "{named}" cannot be read'
            raise ClaimError(ClaimFault.CREATE_PENDING, text) from error
        own = own_sandbox(run.sandboxes, run.entry)
    if own is None and run.state.unanswered is not None:
        await run.fetch(run.state.unanswered)
        run.state.unanswered = None
        own = own_sandbox(run.sandboxes, run.entry)
    return own


def _name_to_fetch(run: ClaimRun, own: SandboxEntry | None) -> str:
    """Return the name in the claim's status if its Sandbox has to be fetched, else ""."""
    bound = run.old.bound.name
    is_shown = (
        own is not None and own.key.name == bound and not (own.is_deleting and own.status is None)
    )
    return "" if is_shown or bound == run.state.ended else bound


async def find_named(run: ClaimRun) -> SandboxEntry | None:
    """Return a Sandbox that is to be the claim's by its annotation, or by its own name.

    Raises ClaimError when the claim's own name is held by somebody else's Sandbox.
    """
    found = None
    if assigned := assigned_name(run.entry):
        found = await _assigned(run, assigned)
    if found is None and (held := run.sandboxes.get(run.entry.key)) is not None:
        found = await _restored(run, held)
        if found is None:
            raise not_controlled(run.entry.key.name)
    return found


async def _restored(run: ClaimRun, held: SandboxEntry) -> SandboxEntry | None:
    """Take back a Sandbox that was restored without its owner, if its label names the claim.

    One GET for a Sandbox without an owner, and one PATCH if it is the claim's. Raises ClaimError,
    which says how to hand it over, if it was some claim's.
    """
    if held.owner is not None or held.key.name == run.old.bound.name:
        # Somebody took it from the claim while that was bound to it, and it stays taken.
        return None
    found = await run.writer.get(run.sandboxes, held.key)
    if found is None or found.item.metadata.owners or found.item.metadata.deletion_timestamp:
        return None
    meta = found.item.metadata
    claim_uid = (meta.labels or {}).get(names.CLAIM_UID_LABEL)
    if not claim_uid:
        return None
    if claim_uid != run.facts.uid:
        raise not_controlled(run.facts.name, sandbox=held.key.name, uid=run.facts.uid)
    metadata = {
        "resourceVersion": meta.resource_version,
        "ownerReferences": [run.facts.reference],
    }
    taken = await run.patch(found.entry, {"metadata": metadata})
    if not is_controlled(taken, run.entry):
        raise owner_taken_away(taken.key.name)
    return taken


async def _assigned(run: ClaimRun, name: str) -> SandboxEntry | None:
    """Complete an adoption that another process began, or clear a name that is not ours."""
    held = run.sandboxes.get(Key(run.pool.namespace, name))
    owner = held.owner if held is not None else None
    if held is not None and owner is None:
        return await _restored(run, held)
    if owner is not None and not is_of_extensions(owner):
        # It has an owner of a foreign kind. Whoever set that owner may remove it again.
        return None
    loss: ClaimError | None = None
    if held is not None and pool_of(held) == run.pool and run.context.warm.reserve(held):
        taken = await take_over(run, held, staleness_of(run))
        if taken is not None:
            run.context.wakes.sandbox(taken.key)
            run.context.wakes.pool(run.pool)
            return taken
        fresh = run.sandboxes.get(held.key)
        is_lost = fresh is not None and pool_of(fresh) != run.pool
        fate = "lost to another owner" if is_lost else "deleted"
        text = f"sandbox {name} {fate} and reference cleanup failed"
        loss = ClaimError(ClaimFault.ADOPTION_CONFLICT, text)
    try:
        await run.context.annotator.write(run.entry, {names.SANDBOX_NAME_ANNOTATION: None})
    except ControlPlaneError as error:
        kind = owner.kind if owner is not None else ""
        raise (loss or stale_reference(kind, message_of(error))) from error
    return None

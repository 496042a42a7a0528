"""The requests of one reconcile to its claim: it is fetched whole, gets a status, is deleted.

What was made or taken for it in vain is deleted as well.

Two processes may each take a Sandbox for the same claim, and its user may edit it meanwhile. So a
status is guarded if it binds the claim, or says that the claim has no Sandbox or has expired.
"""

from __future__ import annotations

from typing import Any

from lean_sandbox.controllers.claim.owned import acquired, is_controlled
from lean_sandbox.controllers.claim.run import MOST_PATCHES, ClaimRun
from lean_sandbox.controllers.resolver import NotYetError
from lean_sandbox.kube.client import CascadeType
from lean_sandbox.kube.errors import Conflict, Invalid, NotFound
from lean_sandbox.model import names
from lean_sandbox.model.claim import EMPTY_CLAIM_STATUS, SandboxClaim, SandboxClaimStatus
from lean_sandbox.model.claim_status import claim_status_patch
from lean_sandbox.model.conditions import has_reason
from lean_sandbox.model.meta import is_controlled_by
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry


async def fetch_claim(run: ClaimRun) -> SandboxClaim:
    """Fetch the whole claim; raise NotYetError if it is being deleted, or is gone. One GET.

    The end of a deleted claim's Sandbox may be seen before its own; a new Sandbox for the claim
    would be garbage-collected at once, or stay without an owner.
    """
    found = await run.writer.get(run.context.caches.claims, run.entry.key)
    if (
        found is None
        or found.item.metadata.uid != run.entry.uid
        or found.item.metadata.deletion_timestamp
    ):
        raise NotYetError
    whole: SandboxClaim = found.item
    return whole


async def delete_claim(run: ClaimRun, cascade: CascadeType | None) -> None:
    """Delete the claim. One DELETE; raises Conflict if it was written to since it was read."""
    claims = run.context.caches.claims
    await run.writer.delete(claims, _as_decided_on(run), is_guarded=True, cascade=cascade)


async def write_status(run: ClaimRun, new: SandboxClaimStatus) -> bool:
    """Write the status if it differs; false if the claim is gone, or bound elsewhere.

    Raises Conflict when others keep writing to the claim, or have written to it since the version
    that was decided on: its user may have moved the shutdown time just before that came, or edited
    the claim during its binding, so that the view with this edit is older than the status that
    binds. Raises NotYetError when the claim is being deleted.
    """
    began = run.context.clock.monotonic()
    try:
        return await _write(run, new)
    except NotFound:
        return False
    finally:
        if run.taken is not None:
            run.context.metrics.stage("status", began)


async def _write(run: ClaimRun, new: SandboxClaimStatus) -> bool:
    """Write the status, again after each guard that the server has found broken.

    A Sandbox can be taken by one adopter only, but two processes could each take one for the same
    claim. So a status that binds is guarded, and the first to write it wins. For a claim without a
    status, as nearly all are, the patch tests that it has none, so that its annotations may be
    written in parallel; for others it carries the version decided on.

    No request if nothing differs; else one PATCH, after a GET if the version is unknown. Each
    broken guard costs a GET and a PATCH more; if another process was first, a GET of its Sandbox
    and a DELETE of the one taken in vain.
    """
    patch = claim_status_patch(run.old, new)
    if patch is None:
        return True
    is_binding = new.bound.name not in ("", run.old.bound.name)
    version = await _version(run, new, is_binding=is_binding)
    tries = 0
    while patch is not None:
        tries += 1
        try:
            await _patch_status(run, new, patch, version)
        except (Conflict, Invalid) as refused:
            # A version that is not the latest is a Conflict, a test that fails is Invalid.
            is_guard = is_binding if isinstance(refused, Conflict) else version is None
            if not is_guard or tries == MOST_PATCHES:
                raise
            # The response to another write of ours may hide the event of what others have written.
            fresh = await fetch_claim(run)
            if is_binding and await _is_bound_elsewhere(run, fresh.status.bound.name, new):
                return False
            if not is_binding and fresh.status != run.old:
                raise
            version = fresh.metadata.resource_version
            patch = claim_status_patch(fresh.status, new)
        else:
            return True
    return True


async def _version(run: ClaimRun, new: SandboxClaimStatus, *, is_binding: bool) -> str | None:
    """Return the version that guards a status, if one is to. A GET, at most; or Conflict."""
    is_end = has_reason(new.conditions, names.READY, names.REASON_CLAIM_EXPIRED)
    is_another = run.old != EMPTY_CLAIM_STATUS and (is_binding or run.sandbox is None)
    if not (is_end or is_another):
        return None
    return await run.writer.guard(run.context.caches.claims, _as_decided_on(run))


def _as_decided_on(run: ClaimRun) -> ClaimEntry:
    """Return the latest entry known to have the spec and status that were decided on."""
    entry = run.entry
    held = run.context.caches.claims.latest(entry)
    if held is None or (held.status, held.generation) != (entry.status, entry.generation):
        return entry
    return held


async def _is_bound_elsewhere(run: ClaimRun, named: str, new: SandboxClaimStatus) -> bool:
    """Return whether another process has bound the claim; the Sandbox taken in vain is deleted."""
    if named in ("", new.bound.name):
        return False
    namespace = run.entry.key.namespace
    held: Sandbox | None = await run.writer.peek(run.sandboxes, Key(namespace, named))
    if held is None or held.metadata.deletion_timestamp:
        return False
    if not is_controlled_by(held.metadata.controller, run.entry.uid):
        return False
    # No client knows of it.
    in_vain = run.sandboxes.get(Key(namespace, new.bound.name))
    if in_vain is not None and is_controlled(in_vain, run.entry):
        await run.writer.delete(run.sandboxes, in_vain)
    return True


async def _patch_status(
    run: ClaimRun, new: SandboxClaimStatus, patch: dict[str, Any], version: str | None
) -> None:
    """Write the status, unless another claim has the name now.

    With a ``version`` also unless the claim was written to since, else, for a claim without a
    status, unless somebody has written one meanwhile. Raises NotFound if the claim is gone,
    Conflict or Invalid if it is not as it should be.
    """
    entry = run.entry
    body: list[dict[str, Any]] | dict[str, Any]
    if version is not None:
        body = {"status": patch, "metadata": {"resourceVersion": version}}
    else:
        bound = {field: value for field, value in patch["sandbox"].items() if value is not None}
        body = [
            {"op": "test", "path": "/metadata/uid", "value": entry.uid},
            {"op": "add", "path": "/status", "value": {**patch, "sandbox": bound}},
        ]
        if run.old == EMPTY_CLAIM_STATUS:
            body.insert(1, {"op": "test", "path": "/status", "value": None})
    claims = run.context.caches.claims
    await run.writer.patch(claims, entry, body, status=new, generation=entry.generation)


async def drop_unnamed(run: ClaimRun, sandbox: SandboxEntry) -> None:
    """Delete what was created or taken over for the claim besides its Sandbox. One GET.

    A process may end between the two writes, or the answer to a create be lost, and another member
    be taken before the first Sandbox is seen. No client knows of that one: only what the claim's
    status does not name is deleted.
    """
    unnamed = [one for one in acquired(run.sandboxes, run.entry) if one.key != sandbox.key]
    if not unnamed or (await fetch_claim(run)).status.bound.name != sandbox.key.name:
        return
    for one in unnamed:
        await run.writer.delete(run.sandboxes, one)

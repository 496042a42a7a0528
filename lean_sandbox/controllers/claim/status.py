"""Writing the status of a claim: what binds it is guarded, what only follows its Sandbox is not.

A Sandbox can be taken by one adopter only, but two processes could each take one for the same
claim. So the patch that binds is guarded, and the first to write the status wins. For a claim
without a status, as nearly all are, the patch tests that it has none, so that annotations may be
written beside it; for others it carries the version of the claim that it was decided on.
"""

from __future__ import annotations

from typing import Any

from lean_sandbox.controllers.claim.bind import MOST_PATCHES, Parts, is_controlled
from lean_sandbox.kube.errors import Conflict, Invalid, NotFound
from lean_sandbox.model.claim import EMPTY_CLAIM_STATUS, SandboxClaim, SandboxClaimStatus
from lean_sandbox.model.claim_status import claim_status_patch
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry


async def write_status(
    parts: Parts, entry: ClaimEntry, old: SandboxClaimStatus, new: SandboxClaimStatus
) -> bool:
    """Write a status that differs; false when the claim is gone, going, another or bound elsewhere.

    No request, or one PATCH. Each conflict of a binding costs a GET and a PATCH more; where another
    process was first, a GET of its Sandbox and a DELETE of the one taken in vain.
    Raises Conflict when others keep writing to the claim.
    """
    patch = claim_status_patch(old, new)
    if patch is None:
        return True
    if not new.bound.name or new.bound.name == old.bound.name:
        return await _patch(parts, entry, {"status": patch}, new)
    claims = parts.caches.claims
    version = "" if old == EMPTY_CLAIM_STATUS else _version_of(parts, entry)
    for patches in range(1, MOST_PATCHES + 1):
        try:
            return await _patch(parts, entry, _guarded(entry, patch, version), new)
        except (Conflict, Invalid) as refused:
            if patches == MOST_PATCHES or (version and isinstance(refused, Invalid)):
                raise
        # The response to another write of ours may hide the event of what others have written.
        shown = await parts.writer.get(claims, entry.key)
        fresh: SandboxClaim | None = shown.item if shown is not None else None
        if fresh is None or fresh.metadata.uid != entry.uid or fresh.metadata.deletion_timestamp:
            return False
        if await _is_bound_elsewhere(parts, entry, fresh.status.bound.name, new.bound.name):
            # No client has been told of the Sandbox that was taken in vain.
            in_vain = parts.caches.sandboxes.get(Key(entry.key.namespace, new.bound.name))
            if in_vain is not None and is_controlled(in_vain, entry):
                await parts.writer.delete(parts.caches.sandboxes, in_vain)
            return False
        version = fresh.metadata.resource_version
        patch = claim_status_patch(fresh.status, new)
        if patch is None:
            return True
    return False


def _version_of(parts: Parts, entry: ClaimEntry) -> str:
    """Return the latest version at which the claim is known to have the status we know."""
    held = parts.caches.claims.get(entry.key)
    if held is not None and held.uid == entry.uid and held.status is entry.status:
        return str(held.version)
    return str(entry.version)


async def _is_bound_elsewhere(parts: Parts, entry: ClaimEntry, named: str, wanted: str) -> bool:
    if not named or named == wanted:
        return False
    key = Key(entry.key.namespace, named)
    held: Sandbox | None = await parts.writer.peek(parts.caches.sandboxes, key)
    if held is None or held.metadata.deletion_timestamp:
        return False
    owner = held.metadata.controller
    return owner is not None and owner.uid == entry.uid


async def _patch(
    parts: Parts,
    entry: ClaimEntry,
    body: list[dict[str, Any]] | dict[str, Any],
    status: SandboxClaimStatus,
) -> bool:
    """Write the status; false when the claim is gone. Raises Conflict or Invalid by a guard."""
    try:
        await parts.writer.patch(
            parts.caches.claims, entry, body, status=status, generation=entry.generation
        )
    except NotFound:
        return False
    return True


def _guarded(
    entry: ClaimEntry, patch: dict[str, Any], version: str
) -> list[dict[str, Any]] | dict[str, Any]:
    """Return a patch that is refused when the claim has changed, or got a status, meanwhile."""
    if version:
        return {"status": patch, "metadata": {"resourceVersion": version}}
    bound = {field: value for field, value in patch["sandbox"].items() if value is not None}
    return [
        {"op": "test", "path": "/metadata/uid", "value": entry.uid},
        {"op": "test", "path": "/status", "value": None},
        {"op": "add", "path": "/status", "value": {**patch, "sandbox": bound}},
    ]

"""Writing the status of claims, and never over the word of another process.

The patch that binds is guarded. A Sandbox can be taken by one adopter only, but two processes could
each take one for the same claim; of those the first to write the status wins. For a claim without
a status, as nearly all are, the patch tests that it has none, so that annotations may be written
beside it; for others it carries the version of the claim that it was decided on. Every later patch
goes without a guard: it only follows the Sandbox.
"""

from __future__ import annotations

from lean_sandbox.controllers.claim.act import ClaimAct
from lean_sandbox.kube.errors import Conflict, Invalid
from lean_sandbox.model.claim import SandboxClaimStatus
from lean_sandbox.model.claim_status import claim_status_patch
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.claim import ClaimEntry

_MOST_PATCHES = 5
_NO_STATUS = SandboxClaimStatus()


class StatusWriter:
    """Writes what a pass has found out about a claim."""

    def __init__(self, claims: Cache[ClaimEntry], caches: Caches, act: ClaimAct) -> None:
        self._claims = claims
        self._caches = caches
        self._act = act

    async def write(
        self, entry: ClaimEntry, old: SandboxClaimStatus, new: SandboxClaimStatus
    ) -> bool:
        """Write what differs; false when that is not the status of this claim now.

        It is not when the claim is gone, going or another one, or when another process bound it.
        No request, or one PATCH. Each conflict of a binding costs a GET and a PATCH more; where
        another process was first, a GET of its Sandbox and a DELETE of the one taken in vain.
        Raises Conflict when others keep writing to the claim.
        """
        patch = claim_status_patch(old, new)
        if patch is None:
            return True
        if not new.bound.name or new.bound.name == old.bound.name:
            return await self._act.patch_status(entry, patch, new)
        version = "" if old == _NO_STATUS else self._version_of(entry)
        for patches in range(1, _MOST_PATCHES + 1):
            try:
                if not version:
                    return await self._act.set_first_status(entry, patch, new)
                return await self._act.patch_status(entry, patch, new, version=version)
            except (Conflict, Invalid) as refused:
                if patches == _MOST_PATCHES or (version and isinstance(refused, Invalid)):
                    raise
            fresh = await self._act.peek_claim(entry.key)
            if fresh is None or fresh.metadata.uid != entry.uid:
                return False
            if fresh.metadata.deletion_timestamp:
                return False
            if await self._is_bound_elsewhere(entry, fresh.status.bound.name, new.bound.name):
                # The answer to a write of ours that is under way may hide the event of that status.
                self._act.learn_claim(fresh)
                await self._give_up(entry, new.bound.name)
                return False
            version = fresh.metadata.resource_version
            patch = claim_status_patch(fresh.status, new)
            if patch is None:
                return True
        return False

    def _version_of(self, entry: ClaimEntry) -> str:
        """Return the latest version at which the claim is known to have the status we know."""
        held = self._claims.get(entry.key)
        if held is not None and held.uid == entry.uid and held.status is entry.status:
            return str(held.version)
        return str(entry.version)

    async def _is_bound_elsewhere(self, entry: ClaimEntry, named: str, wanted: str) -> bool:
        if not named or named == wanted:
            return False
        held = await self._act.peek_sandbox(Key(entry.key.namespace, named))
        if held is None or held.metadata.deletion_timestamp:
            return False
        owner = held.metadata.controller
        return owner is not None and owner.uid == entry.uid

    async def _give_up(self, entry: ClaimEntry, name: str) -> None:
        """Delete the Sandbox that was taken in vain: no client has been told of it."""
        held = self._caches.sandboxes.get(Key(entry.key.namespace, name))
        if held is not None and held.owner is not None and held.owner.uid == entry.uid:
            await self._act.delete_sandbox(held)

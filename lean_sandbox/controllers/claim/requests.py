"""The requests of one reconcile to its claim: it is fetched whole, gets a status, is deleted.

What was made or taken for it in vain is deleted as well.

Two processes may each take a Sandbox for the same claim, and its user may edit it meanwhile. So a
status is guarded if it binds the claim, or says that the claim has no Sandbox or has expired.
"""

from __future__ import annotations

from typing import Any

from lean_sandbox.controllers.claim.adopt import MOST_PATCHES
from lean_sandbox.controllers.claim.context import ClaimContext
from lean_sandbox.controllers.claim.owned import acquired, is_controlled
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


class ClaimRequests:
    """Makes the requests of one reconcile to its claim, which has decided by ``entry``."""

    def __init__(self, context: ClaimContext, entry: ClaimEntry) -> None:
        assert entry.status is not None
        self._writer = context.writer
        self._claims = context.caches.claims
        self._sandboxes = context.caches.sandboxes
        self._entry = entry
        self._old = entry.status

    async def fetch(self) -> SandboxClaim:
        """Fetch the whole claim; raise NotYetError if it is being deleted, or is gone. One GET.

        The end of a deleted claim's Sandbox may be seen before its own; a new Sandbox for the claim
        would be garbage-collected at once, or stay without an owner.
        """
        found = await self._writer.get(self._claims, self._entry.key)
        if (
            found is None
            or found.item.metadata.uid != self._entry.uid
            or found.item.metadata.deletion_timestamp
        ):
            raise NotYetError
        whole: SandboxClaim = found.item
        return whole

    async def delete(self, cascade: CascadeType | None) -> None:
        """Delete the claim. One DELETE; raises Conflict if it was written to since it was read."""
        await self._writer.delete(
            self._claims, self._as_decided_on(), is_guarded=True, cascade=cascade
        )

    async def write_status(self, new: SandboxClaimStatus, *, has_sandbox: bool) -> bool:
        """Write the status if it differs; false if the claim is gone, or bound elsewhere.

        No request, or those of :meth:`_write_binding_status` for a status that names another
        Sandbox than before, and of :meth:`_write_other_status` for any other.
        """
        patch = claim_status_patch(self._old, new)
        if patch is None:
            return True
        try:
            if new.bound.name not in ("", self._old.bound.name):
                return await self._write_binding_status(new, patch)
            await self._write_other_status(new, patch, has_sandbox=has_sandbox)
        except NotFound:
            return False
        return True

    async def _write_other_status(
        self, new: SandboxClaimStatus, patch: dict[str, Any], *, has_sandbox: bool
    ) -> None:
        """Write a status that names no other Sandbox than before.

        One PATCH; if the server finds its guard broken, a GET and a PATCH more. A GET before it if
        the version that guards it is unknown. Raises NotFound if the claim is gone, Conflict if
        the claim was written to since the version that was decided on: its user may have moved the
        shutdown time just before that came, or edited the claim during its binding, so that the
        view with this edit is older than the status that binds.
        """
        entry = self._entry
        old = self._old
        is_end = has_reason(new.conditions, names.READY, names.REASON_CLAIM_EXPIRED)
        is_free = not new.bound.name
        is_dated = is_end or (not has_sandbox and old != EMPTY_CLAIM_STATUS)
        guard = await self._version_of_status() if is_dated else None
        body = _guarded(entry, patch, guard, is_first=is_free)
        try:
            await self._patch_status(body, new)
        except Invalid:
            # Another claim may have the name now, or somebody may have emptied the status.
            fresh = await self.fetch()
            if fresh.status != old:
                raise
            body = _guarded(entry, patch, fresh.metadata.resource_version)
            await self._patch_status(body, new)

    async def _write_binding_status(self, new: SandboxClaimStatus, patch: dict[str, Any]) -> bool:
        """Write a status that names a Sandbox; false also when another process was first.

        A Sandbox can be taken by one adopter only, but two processes could each take one for the
        same claim. So this status is guarded, and the first to write it wins. For a claim without a
        status, as nearly all are, the patch tests that it has none, so that its annotations may be
        written in parallel; for others it carries the version decided on.

        One PATCH, after a GET if the version is unknown. Each conflict costs a GET and a PATCH
        more; if another process was first, a GET of its Sandbox and a DELETE of the one taken in
        vain. Raises Conflict when others keep writing to the claim, NotFound when it is gone,
        NotYetError when it is being deleted.
        """
        entry = self._entry
        version = None if self._old == EMPTY_CLAIM_STATUS else await self._version_of_status()
        patches = 0
        while True:
            patches += 1
            try:
                body = _guarded(entry, patch, version, is_first=True)
                await self._patch_status(body, new)
            except (Conflict, Invalid) as refused:
                is_content = version is not None and isinstance(refused, Invalid)
                if patches == MOST_PATCHES or is_content:
                    raise
            else:
                return True
            # The response to another write of ours may hide the event of what others have written.
            fresh = await self.fetch()
            if await self._is_bound_elsewhere(fresh.status.bound.name, new.bound.name):
                # No client knows of the Sandbox that was taken in vain.
                in_vain = self._sandboxes.get(Key(entry.key.namespace, new.bound.name))
                if in_vain is not None and is_controlled(in_vain, entry):
                    await self._writer.delete(self._sandboxes, in_vain)
                return False
            version = fresh.metadata.resource_version
            renewed = claim_status_patch(fresh.status, new)
            if renewed is None:
                return True
            patch = renewed

    async def drop_unnamed(self, sandbox: SandboxEntry) -> None:
        """Delete what was created or taken over for the claim besides its Sandbox. One GET.

        A process may end between the two writes, or the answer to a create be lost, and another
        member be taken before the first Sandbox is seen. No client knows of that one: only what
        the claim's status does not name is deleted.
        """
        unnamed = [one for one in acquired(self._sandboxes, self._entry) if one.key != sandbox.key]
        if not unnamed or (await self.fetch()).status.bound.name != sandbox.key.name:
            return
        for one in unnamed:
            await self._writer.delete(self._sandboxes, one)

    def _as_decided_on(self) -> ClaimEntry:
        """Return the latest entry known to have the spec and status that were decided on."""
        entry = self._entry
        held = self._claims.latest(entry)
        if held is None or (held.status, held.generation) != (entry.status, entry.generation):
            return entry
        return held

    async def _version_of_status(self) -> str:
        """Return the version that guards a write. One GET, at most, which may raise Conflict."""
        return await self._writer.guard(self._claims, self._as_decided_on())

    async def _is_bound_elsewhere(self, named: str, wanted: str) -> bool:
        if not named or named == wanted:
            return False
        key = Key(self._entry.key.namespace, named)
        held: Sandbox | None = await self._writer.peek(self._sandboxes, key)
        if held is None or held.metadata.deletion_timestamp:
            return False
        return is_controlled_by(held.metadata.controller, self._entry.uid)

    async def _patch_status(
        self, body: list[dict[str, Any]] | dict[str, Any], status: SandboxClaimStatus
    ) -> None:
        """Write the status. Raises NotFound if the claim is gone; a guard Conflict or Invalid."""
        entry = self._entry
        await self._writer.patch(
            self._claims, entry, body, status=status, generation=entry.generation
        )


def _guarded(
    entry: ClaimEntry, patch: dict[str, Any], version: str | None, *, is_first: bool = False
) -> list[dict[str, Any]] | dict[str, Any]:
    """Return a patch of the status that the server refuses if another claim has the name now.

    With a ``version`` it is also refused when the claim was written to since. With ``is_first``,
    for a claim without a status, it is refused when somebody else has written one meanwhile.
    """
    if version is not None:
        return {"status": patch, "metadata": {"resourceVersion": version}}
    bound = {field: value for field, value in patch["sandbox"].items() if value is not None}
    is_new = [{"op": "test", "path": "/status", "value": None}] if is_first else []
    return [
        {"op": "test", "path": "/metadata/uid", "value": entry.uid},
        *is_new,
        {"op": "add", "path": "/status", "value": {**patch, "sandbox": bound}},
    ]

"""Finds the Sandbox that a claim has already, or is to have by name."""

from __future__ import annotations

from contextlib import suppress

from lean_sandbox.controllers.claim.adopt import Adoption, MemberRefusedError
from lean_sandbox.controllers.claim.context import ClaimContext
from lean_sandbox.controllers.claim.owned import (
    assigned_name,
    is_controlled,
    is_of_extensions,
    own_sandbox,
)
from lean_sandbox.controllers.claim.state import ClaimState
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
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class OwnSandbox:
    """Finds the Sandbox of one claim, in one reconcile.

    Every method may raise ClaimError if the claim cannot have what it asks for, NotYetError if
    nothing is to be written yet, and the errors of requests.
    """

    def __init__(
        self, context: ClaimContext, entry: ClaimEntry, state: ClaimState, adoption: Adoption
    ) -> None:
        assert entry.status is not None
        self._context = context
        self._state = state
        self._bound = entry.status.bound.name
        self._sandboxes = context.caches.sandboxes
        self._entry = entry
        self._adoption = adoption
        self._facts = adoption.facts
        self._pool = adoption.pool

    async def find(self) -> SandboxEntry | None:
        """Return the Sandbox that the claim is known to have. No request in the ordinary case.

        The Sandbox that the status names is fetched in two cases. Either the cache shows neither
        the claim's Sandbox nor its end: another process may have bound it, and its event is still
        to come. Or it is being deleted and its status is unknown: its own controller no longer
        fetches it.
        """
        own = own_sandbox(self._sandboxes, self._entry)
        named = self._name_to_fetch(own)
        if named:
            try:
                await self._adoption.fetch(Key(self._entry.key.namespace, named))
            except ControlPlaneError as error:
                # The claim's status stays as it is until the Sandbox can be read.
                text = f'sandbox "{named}" cannot be read'
                raise ClaimError(ClaimFault.CREATE_PENDING, text) from error
            own = own_sandbox(self._sandboxes, self._entry)
        if own is None and self._state.unanswered is not None:
            await self._adoption.fetch(self._state.unanswered)
            self._state.unanswered = None
            own = own_sandbox(self._sandboxes, self._entry)
        return own

    def _name_to_fetch(self, own: SandboxEntry | None) -> str:
        """Return the name in the claim's status if its Sandbox has to be fetched, else ""."""
        is_shown = (
            own is not None
            and own.key.name == self._bound
            and not (own.is_deleting and own.status is None)
        )
        return "" if is_shown or self._bound == self._state.ended else self._bound

    async def find_named(self) -> SandboxEntry | None:
        """Return a Sandbox that is to be the claim's by its annotation, or by its own name.

        Raises ClaimError when the claim's own name is held by somebody else's Sandbox.
        """
        entry = self._entry
        found = None
        if assigned := assigned_name(entry):
            found = await self._assigned(assigned)
        if found is None and (held := self._sandboxes.get(entry.key)) is not None:
            found = await self._restored(held)
            if found is None:
                raise not_controlled(entry.key.name)
        return found

    async def _restored(self, held: SandboxEntry) -> SandboxEntry | None:
        """Take back a Sandbox that was restored without its owner, if its label names the claim.

        One GET for a Sandbox without an owner, and one PATCH if it is the claim's. Raises
        ClaimError, which says how to hand it over, if it was some claim's.
        """
        if held.owner is not None or held.key.name == self._bound:
            # Somebody took it from the claim while that was bound to it, and it stays taken.
            return None
        found = await self._context.writer.get(self._sandboxes, held.key)
        if found is None or found.item.metadata.owners or found.item.metadata.deletion_timestamp:
            return None
        meta = found.item.metadata
        claim_uid = (meta.labels or {}).get(names.CLAIM_UID_LABEL)
        if not claim_uid:
            return None
        if claim_uid != self._facts.uid:
            raise not_controlled(self._facts.name, sandbox=held.key.name, uid=self._facts.uid)
        metadata = {
            "resourceVersion": meta.resource_version,
            "ownerReferences": [self._facts.reference],
        }
        taken = await self._adoption.patch(found.entry, {"metadata": metadata})
        if not is_controlled(taken, self._entry):
            raise owner_taken_away(taken.key.name)
        return taken

    async def _assigned(self, name: str) -> SandboxEntry | None:
        """Complete an adoption that another process began, or clear a name that is not ours."""
        held = self._sandboxes.get(Key(self._pool.namespace, name))
        owner = held.owner if held is not None else None
        if held is not None and owner is None:
            return await self._restored(held)
        if owner is not None and not is_of_extensions(owner):
            # It has an owner of a foreign kind. Whoever set that owner may remove it again.
            return None
        loss: ClaimError | None = None
        if held is not None and pool_of(held) == self._pool and self._context.warm.reserve(held):
            with suppress(MemberRefusedError):
                taken = await self._adoption.take(held, self._adoption.staleness())
                if taken is not None:
                    self._context.wakes.sandbox(taken.key)
                    self._context.wakes.pool(self._pool)
                    return taken
            fresh = self._sandboxes.get(held.key)
            is_lost = fresh is not None and pool_of(fresh) != self._pool
            fate = "lost to another owner" if is_lost else "deleted"
            text = f"sandbox {name} {fate} and reference cleanup failed"
            loss = ClaimError(ClaimFault.ADOPTION_CONFLICT, text)
        try:
            await self._context.annotator.write(self._entry, {names.SANDBOX_NAME_ANNOTATION: None})
        except ControlPlaneError as error:
            kind = owner.kind if owner is not None else ""
            raise (loss or stale_reference(kind, message_of(error))) from error
        return None

"""The requests of the claim reconciler. Every method makes one request."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import Conflict, Invalid, NotFound
from lean_sandbox.kube.limits import Lane
from lean_sandbox.kube.resources import SANDBOXES
from lean_sandbox.model import names
from lean_sandbox.model.claim import SandboxClaim, SandboxClaimStatus
from lean_sandbox.model.claim_status import claim_status_patch
from lean_sandbox.model.sandbox import PodTemplateMetadata, Sandbox
from lean_sandbox.runtime.queue import WorkQueue
from lean_sandbox.runtime.writer import ObjectWriter, Response
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources import Caches
from lean_sandbox.watch.resources.children import PolicyEntry
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How often the patch that binds a claim is repeated while others keep writing to it.
_MOST_PATCHES = 5
_NO_STATUS = SandboxClaimStatus()


class ClaimRequests:
    """What the reconciles of claims ask of the server, and write to it."""

    def __init__(
        self, client: Client, caches: Caches, queue: WorkQueue[Key], *, timeout_s: float
    ) -> None:
        self._queue = queue
        self._writer = ObjectWriter(client, lane=Lane.CLIENT, timeout_s=timeout_s)
        self._behind = ObjectWriter(client, lane=Lane.BACKGROUND, timeout_s=timeout_s)
        self._claims = caches.claims
        self._policies = caches.policies
        self._sandboxes = caches.sandboxes

    # -- claims ----------------------------------------------------------------------------------

    async def get_claim(self, key: Key) -> SandboxClaim | None:
        """Fetch the whole claim; ``None`` when it is gone."""
        found = await self._writer.get(self._claims, key)
        claim: SandboxClaim | None = found.item if found is not None else None
        return claim

    async def write_status(
        self, entry: ClaimEntry, old: SandboxClaimStatus, new: SandboxClaimStatus
    ) -> bool:
        """Write what differs; false when that is not the status of this claim now.

        It is not when the claim is gone, going or another one, or when another process bound it.
        No request, or one PATCH. Each conflict of a binding costs a GET and a PATCH more; where
        another process was first, a GET of its Sandbox and a DELETE of the one taken in vain.
        Raises Conflict when others keep writing to the claim.

        A Sandbox can be taken by one adopter only, but two processes could each take one for the
        same claim; so the patch that binds is guarded, and the first to write the status wins. For
        a claim without a status, as nearly all are, the patch tests that it has none, so that
        annotations may be written beside it; for others it carries the version of the claim that it
        was decided on. Every later patch goes without a guard: it only follows the Sandbox.
        """
        patch = claim_status_patch(old, new)
        if patch is None:
            return True
        if not new.bound.name or new.bound.name == old.bound.name:
            return await self._patch_status(entry, {"status": patch}, new)
        version = "" if old == _NO_STATUS else self._version_of(entry)
        for patches in range(1, _MOST_PATCHES + 1):
            guarded = _guarded(entry, patch, version)
            try:
                return await self._patch_status(entry, guarded, new)
            except (Conflict, Invalid) as refused:
                if patches == _MOST_PATCHES or (version and isinstance(refused, Invalid)):
                    raise
            # What this shows newly is for the watch to deliver, to all controllers.
            fresh: SandboxClaim | None = await self._writer.peek(self._claims, entry.key)
            if fresh is None or fresh.metadata.uid != entry.uid:
                return False
            if fresh.metadata.deletion_timestamp:
                return False
            if await self._is_bound_elsewhere(entry, fresh.status.bound.name, new.bound.name):
                # The response to a write of ours that is under way may hide the event of that.
                self._claims.apply_response(fresh)
                self._queue.add(entry.key, reason="written by others")
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
        held = await self.peek_sandbox(Key(entry.key.namespace, named))
        if held is None or held.metadata.deletion_timestamp:
            return False
        owner = held.metadata.controller
        return owner is not None and owner.uid == entry.uid

    async def _give_up(self, entry: ClaimEntry, name: str) -> None:
        """Delete the Sandbox that was taken in vain: no client has been told of it."""
        held = self._sandboxes.get(Key(entry.key.namespace, name))
        if held is not None and held.owner is not None and held.owner.uid == entry.uid:
            await self.delete_sandbox(held)

    async def _patch_status(
        self,
        entry: ClaimEntry,
        body: list[dict[str, Any]] | dict[str, Any],
        status: SandboxClaimStatus,
    ) -> bool:
        """Write the status; false when the claim is gone. Raises Conflict or Invalid by a guard."""

        def applied(response: Response[ClaimEntry]) -> None:
            if response.entry.uid == entry.uid:
                response.entry.status = status

        try:
            await self._writer.patch(
                self._claims,
                entry,
                body,
                subresource="status",
                generation=entry.generation,
                doubt=_forget_status,
                applied=applied,
            )
        except NotFound:
            return False
        return True

    async def annotate(self, entry: ClaimEntry, changes: Mapping[str, str | None]) -> None:
        """Set or remove annotations of the claim, behind everything else.

        The label of older days that named the Sandbox goes with the first of them.
        """
        metadata: dict[str, Any] = {"annotations": changes}
        if names.SANDBOX_NAME_ANNOTATION in (entry.labels or {}):
            metadata["labels"] = {names.SANDBOX_NAME_ANNOTATION: None}
        with suppress(NotFound):
            await self._behind.patch(
                self._claims, entry, {"metadata": metadata}, generation=entry.generation
            )

    async def delete_claim(self, entry: ClaimEntry, *, foreground: bool) -> None:
        """Delete this very claim; one that is gone is no error."""
        await self._writer.delete(
            self._claims, entry, propagation="Foreground" if foreground else None
        )

    async def delete_policy(self, entry: PolicyEntry) -> None:
        """Delete this very NetworkPolicy; one that is gone is no error."""
        await self._behind.delete(self._policies, entry)
        self._policies.forget(entry.key, entry.uid)

    # -- Sandboxes -------------------------------------------------------------------------------

    async def adopt(
        self,
        member: SandboxEntry,
        patch: list[dict[str, Any]] | dict[str, Any],
        visible: PodTemplateMetadata | None,
    ) -> SandboxEntry:
        """Take a member over; ``visible`` is the Pod template's new metadata if it changes.

        A list of operations is a JSON Patch, anything else a merge patch. One PATCH. Raises Invalid
        or Conflict when the member is another's by now, NotFound when it is gone.
        """
        written = await self._writer.patch(
            self._sandboxes,
            member,
            patch,
            applied=lambda response: self._follow_template(response.entry, member, visible),
        )
        return written.entry

    def _follow_template(
        self, entry: SandboxEntry, before: SandboxEntry, visible: PodTemplateMetadata | None
    ) -> None:
        """Bring the remembered view to what our own patch made of it, which saves a GET."""
        view = before.view
        if visible is None or view is None or view.generation != before.generation:
            return
        if entry.generation != before.generation + 1:
            return
        entry.view = msgspec.structs.replace(
            view,
            generation=entry.generation,
            template_metadata=visible,
        )

    async def create_sandbox(
        self, namespace: str, body: dict[str, Any]
    ) -> tuple[SandboxEntry, Sandbox]:
        """Create the Sandbox of a cold start; return it also whole.

        One POST. Raises AlreadyExists.
        """
        written = await self._writer.create(
            self._sandboxes, namespace, body, name=body["metadata"]["name"]
        )
        return written.entry, written.item

    async def get_sandbox(self, key: Key) -> SandboxEntry | None:
        """Fetch a Sandbox; ``None`` when there is none."""
        found = await self._writer.get(self._sandboxes, key)
        return found.entry if found is not None else None

    async def peek_sandbox(self, key: Key) -> Sandbox | None:
        """Fetch a whole Sandbox without caching it; ``None`` when it is gone."""
        found: Sandbox | None = await self._writer.peek(self._sandboxes, key)
        return found

    async def get_pod_metadata(self, key: Key) -> PodTemplateMetadata | None:
        """Fetch the metadata of a Sandbox's Pod template, reserved keys and all."""
        found: Sandbox = await self._writer.client.get(
            SANDBOXES, key.namespace, key.name, Sandbox, **self._writer.options
        )
        self._sandboxes.apply_fetched(found)
        return found.spec.podTemplate.metadata

    async def patch_sandbox(self, entry: SandboxEntry, patch: dict[str, Any]) -> SandboxEntry:
        """Apply a merge patch to a bound Sandbox."""
        return (await self._writer.patch(self._sandboxes, entry, patch, as_metadata=False)).entry

    async def delete_sandbox(self, entry: SandboxEntry) -> None:
        """Delete this very Sandbox; one that is gone is no error."""
        await self._writer.delete(self._sandboxes, entry)


def _forget_status(entry: ClaimEntry) -> None:
    entry.status = None


def _guarded(
    entry: ClaimEntry, patch: dict[str, Any], version: str
) -> list[dict[str, Any]] | dict[str, Any]:
    """Return a patch that is refused when the claim has changed, or got a status, meanwhile.

    Unlike a version, the test that there is no status holds whoever annotates the claim.
    """
    if version:
        return {"status": patch, "metadata": {"resourceVersion": version}}
    bound = {field: value for field, value in patch["sandbox"].items() if value is not None}
    return [
        {"op": "test", "path": "/metadata/uid", "value": entry.uid},
        {"op": "test", "path": "/status", "value": None},
        {"op": "add", "path": "/status", "value": {**patch, "sandbox": bound}},
    ]

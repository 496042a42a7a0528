"""The requests of the claim reconciler. Every method makes one request."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import NotFound
from lean_sandbox.kube.limits import Lane
from lean_sandbox.kube.resources import SANDBOXES
from lean_sandbox.model import names
from lean_sandbox.model.claim import SandboxClaim, SandboxClaimStatus
from lean_sandbox.model.sandbox import PodTemplateMetadata, Sandbox
from lean_sandbox.runtime.queue import WorkQueue
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.claim import ClaimEntry
from lean_sandbox.watch.resources.policy import PolicyEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class ClaimAct:
    """Carries out what a pass over a claim decides."""

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
        claim: SandboxClaim | None = await self._writer.get(self._claims, key)
        return claim

    async def peek_claim(self, key: Key) -> SandboxClaim | None:
        """Fetch the whole claim without caching it; ``None`` when it is gone."""
        claim: SandboxClaim | None = await self._writer.peek(self._claims, key)
        return claim

    def learn_claim(self, claim: SandboxClaim) -> None:
        """Cache what :meth:`peek_claim` has shown, and reconcile the claim again."""
        entry, _ = self._claims.apply_response(claim)
        self._queue.add(entry.key, reason="written by others")

    async def patch_status(
        self,
        entry: ClaimEntry,
        patch: dict[str, Any],
        status: SandboxClaimStatus,
        *,
        version: str = "",
    ) -> bool:
        """Write the status; false when the claim is gone.

        Raises Conflict when ``version`` is given and is not the claim's any more.
        """
        body: dict[str, Any] = {"status": patch}
        if version:
            body["metadata"] = {"resourceVersion": version}
        return await self._write_status(entry, body, status)

    async def set_first_status(
        self, entry: ClaimEntry, patch: dict[str, Any], status: SandboxClaimStatus
    ) -> bool:
        """Write the status of a claim that has none yet; false when the claim is gone.

        Unlike a version, what is tested here holds whoever annotates the claim meanwhile. Raises
        Invalid when the claim has a status by now, or is another one.
        """
        body: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": entry.uid},
            {"op": "test", "path": "/status", "value": None},
            {"op": "add", "path": "/status", "value": patch},
        ]
        return await self._write_status(entry, body, status)

    async def _write_status(
        self,
        entry: ClaimEntry,
        body: list[dict[str, Any]] | dict[str, Any],
        status: SandboxClaimStatus,
    ) -> bool:
        try:
            written = await self._writer.patch(
                self._claims,
                entry,
                body,
                subresource="status",
                generation=entry.generation,
                doubt=_forget_status,
            )
        except NotFound:
            return False
        if written.entry.uid == entry.uid:
            written.entry.status = status
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

    async def forget_assignment(self, entry: ClaimEntry) -> None:
        """Remove the name of a Sandbox that is not the claim's."""
        await self.annotate(entry, {names.SANDBOX_NAME_ANNOTATION: None})

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
        written = await self._writer.patch(self._sandboxes, member, patch)
        entry = written.entry
        self._follow_template(entry, member, visible)
        return entry

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
            template_labels=visible.labels,
            template_annotations=visible.annotations,
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
        held = self._sandboxes.get(key)
        found = await self._writer.peek(self._sandboxes, key)
        if found is not None:
            return self._sandboxes.apply_fetched(found)
        self._sandboxes.apply_not_found(held)
        return None

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
        return (await self._writer.patch_whole(self._sandboxes, entry, patch)).entry

    async def delete_sandbox(self, entry: SandboxEntry) -> None:
        """Delete this very Sandbox; one that is gone is no error."""
        await self._writer.delete(self._sandboxes, entry)


def _forget_status(entry: ClaimEntry) -> None:
    entry.status = None

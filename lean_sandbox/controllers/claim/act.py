"""The requests of the claim reconciler, each with what its answer teaches."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from lean_sandbox.controllers.doubt import doubting
from lean_sandbox.kube.client import METADATA_ACCEPT, Client
from lean_sandbox.kube.errors import NotFound
from lean_sandbox.kube.limits import Lane
from lean_sandbox.kube.resources import NETWORKPOLICIES, SANDBOXCLAIMS, SANDBOXES
from lean_sandbox.kube.wire import PartialObject
from lean_sandbox.model import names
from lean_sandbox.model.claim import SandboxClaim, SandboxClaimStatus
from lean_sandbox.model.sandbox import PodTemplateMetadata, Sandbox
from lean_sandbox.runtime.queue import WorkQueue
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.objects import SandboxEntry, row_of
from lean_sandbox.watch.resources.extension_objects import ClaimEntry, PolicyEntry


class ClaimAct:
    """Carries out what a pass over a claim decides."""

    def __init__(
        self, client: Client, caches: Caches, queue: WorkQueue[Key], *, timeout_s: float
    ) -> None:
        self._client = client
        self._queue = queue
        self._options: dict[str, Any] = {"lane": Lane.CLIENT, "timeout_s": timeout_s}
        self._behind: dict[str, Any] = {"lane": Lane.BACKGROUND, "timeout_s": timeout_s}
        self._claims = caches.claims
        self._policies = caches.policies
        self._sandboxes = caches.sandboxes

    # -- claims ----------------------------------------------------------------------------------

    async def get_claim(self, key: Key) -> SandboxClaim | None:
        """Fetch the whole claim; ``None`` when it is gone. One GET."""
        claim = await self._client.find(
            SANDBOXCLAIMS, key.namespace, key.name, SandboxClaim, **self._options
        )
        if claim is not None:
            self._claims.apply_fetched(claim)
        return claim

    async def peek_claim(self, key: Key) -> SandboxClaim | None:
        """Fetch the whole claim without remembering it; ``None`` when it is gone. One GET.

        What it shows newly is for the watch to tell, and to everybody.
        """
        return await self._client.find(
            SANDBOXCLAIMS, key.namespace, key.name, SandboxClaim, **self._options
        )

    def learn_claim(self, claim: SandboxClaim) -> None:
        """Remember what :meth:`peek_claim` has shown, and look at the claim again."""
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
        """Write the status; false when the claim is gone. One PATCH.

        Raises Conflict when ``version`` is given and is not the claim's any more.
        """
        body: dict[str, Any] = {"status": patch}
        if version:
            body["metadata"] = {"resourceVersion": version}
        return await self._send_status(entry, body, status)

    async def set_first_status(
        self, entry: ClaimEntry, patch: dict[str, Any], status: SandboxClaimStatus
    ) -> bool:
        """Write the status of a claim that has none yet; false when the claim is gone. One PATCH.

        Unlike a version, what is tested here holds whoever annotates the claim meanwhile. Raises
        Invalid when the claim has a status by now, or is another one.
        """
        body: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": entry.uid},
            {"op": "test", "path": "/status", "value": None},
            {"op": "add", "path": "/status", "value": patch},
        ]
        return await self._send_status(entry, body, status)

    async def _send_status(
        self,
        entry: ClaimEntry,
        body: list[dict[str, Any]] | dict[str, Any],
        status: SandboxClaimStatus,
    ) -> bool:
        send = self._client.json_patch if isinstance(body, list) else self._client.merge_patch

        def forget() -> None:
            held = self._claims.get(entry.key)
            if held is not None and held.uid == entry.uid:
                held.status = None

        with (
            suppress(NotFound),
            doubting(forget),
            self._claims.expect_own_write(entry.key, entry.uid),
        ):
            answer = await send(
                SANDBOXCLAIMS,
                entry.key.namespace,
                entry.key.name,
                body,
                PartialObject,
                subresource="status",
                accept=METADATA_ACCEPT,
                **self._options,
            )
            learned = self._learn_claim(entry.key, answer)
            if learned.uid == answer.metadata.uid:
                learned.status = status
            return True
        return False

    async def annotate(self, entry: ClaimEntry, changes: Mapping[str, str | None]) -> None:
        """Set or remove annotations of the claim, behind everything else. One PATCH.

        The label of older days that named the Sandbox goes with the first of them.
        """
        metadata: dict[str, Any] = {"annotations": changes}
        if names.SANDBOX_NAME_ANNOTATION in (entry.labels or {}):
            metadata["labels"] = {names.SANDBOX_NAME_ANNOTATION: None}
        with suppress(NotFound), self._claims.expect_own_write(entry.key, entry.uid):
            answer = await self._client.merge_patch(
                SANDBOXCLAIMS,
                entry.key.namespace,
                entry.key.name,
                {"metadata": metadata},
                PartialObject,
                accept=METADATA_ACCEPT,
                **self._behind,
            )
            self._learn_claim(entry.key, answer)

    async def forget_assignment(self, entry: ClaimEntry) -> None:
        """Remove the name of a Sandbox that is not the claim's. One PATCH."""
        await self.annotate(entry, {names.SANDBOX_NAME_ANNOTATION: None})

    async def delete_claim(self, entry: ClaimEntry, *, foreground: bool) -> None:
        """Delete this very claim; one that is gone is no error. One DELETE."""
        try:
            await self._client.delete(
                SANDBOXCLAIMS,
                entry.key.namespace,
                entry.key.name,
                uid=entry.uid,
                propagation="Foreground" if foreground else None,
                **self._options,
            )
        except NotFound:
            return

    async def delete_policy(self, entry: PolicyEntry) -> None:
        """Delete this very NetworkPolicy; one that is gone is no error. One DELETE."""
        with suppress(NotFound):
            await self._client.delete(
                NETWORKPOLICIES,
                entry.key.namespace,
                entry.key.name,
                uid=entry.uid,
                **self._behind,
            )
        self._policies.forget(entry.key, entry.uid)

    def _learn_claim(self, key: Key, answer: PartialObject) -> ClaimEntry:
        row = row_of(answer.metadata)
        before = self._claims.get(key)
        entry, _ = self._claims.apply_metadata_response(row)
        if before is not None and entry.generation != before.generation:
            self._queue.add(key, reason="changed meanwhile")
        return entry

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
        send = self._client.json_patch if isinstance(patch, list) else self._client.merge_patch
        with self._sandboxes.expect_own_write(member.key, member.uid):
            answer = await send(
                SANDBOXES,
                member.key.namespace,
                member.key.name,
                patch,
                PartialObject,
                accept=METADATA_ACCEPT,
                **self._options,
            )
            entry, _ = self._sandboxes.apply_metadata_response(row_of(answer.metadata))
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
        with self._sandboxes.expect_own_write(Key(namespace, body["metadata"]["name"])):
            made = await self._client.create(SANDBOXES, namespace, body, Sandbox, **self._options)
            entry, _ = self._sandboxes.apply_response(made)
        return entry, made

    async def get_sandbox(self, key: Key) -> SandboxEntry | None:
        """Fetch a Sandbox; ``None`` when there is none. One GET."""
        held = self._sandboxes.get(key)
        found = await self._client.find(
            SANDBOXES, key.namespace, key.name, Sandbox, **self._options
        )
        if found is not None:
            return self._sandboxes.apply_fetched(found)
        self._sandboxes.apply_not_found(held)
        return None

    async def peek_sandbox(self, key: Key) -> Sandbox | None:
        """Fetch a whole Sandbox without remembering it; ``None`` when it is gone. One GET."""
        return await self._client.find(SANDBOXES, key.namespace, key.name, Sandbox, **self._options)

    async def get_pod_metadata(self, key: Key) -> PodTemplateMetadata | None:
        """Fetch the metadata of a Sandbox's Pod template, reserved keys and all. One GET."""
        found = await self._client.get(SANDBOXES, key.namespace, key.name, Sandbox, **self._options)
        self._sandboxes.apply_fetched(found)
        return found.spec.podTemplate.metadata

    async def patch_sandbox(self, entry: SandboxEntry, patch: dict[str, Any]) -> SandboxEntry:
        """Apply a merge patch to a bound Sandbox. One PATCH."""
        made = await self._client.merge_patch(
            SANDBOXES, entry.key.namespace, entry.key.name, patch, Sandbox, **self._options
        )
        learned, _ = self._sandboxes.apply_response(made)
        return learned

    async def delete_sandbox(self, entry: SandboxEntry) -> None:
        """Delete this very Sandbox; one that is gone is no error. One DELETE."""
        try:
            await self._client.delete(
                SANDBOXES,
                entry.key.namespace,
                entry.key.name,
                uid=entry.uid,
                **self._options,
            )
        except NotFound:
            self._sandboxes.forget(entry.key, entry.uid)

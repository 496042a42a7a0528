"""The requests of the pool reconciler, everything in the background lane."""

from __future__ import annotations

from typing import Any

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import Conflict
from lean_sandbox.kube.limits import Lane
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.model.warmpool import UNKNOWN_POOL_STATUS, SandboxWarmPoolStatus
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.pool import PoolEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class PoolAct:
    """Carries out what a pass over a pool decides; every method makes one request."""

    def __init__(self, client: Client, caches: Caches, *, timeout_s: float) -> None:
        self._writer = ObjectWriter(client, lane=Lane.BACKGROUND, timeout_s=timeout_s)
        self._pools = caches.pools
        self._sandboxes = caches.sandboxes

    async def create(self, namespace: str, body: bytes) -> Sandbox:
        """Create a member."""
        written = await self._writer.create(self._sandboxes, namespace, body)
        member: Sandbox = written.item
        return member

    async def get(self, key: Key) -> Sandbox | None:
        """Fetch a whole Sandbox to judge its spec; ``None`` when it is gone."""
        found: Sandbox | None = await self._writer.peek(self._sandboxes, key)
        return found

    async def delete(self, entry: SandboxEntry) -> bool:
        """Delete a Sandbox unless it was written to meanwhile; tell whether it goes.

        Guarded by uid and version: one that a claim took a moment ago must not be destroyed.
        """
        try:
            await self._writer.delete(self._sandboxes, entry, version=entry.version)
        except Conflict:
            return False
        return True

    async def patch(self, entry: SandboxEntry, metadata: dict[str, Any]) -> None:
        """Apply a merge patch to the metadata of a Sandbox.

        With a resourceVersion in it, a lost race is a Conflict.
        """
        await self._writer.patch(self._sandboxes, entry, {"metadata": metadata})

    async def patch_status(
        self, entry: PoolEntry, patch: dict[str, Any], status: SandboxWarmPoolStatus
    ) -> None:
        """Write the status of a pool."""
        written = await self._writer.patch(
            self._pools,
            entry,
            {"status": patch},
            subresource="status",
            generation=entry.generation,
            doubt=_forget_status,
        )
        if written.is_latest:
            written.entry.status = status
        elif written.entry is entry:
            _forget_status(entry)


def _forget_status(entry: PoolEntry) -> None:
    entry.status = UNKNOWN_POOL_STATUS

"""The requests of the pool reconciler, each with what its answer teaches."""

from __future__ import annotations

from typing import Any

from lean_sandbox.controllers.doubt import doubting
from lean_sandbox.kube.client import METADATA_ACCEPT, Client
from lean_sandbox.kube.errors import Conflict, NotFound
from lean_sandbox.kube.limits import Lane
from lean_sandbox.kube.resources import SANDBOXES, SANDBOXWARMPOOLS
from lean_sandbox.kube.wire import PartialObject
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.model.warmpool import UNKNOWN_POOL_STATUS, SandboxWarmPoolStatus
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.objects import SandboxEntry, row_of
from lean_sandbox.watch.resources.extension_objects import PoolEntry
from lean_sandbox.watch.store import Key


class PoolAct:
    """Carries out what a pass over a pool decides; everything in the background lane."""

    def __init__(self, client: Client, *, timeout_s: float) -> None:
        self._client = client
        self._options: dict[str, Any] = {"lane": Lane.BACKGROUND, "timeout_s": timeout_s}
        self._pools: Cache[PoolEntry]
        self._sandboxes: Cache[SandboxEntry]

    def connect(self, pools: Cache[PoolEntry], sandboxes: Cache[SandboxEntry]) -> None:
        """Take the intakes, which need the controllers' handlers to be built."""
        self._pools = pools
        self._sandboxes = sandboxes

    def refused_s(self, namespace: str) -> float:
        """Return for how long creates are refused, for the namespace ends; 0 where they are not."""
        return self._client.ending.left_s(namespace)

    def begins(self, namespace: str) -> None:
        """Take note that something new has appeared in a namespace."""
        self._client.ending.forget(namespace)

    async def create(self, namespace: str, body: bytes) -> Sandbox:
        """Create a member. One POST."""
        made = await self._client.create(SANDBOXES, namespace, body, Sandbox, **self._options)
        self._sandboxes.apply_response(made)
        return made

    async def get(self, key: Key) -> Sandbox | None:
        """Fetch a whole Sandbox; ``None`` when it is gone. One GET.

        It only serves to judge the spec and is not remembered: what it shows newly is for the watch
        to tell, and to everybody.
        """
        return await self._client.find(SANDBOXES, key.namespace, key.name, Sandbox, **self._options)

    async def delete(self, entry: SandboxEntry) -> bool:
        """Delete a Sandbox unless it was written to meanwhile; tell whether it goes.

        Guarded by uid and version: one that a claim took a moment ago must not be destroyed.
        One DELETE.
        """
        try:
            await self._client.delete(
                SANDBOXES,
                entry.key.namespace,
                entry.key.name,
                uid=entry.uid,
                resource_version=str(entry.version) if entry.version else None,
                **self._options,
            )
        except NotFound:
            self._sandboxes.forget(entry.key, entry.uid)
            return True
        except Conflict:
            return False
        return True

    async def patch(self, key: Key, metadata: dict[str, Any]) -> SandboxEntry:
        """Apply a merge patch to the metadata of a Sandbox; return what is known of it then.

        With a resourceVersion in it, a lost race is a Conflict. One PATCH.
        """
        answer = await self._client.merge_patch(
            SANDBOXES,
            key.namespace,
            key.name,
            {"metadata": metadata},
            PartialObject,
            accept=METADATA_ACCEPT,
            **self._options,
        )
        entry, _ = self._sandboxes.apply_metadata_response(row_of(answer.metadata))
        return entry

    async def patch_status(
        self, entry: PoolEntry, patch: dict[str, Any], status: SandboxWarmPoolStatus
    ) -> None:
        """Write the status of a pool. One PATCH.

        An answer that shows another spec is not learnt: the watch has yet to tell of it.
        """

        def forget() -> None:
            held = self._pools.store.get(entry.key)
            if held is not None and held.uid == entry.uid:
                held.status = UNKNOWN_POOL_STATUS

        with doubting(forget):
            answer = await self._client.merge_patch(
                SANDBOXWARMPOOLS,
                entry.key.namespace,
                entry.key.name,
                {"status": patch},
                PartialObject,
                subresource="status",
                accept=METADATA_ACCEPT,
                **self._options,
            )
        row = row_of(answer.metadata)
        if row.generation != entry.generation:
            forget()
            return
        learned, _ = self._pools.apply_metadata_response(row)
        if learned.uid == row.uid:
            learned.status = status

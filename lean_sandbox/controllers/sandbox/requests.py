"""The requests of the Sandbox controller, and what it knows of Pods that the cache lacks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from cachetools import LRUCache, TTLCache

from lean_sandbox.clock import Clock
from lean_sandbox.controllers.common import Shared
from lean_sandbox.kube.errors import Conflict, NotFound
from lean_sandbox.model import names
from lean_sandbox.model.meta import as_version
from lean_sandbox.model.pod import PodState
from lean_sandbox.model.sandbox import Sandbox, SandboxStatus
from lean_sandbox.model.sandbox_status import FailedStep
from lean_sandbox.runtime.workers import ReconcileError, failing_as
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.watch.kind import Key, Knowledge, key_of
from lean_sandbox.watch.resources.children import ServiceEntry
from lean_sandbox.watch.resources.pod import PodEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# Bytes of responses to creates: at 2 to 3 KiB each, as many as a large batch of a pool makes.
_CREATED_BYTES = 2 * 1024 * 1024
#: The most of one response. A large one is fetched again, which costs its tenant one request.
MOST_BYTES_CREATED = 64 * 1024
_MOST_KNOWN = 4096
_KNOWN_S = 600.0


class HiddenPods:
    """What is known of Pods that the cache does not show.

    A name is absent once a request has found no Pod, or the watch has seen its deletion: no GET is
    needed. A Pod is doubtful if it left the watch without a deletion: perhaps it only lost the
    label by which it is watched, and a create would collide with it. Both are forgotten after ten
    minutes, or earlier if there are too many names.
    """

    def __init__(self, clock: Clock) -> None:
        # By name: true for a Pod that is absent, false for a doubtful one.
        self._known: TTLCache[Key, bool] = TTLCache(_MOST_KNOWN, _KNOWN_S, clock.monotonic)

    def is_doubtful(self, key: Key) -> bool:
        """Return whether only a GET can show if there is a Pod of this name."""
        return self._known.get(key) is False

    def is_absent(self, key: Key) -> bool:
        """Return whether there is known to be no Pod of this name."""
        return self._known.get(key) is True

    def ended(self, key: Key) -> None:
        """Note that the watch has shown the end of the Pod; a doubt may concern its successor."""
        if not self.is_doubtful(key):
            self._known[key] = True

    def lost(self, key: Key) -> None:
        """Note that there may be such a Pod, which the watch does not show."""
        self._known[key] = False

    def fetched_none(self, key: Key) -> None:
        """Note that a request has found no Pod."""
        self._known[key] = True

    def forget(self, key: Key) -> None:
        """Drop what is known of a name: the watch shows its Pod, or will, or it is not needed."""
        self._known.pop(key, None)


class SandboxRequests(ObjectWriter):
    """A writer that also keeps track of hidden Pods; each method makes one request at most."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared.client, field_manager=names.FIELD_MANAGER)
        self._caches = shared.caches
        self.hidden = HiddenPods(shared.clock)
        # The responses to creates, for the first reconcile, which needs the whole spec.
        self._created: LRUCache[Key, Sandbox] = LRUCache(_CREATED_BYTES, getsizeof=_bytes_of)

    def keep_created(self, sandbox: Sandbox) -> None:
        """Keep the response to a create for the first reconcile of the Sandbox, unless large."""
        if _bytes_of(sandbox) <= MOST_BYTES_CREATED:
            self._created[key_of(sandbox.metadata.namespace, sandbox.metadata.name)] = sandbox

    def drop_created(self, key: Key) -> None:
        """Drop the response to the create of a Sandbox, whose first reconcile has ended."""
        self._created.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drop what is kept of a Sandbox that is gone."""
        self.drop_created(key)
        self.hidden.forget(key)

    async def get_sandbox(self, key: Key) -> Sandbox | None:
        """Fetch the whole Sandbox; ``None`` when it is gone.

        No request while the response to its create is of the newest version that is known.
        """
        created = self._created.pop(key, None)
        known = self._caches.sandboxes.get(key)
        if created is not None and known is not None and known.version:
            meta = created.metadata
            if (known.uid, known.version) == (meta.uid, as_version(meta.resource_version)):
                return created
        found = await self.get(self._caches.sandboxes, key)
        sandbox: Sandbox | None = found.item if found is not None else None
        return sandbox

    async def annotate(self, entry: SandboxEntry, name: str, value: str | None) -> str | None:
        """Set or remove an annotation of the Sandbox; return what the answer has in its place."""
        patch = {"metadata": {"annotations": {name: value}}}
        # Metadata alone might hide what somebody has written into the status meanwhile.
        made = await self.patch(self._caches.sandboxes, entry, patch, as_metadata=False)
        left: str | None = (made.item.metadata.annotations or {}).get(name)
        return left

    async def patch_status(
        self,
        entry: SandboxEntry,
        patch: dict[str, Any],
        status: SandboxStatus,
        *,
        is_guarded: bool = False,
    ) -> None:
        """Apply a merge patch to the status; a Sandbox that is gone is not an error.

        Raises ReconcileError if another Sandbox has the name now; the watch will deliver that one.
        If it is guarded by the known version, raises Conflict as :meth:`delete_sandbox` does.
        """
        sandboxes = self._caches.sandboxes
        with suppress(NotFound):
            async with self._fetching_after_conflict(entry.key):
                if is_guarded:
                    version = await self.guard(sandboxes, entry)
                    patch = {**patch, "metadata": {"resourceVersion": version}}
                written = await self.patch(sandboxes, entry, patch, status=status)
            if written.item.metadata.uid != entry.uid:
                raise ReconcileError(f'sandbox "{entry.key.name}" has been made anew')

    async def delete_sandbox(self, entry: SandboxEntry) -> None:
        """Delete exactly this Sandbox at its known version; one that is gone is not an error.

        Raises Conflict when it was written to meanwhile, perhaps to keep it; it is fetched then.
        """
        async with self._fetching_after_conflict(entry.key):
            await self.delete(self._caches.sandboxes, entry, is_guarded=True)
        # The ends of its children may be seen before its own; they must not wake it again.
        self._caches.sandboxes.mark(entry, is_deleting=True)

    @asynccontextmanager
    async def _fetching_after_conflict(self, key: Key) -> AsyncIterator[None]:
        try:
            yield
        except Conflict:
            await self.get(self._caches.sandboxes, key)
            raise

    async def get_pod(self, key: Key) -> PodEntry | None:
        """Fetch a Pod; ``None`` when there is none, which is remembered."""
        was_doubtful = self.hidden.is_doubtful(key)
        found = await self.get(self._caches.pods, key)
        if found is None:
            if key not in self._caches.pods and was_doubtful == self.hidden.is_doubtful(key):
                # Otherwise an event was faster than the response and has shown a later state.
                self.hidden.fetched_none(key)
            return None
        if names.NAME_HASH_LABEL in (found.entry.labels or {}):
            self.hidden.forget(key)
        else:
            # The watch does not show it: the next reconcile has to fetch it again.
            self.hidden.lost(key)
        return found.entry

    async def create_pod(self, sandbox: Key, body: dict[str, Any]) -> PodEntry:
        """Create the Pod; the response is asked for as metadata, half the bytes."""
        # From now on there may be a Pod, even if no response comes.
        self.hidden.forget(sandbox)
        pods = self._caches.pods
        entry = (await self.create(pods, sandbox.namespace, body, name=sandbox.name)).entry
        if entry.state is not None:
            # A list was faster than the response, and has shown the whole Pod.
            return entry
        # The server sets this phase on every Pod it creates.
        state = PodState(phase=names.POD_PENDING)
        if pods.get(entry.key) is not entry:
            # An event that waited for the response has shown more, or the end of the Pod.
            return msgspec.structs.replace(entry, state=state, knowledge=Knowledge.KNOWN)
        return pods.mark(entry, state=state, knowledge=Knowledge.KNOWN)

    async def delete_pod(self, pod: PodEntry) -> bool:
        """Delete exactly this Pod; false if it was gone. Raises Conflict if its name is taken."""
        try:
            was_there = await self.delete(self._caches.pods, pod)
        except Conflict:
            # The watch may not show the Pod that has the name now.
            self.hidden.lost(pod.key)
            raise
        if not was_there:
            if pod.key not in self._caches.pods:
                self.hidden.fetched_none(pod.key)
            return False
        self._caches.pods.mark(pod, is_delete_sent=True)
        return True

    async def delete_service(self, service: ServiceEntry) -> None:
        """Delete exactly this Service; one that is gone is not an error."""
        with failing_as(FailedStep.SERVICE_DELETE):
            await self.remove(self._caches.services, service)


def _bytes_of(sandbox: Sandbox) -> int:
    # About as many as its message, which its Raw parts keep alive.
    return len(msgspec.json.encode(sandbox))

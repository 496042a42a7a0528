"""The requests of the Sandbox reconciler, each with what its answer teaches.

Every method makes exactly one request. What the server answers goes into the cache, so that the
watch event of the same version is known when it comes; while a write is under way the events of
its object wait for the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import msgspec

from filters import Change
from lean_sandbox.controllers.sandbox.handed import CreateResponses
from lean_sandbox.kube.client import METADATA_ACCEPT, Client
from lean_sandbox.kube.errors import ApiError, NotFound
from lean_sandbox.kube.limits import Lane
from lean_sandbox.kube.resources import PODS, PVCS, SANDBOXES, SERVICES
from lean_sandbox.kube.wire import PartialObject
from lean_sandbox.model import names
from lean_sandbox.model.meta import as_version
from lean_sandbox.model.pod import Pod, PodState
from lean_sandbox.model.sandbox import Sandbox, SandboxStatus
from lean_sandbox.model.service import Service
from lean_sandbox.runtime.absent import KnownAbsent, Proof
from lean_sandbox.runtime.queue import WorkQueue
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.kind import Entry, Key, key_of
from lean_sandbox.watch.resources.pod import NEW_POD_COLUMNS, WAITING, PodEntry, pod_from_full
from lean_sandbox.watch.resources.pvc import PvcEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry, sandbox_columns
from lean_sandbox.watch.resources.service import ServiceEntry, service_from_full

E = TypeVar("E", bound=Entry)

# What an answer may show beyond our own change and still concern nobody: our write itself.
_OURS = Change.COLUMNS | Change.VERSION


class Act:
    """Carries out what the plans ask for."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        queue: WorkQueue[Key],
        absent: KnownAbsent,
        handed: CreateResponses,
        *,
        timeout_s: float,
    ) -> None:
        self._client = client
        self._handed = handed
        self._caches = caches
        self._queue = queue
        self._absent = absent
        self._options: dict[str, Any] = {"lane": Lane.CLIENT, "timeout_s": timeout_s}

    def check_namespace(self, namespace: str) -> None:
        """Raise Forbidden where creates are refused for the namespace ends; ask nobody."""
        self._client.ending.check(namespace)

    # -- the Sandbox itself ----------------------------------------------------------------------

    async def get_sandbox(self, key: Key) -> Sandbox | None:
        """Fetch the whole Sandbox; ``None`` when it is gone.

        One GET; none when it was handed over and is still the newest that is known.
        """
        handed = self._handed.take(key, self._caches.sandboxes.get(key))
        if handed is not None:
            return handed
        cache = self._caches.sandboxes
        held = cache.get(key)
        sandbox = await self._client.find(
            SANDBOXES, key.namespace, key.name, Sandbox, **self._options
        )
        if sandbox is None:
            cache.apply_not_found(held)
            return None
        cache.apply_fetched(sandbox)
        return sandbox

    async def patch_sandbox(self, entry: SandboxEntry, patch: dict[str, Any]) -> None:
        """Apply a merge patch to the Sandbox's metadata. One PATCH."""
        with self._caches.sandboxes.expect_own_write(entry.key, entry.uid):
            answer = await self._client.merge_patch(
                SANDBOXES,
                entry.key.namespace,
                entry.key.name,
                patch,
                PartialObject,
                accept=METADATA_ACCEPT,
                **self._options,
            )
            wanted = _patched(entry.annotations, patch["metadata"].get("annotations") or {})
            self._learned(entry, answer, entry.status, wanted=wanted)

    async def patch_status(
        self, entry: SandboxEntry, patch: dict[str, Any], status: SandboxStatus
    ) -> None:
        """Apply a merge patch to the status; an object that is gone is no error. One PATCH."""

        def forget() -> None:
            held = self._caches.sandboxes.get(entry.key)
            if held is not None and held.uid == entry.uid:
                held.status = None

        with (
            suppress(NotFound),
            _doubting(forget),
            self._caches.sandboxes.expect_own_write(entry.key, entry.uid),
        ):
            answer = await self._client.merge_patch(
                SANDBOXES,
                entry.key.namespace,
                entry.key.name,
                patch,
                PartialObject,
                subresource="status",
                accept=METADATA_ACCEPT,
                **self._options,
            )
            self._learned(entry, answer, status)

    async def delete_sandbox(self, entry: SandboxEntry) -> None:
        """Delete the Sandbox, if it is still the same one. One DELETE."""
        with suppress(NotFound):
            await self._client.delete(
                SANDBOXES, entry.key.namespace, entry.key.name, uid=entry.uid, **self._options
            )
        held = self._caches.sandboxes.get(entry.key)
        if held is not None and held.uid == entry.uid:
            # The ends of its children may be told before its own; they must not ask for it again.
            held.is_deleting = True

    def _learned(
        self,
        written: SandboxEntry,
        answer: PartialObject,
        status: SandboxStatus | None,
        *,
        wanted: dict[str, str] | None = None,
    ) -> None:
        """Take in the answer to a write; ``wanted`` are the annotations that it meant to leave."""
        row = answer.metadata.with_columns(sandbox_columns(status))
        if row.uid != written.uid:
            # The watch has yet to deliver the successor to all controllers.
            return
        entry, change = self._caches.sandboxes.apply_metadata_response(row)
        if entry.version == as_version(row.resource_version):
            entry.status = status
        elif entry.uid == row.uid:
            # A newer event has overtaken the answer: who wrote the status last is not known.
            entry.status = None
        if wanted is not None and wanted == (entry.annotations or {}):
            change &= ~Change.ANNOTATIONS
        if change & ~_OURS or entry.needs_look:
            # Between what we knew and our write somebody else changed something.
            self._queue.add(entry.key, reason="changed meanwhile")

    # -- Pods ------------------------------------------------------------------------------------

    async def get_pod(self, key: Key) -> PodEntry | None:
        """Fetch a Pod; ``None``, remembered, when there is none. One GET."""
        asked = self._absent.ticket()
        held = self._caches.pods.get(key)
        try:
            pod = await self._client.get(PODS, key.namespace, key.name, Pod, **self._options)
        except NotFound:
            self._caches.pods.apply_not_found(held)
            self._absent.remember(
                PODS.plural, key.namespace, key.name, Proof.NOT_FOUND, since=asked
            )
            return None
        if not _is_watched(pod):
            return pod_from_full(pod, pod.metadata, None)
        return self._caches.pods.apply_fetched(pod)

    async def create_pod(self, sandbox: Key, body: dict[str, Any]) -> PodEntry:
        """Create the Pod; the answer is asked for as metadata, half the bytes. One POST."""
        with self._caches.pods.expect_own_write(sandbox):
            return await self._create_pod(sandbox, body)

    async def _create_pod(self, sandbox: Key, body: dict[str, Any]) -> PodEntry:
        answer = await self._client.create(
            PODS,
            sandbox.namespace,
            body,
            PartialObject,
            field_manager=names.FIELD_MANAGER,
            accept=METADATA_ACCEPT,
            **self._options,
        )
        row = answer.metadata
        self._absent.forget(PODS.plural, sandbox.namespace, row.name)
        entry = self._caches.pods.get(key_of(row.namespace, row.name))
        if entry is None or entry.uid != row.uid:
            row = row.with_columns(NEW_POD_COLUMNS)
            entry = self._caches.pods.apply_create_response(row)
        if entry.state is None:
            # The server sets this phase on every Pod it creates.
            entry.state = PodState(phase=names.POD_PENDING)
            entry.is_stale = entry.hint != WAITING or entry.version > as_version(
                row.resource_version
            )
        return entry

    async def patch_pod(self, pod: PodEntry, patch: dict[str, Any]) -> PodEntry:
        """Apply a merge patch to a Pod. One PATCH."""
        with self._caches.pods.expect_own_write(pod.key, pod.uid):
            answer = await self._client.merge_patch(
                PODS, pod.key.namespace, pod.key.name, patch, Pod, **self._options
            )
            if not _is_watched(answer) or answer.metadata.uid != pod.uid:
                return pod_from_full(answer, answer.metadata, None)
            return self._caches.pods.apply_response(answer)[0]

    async def delete_pod(self, pod: PodEntry) -> bool:
        """Delete this very Pod, not one of the same name made since. One DELETE.

        Returns whether it was there. Raises Conflict when another Pod has its name.
        """
        asked = self._absent.ticket()
        try:
            await self._client.delete(
                PODS, pod.key.namespace, pod.key.name, uid=pod.uid, **self._options
            )
        except NotFound:
            self._caches.pods.forget(pod.key, pod.uid)
            self._absent.remember(
                PODS.plural, pod.key.namespace, pod.key.name, Proof.NOT_FOUND, since=asked
            )
            return False
        held = self._caches.pods.get(pod.key)
        if held is not None and held.uid == pod.uid:
            held.is_delete_sent = True
        return True

    # -- Services --------------------------------------------------------------------------------

    async def get_service(self, sandbox: Key) -> tuple[ServiceEntry, dict[str, Any]] | None:
        """Fetch the Service of the Sandbox's name, also with every field, to be written back.

        ``None`` when there is none. One GET.
        """
        cache = self._caches.services
        held = cache.get(sandbox)
        try:
            whole = await self._client.get(
                SERVICES, sandbox.namespace, sandbox.name, dict, **self._options
            )
        except NotFound:
            cache.apply_not_found(held)
            return None
        service = msgspec.convert(whole, Service)
        if not self._watches_service(service):
            return service_from_full(service, service.metadata, None), whole
        return cache.apply_fetched(service), whole

    def _watches_service(self, service: Service) -> bool:
        """Tell whether the watch, if it is filtered, will tell of this Service's end."""
        selector = self._caches.services.kind.label_selector
        return selector is None or names.NAME_HASH_LABEL in (service.metadata.labels or {})

    async def create_service(self, sandbox: Key, body: dict[str, Any]) -> ServiceEntry:
        """Create the Service. One POST."""
        with self._caches.services.expect_own_write(sandbox):
            service = await self._client.create(
                SERVICES,
                sandbox.namespace,
                body,
                Service,
                field_manager=names.FIELD_MANAGER,
                **self._options,
            )
            return self._caches.services.apply_response(service)[0]

    async def replace_service(self, sandbox: Key, body: dict[str, Any]) -> ServiceEntry:
        """Write the Service back; its resourceVersion guards against a lost change. One PUT."""
        with self._caches.services.expect_own_write(sandbox):
            service = await self._client.replace(
                SERVICES, sandbox.namespace, sandbox.name, body, Service, **self._options
            )
            return self._caches.services.apply_response(service)[0]

    async def patch_service(self, sandbox: Key, patch: dict[str, Any]) -> ServiceEntry:
        """Apply a merge patch to the Service. One PATCH."""
        with self._caches.services.expect_own_write(sandbox):
            service = await self._client.merge_patch(
                SERVICES, sandbox.namespace, sandbox.name, patch, Service, **self._options
            )
            return self._caches.services.apply_response(service)[0]

    async def delete_service(self, service: ServiceEntry) -> None:
        """Delete this very Service; one that is gone is no error. One DELETE."""
        with suppress(NotFound):
            await self._client.delete(
                SERVICES,
                service.key.namespace,
                service.key.name,
                uid=service.uid,
                **self._options,
            )
        self._caches.services.forget(service.key, service.uid)

    # -- Claims for volumes ----------------------------------------------------------------------

    async def get_pvc(self, key: Key) -> PvcEntry | None:
        """Fetch a claim's metadata; ``None`` when there is none. One GET."""
        held = self._caches.pvcs.get(key)
        claim = await self._client.find(
            PVCS,
            key.namespace,
            key.name,
            PartialObject,
            accept=METADATA_ACCEPT,
            **self._options,
        )
        if claim is None:
            self._caches.pvcs.apply_not_found(held)
            return None
        return self._caches.pvcs.apply_fetched_metadata(claim.metadata)

    async def create_pvc(self, sandbox: Key, body: dict[str, Any]) -> PvcEntry:
        """Create a claim. One POST."""
        with self._caches.pvcs.expect_own_write(Key(sandbox.namespace, body["metadata"]["name"])):
            claim = await self._client.create(
                PVCS,
                sandbox.namespace,
                body,
                PartialObject,
                field_manager=names.FIELD_MANAGER,
                accept=METADATA_ACCEPT,
                **self._options,
            )
            return self._caches.pvcs.apply_metadata_response(claim.metadata)[0]

    async def patch_pvc(self, key: Key, patch: dict[str, Any]) -> PvcEntry:
        """Apply a merge patch to a claim. One PATCH."""
        with self._caches.pvcs.expect_own_write(key):
            claim = await self._client.merge_patch(
                PVCS,
                key.namespace,
                key.name,
                patch,
                PartialObject,
                accept=METADATA_ACCEPT,
                **self._options,
            )
            return self._caches.pvcs.apply_metadata_response(claim.metadata)[0]


def _is_watched(pod: Pod) -> bool:
    """Tell whether the watch, which is filtered by this label, tells of a Pod's end."""
    return names.NAME_HASH_LABEL in (pod.metadata.labels or {})


def _patched(held: dict[str, str] | None, changes: dict[str, str | None]) -> dict[str, str]:
    """Return annotations as a merge patch leaves them."""
    merged = {**(held or {}), **changes}
    return {key: value for key, value in merged.items() if value is not None}


@contextmanager
def _doubting(forget: Callable[[], None]) -> Iterator[None]:
    """Call ``forget`` when the body raises anything but a refusal by the server.

    A write that timed out, broke off or met a server error may have been carried out all the same.
    Compared with what was remembered before, a later write could look as if it had nothing to do.
    """
    try:
        yield
    except ApiError as error:
        if error.status >= 500:
            forget()
        raise
    except BaseException:
        forget()
        raise

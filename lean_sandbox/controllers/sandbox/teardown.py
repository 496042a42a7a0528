"""What happens to the children of a Sandbox whose time is over (spec, 3.10)."""

from __future__ import annotations

from lean_sandbox.controllers.ownership import ownership_of
from lean_sandbox.controllers.sandbox.act import Act
from lean_sandbox.kube.errors import ControlPlaneError, said
from lean_sandbox.model import messages, names
from lean_sandbox.model.messages import Failure
from lean_sandbox.model.meta import Ownership
from lean_sandbox.runtime.absent import KnownAbsent
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.objects import PodEntry, SandboxEntry
from lean_sandbox.watch.store import Key, key_of


class Teardown:
    """Deletes the Pod and the Service of an expired Sandbox, those that it owns."""

    def __init__(self, caches: Caches, act: Act, absent: KnownAbsent, doubtful: set[Key]) -> None:
        """Look also for the ``doubtful`` Pods, of which the watch shows nothing."""
        self._caches = caches
        self._doubtful = doubtful
        self._act = act
        self._absent = absent

    async def run(self, entry: SandboxEntry) -> list[str]:
        """Delete what is owned and still there; return the texts of what failed.

        Requests: at most one GET of the Pod, where neither the watch nor an earlier answer shows
        whether it exists, and one DELETE each for Pod and Service.
        """
        failures: list[str] = []
        await self._pod(entry, failures)
        await self._service(entry, failures)
        return failures

    async def _pod(self, entry: SandboxEntry, failures: list[str]) -> None:
        name = names.resolve_pod_name(entry.key.name, entry.annotations or {})
        key = key_of(entry.key.namespace, name)
        pod = self._caches.pods.get(key)
        if pod is None and not self._is_absent(entry, name):
            try:
                pod = await self._act.get_pod(key, entry.key)
            except ControlPlaneError as error:
                failures.append(messages.failed(Failure.EXPIRY_POD_GET, said(error)))
                return
            self._doubtful.discard(key)
        if pod is None or self._is_going(pod):
            return
        if ownership_of(pod.owner, entry.uid) is not Ownership.OWNED:
            return
        try:
            await self._act.delete_pod(pod)
        except ControlPlaneError as error:
            failures.append(messages.failed(Failure.POD_DELETE, said(error)))

    def _is_absent(self, entry: SandboxEntry, name: str) -> bool:
        if self._absent.is_absent("pods", entry.key.namespace, name):
            return True
        # A selector is published with the first Pod and cleared by a complete teardown: without one
        # there never was a Pod, or it is gone.
        has_had_one = entry.status is not None and bool(entry.status.selector)
        return not has_had_one and Key(entry.key.namespace, name) not in self._doubtful

    @staticmethod
    def _is_going(pod: PodEntry) -> bool:
        return pod.is_terminating

    async def _service(self, entry: SandboxEntry, failures: list[str]) -> None:
        service = self._caches.services.get(entry.key)
        if service is None or ownership_of(service.owner, entry.uid) is not Ownership.OWNED:
            return
        try:
            await self._act.delete_service(service)
        except ControlPlaneError as error:
            failures.append(messages.failed(Failure.SERVICE_DELETE, said(error)))

"""The children of an expired Sandbox, which go."""

from __future__ import annotations

from lean_sandbox.controllers.sandbox.run import SandboxRun
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find
from lean_sandbox.model.sandbox_status import FailedStep
from lean_sandbox.runtime.workers import failing_as
from lean_sandbox.watch.resources.pod import PodEntry


class SandboxExpiry:
    """Finds and deletes the children of an expired Sandbox; all raise ReconcileError."""

    def __init__(self, run: SandboxRun) -> None:
        self._run = run
        self._caches = run.context.caches
        self._requests = run.context.requests

    async def find_pod(self) -> PodEntry | None:
        """Return the Pod of the name that is expected. At most one GET."""
        key = self._run.entry.pod_key
        pod = self._caches.pods.get(key)
        if pod is None and not self._requests.hidden.is_absent(key):
            with failing_as(FailedStep.EXPIRY_POD_GET):
                pod = await self._requests.get_pod(key)
        return pod

    async def end_pod(self) -> None:
        """Delete the Pods of an expired Sandbox; raises ReconcileError."""
        key = self._run.entry.pod_key
        if self._is_published_absent() and not self._requests.hidden.is_doubtful(key):
            pod = self._caches.pods.get(key)
        else:
            pod = await self.find_pod()
        # A user could name another Pod in the annotation, and so keep this one alive.
        pods = {
            own.key: own for own in self._caches.pods.owned_by(key.namespace, self._run.entry.uid)
        }
        if pod is not None and self._run.owns(pod):
            pods[key] = pod
        for own in pods.values():
            if not own.is_terminating:
                with failing_as(FailedStep.POD_DELETE):
                    await self._requests.delete_pod(own)

    async def end_service(self) -> None:
        """Delete the Service of an expired Sandbox."""
        service = self._caches.services.get(self._run.key)
        if service is not None and self._run.owns(service) and not service.is_deleting:
            await self._requests.delete_service(service)

    def _is_published_absent(self) -> bool:
        """Return whether the status of this generation says that the expired Sandbox has no Pod."""
        ready = find(self._run.old.conditions, names.READY)
        is_of_now = ready is not None and ready.observedGeneration == self._run.entry.generation
        return is_of_now and not self._run.old.selector

"""The children of an expired Sandbox, which go."""

from __future__ import annotations

from lean_sandbox.controllers.sandbox.run import SandboxRun
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find
from lean_sandbox.model.sandbox_status import FailedStep
from lean_sandbox.runtime.workers import failing_as
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.pod import PodEntry


class SandboxExpiry:
    """Finds and deletes the children of an expired Sandbox; all raise ReconcileError."""

    def __init__(self, run: SandboxRun) -> None:
        self._run = run
        self._caches = run.context.caches
        self._requests = run.context.requests

    async def find_pod(self, key: Key) -> PodEntry | None:
        """Return the Pod of this name. At most one GET."""
        pod = self._caches.pods.get(key)
        if pod is None and not self._requests.hidden.is_absent(key):
            with failing_as(FailedStep.EXPIRY_POD_GET):
                pod = await self._requests.get_pod(key)
        return pod

    async def end_pod(self) -> None:
        """Delete the Pods of an expired Sandbox; raises ReconcileError."""
        run = self._run
        pods = {
            pod.key: pod for pod in self._caches.pods.owned_by(run.key.namespace, run.entry.uid)
        }
        is_absent = self._is_published_absent()
        # A user could name another Pod in the annotation, and so keep this one alive.
        for key in dict.fromkeys((run.entry.pod_key, run.key)):
            may_exist = not is_absent or self._requests.hidden.is_doubtful(key)
            pod = await self.find_pod(key) if may_exist else self._caches.pods.get(key)
            if pod is not None and run.owns(pod):
                pods[key] = pod
        for pod in pods.values():
            if not pod.is_terminating:
                with failing_as(FailedStep.POD_DELETE):
                    await self._requests.delete_pod(pod)

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

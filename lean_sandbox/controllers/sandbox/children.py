"""The children of a Sandbox, in the reference controller's order: volume claims, Pod, Service.

An error of one child does not stop the next: all are collected and shown together.
"""

from __future__ import annotations

from lean_sandbox.controllers.sandbox.pod import PodOfSandbox
from lean_sandbox.controllers.sandbox.run import SandboxRun
from lean_sandbox.controllers.sandbox.service import ServiceOfSandbox
from lean_sandbox.controllers.sandbox.volumes import VolumeClaims
from lean_sandbox.kube.errors import message_of
from lean_sandbox.model.sandbox_status import Observation
from lean_sandbox.runtime.tracing import traced


class Children:
    """The children of one Sandbox in one of its reconciles."""

    def __init__(self, run: SandboxRun) -> None:
        self._run = run
        self._claims = VolumeClaims(run)
        self._pod = PodOfSandbox(run)
        self._service = ServiceOfSandbox(run)

    async def sync(self) -> None:
        """Bring all children to the desired state, as far as possible.

        Raises OvertakenError, and the refusal of a create in a namespace that is being deleted.
        """
        run = self._run
        has_claims = await run.guarded(traced("reconcilePVCs", self._claims.sync()))
        pod = traced("reconcilePod", self._pod.sync(may_create=has_claims))
        run.seen.has_pod_failed = not await run.guarded(pod)
        if not run.seen.many_pods:
            is_known = await run.guarded(self._service.sync())
            run.seen.is_service_unknown = not is_known
        if not run.failures and run.requeue.after_s is None:
            run.state.drift_since = None
            run.state.unsettled.clear()

    def observation(self) -> Observation:
        """Return what the status is to report about the children."""
        run = self._run
        seen = self._run.seen
        seen.pod = self._pod.observe()
        # The Sandbox may have changed meanwhile.
        seen.generation = run.entry.generation
        seen.is_suspended = run.view.is_suspended
        seen.service_requested = run.view.service
        seen.errors = tuple(map(message_of, run.failures))
        return seen

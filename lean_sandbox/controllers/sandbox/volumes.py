"""The volume claims of a Sandbox."""

from __future__ import annotations

from lean_sandbox.controllers.sandbox import plans
from lean_sandbox.controllers.sandbox.run import SandboxRun
from lean_sandbox.kube.errors import AlreadyExists
from lean_sandbox.model.pod import build_pvc, pvc_name
from lean_sandbox.model.sandbox_status import FailedStep
from lean_sandbox.runtime.workers import ReconcileError, failing_as
from lean_sandbox.watch.kind import Key, key_of
from lean_sandbox.watch.resources.children import PvcEntry

_OWNER = "owner"
# How long to wait for the first list of volume claims.
_PVC_LIST_PATIENCE_S = 5.0


class VolumeClaims:
    """Creates the volume claims of a Sandbox, and makes those its own that are there."""

    def __init__(self, run: SandboxRun) -> None:
        self._run = run
        self._context = run.context
        self._caches = run.context.caches
        self._requests = run.context.requests

    async def sync(self) -> None:
        """Bring all claims to the desired state; raises ReconcileError for one that it cannot."""
        templates = self._run.view.claim_templates
        if not templates:
            return
        # Most clusters have no Sandbox that needs any, so their watch begins with the first.
        reflectors = self._context.reflectors
        pvcs = self._caches.pvcs
        reflectors.start(pvcs)
        problem = await reflectors.synced_within(
            pvcs.kind.name, self._run.key.namespace, _PVC_LIST_PATIENCE_S
        )
        if problem is not None:
            raise ReconcileError(f"{FailedStep.PVC_GET}: {problem}")
        for index, template in enumerate(templates):
            await self._sync_pvc(
                index,
                key_of(self._run.key.namespace, pvc_name(template, self._run.key.name)),
            )

    async def _sync_pvc(self, index: int, key: Key) -> None:
        pvc = self._caches.pvcs.get(key) or await self._create_pvc(index, key)
        if self._run.owns(pvc):
            return
        text = plans.refusal("PVC", pvc, self._run.key.name)
        if text is not None:
            raise ReconcileError(text)
        if not self._run.is_in_vain(pvc, _OWNER):
            patch = {"metadata": await self._run.ownership(self._caches.pvcs, pvc)}
            with failing_as(FailedStep.PVC_PATCH):
                pvc = (await self._requests.patch(self._caches.pvcs, pvc, patch)).entry
            if self._run.owns(pvc):
                return
            self._run.judge(pvc, _OWNER, _OWNER)
        raise ReconcileError(plans.disowned("PVC", pvc))

    async def _create_pvc(self, index: int, key: Key) -> PvcEntry:
        """Create a volume claim, or return the one of its name that exists already."""
        sandbox = await self._run.whole()
        template = (sandbox.spec.volumeClaimTemplates or ())[index]
        body = build_pvc(sandbox.metadata, template)
        try:
            found = await self._requests.create(
                self._caches.pvcs, key.namespace, body, name=key.name
            )
        except AlreadyExists:
            # The cache lags behind, or does not watch this claim.
            looked = await self._requests.get(self._caches.pvcs, key)
            if looked is None:
                raise ReconcileError(f'PVC "{key.name}" exists and cannot be read') from None
            found = looked
        return found.entry

"""The Service of a Sandbox."""

from __future__ import annotations

from lean_sandbox.controllers.sandbox import plans
from lean_sandbox.controllers.sandbox.run import Lacking, SandboxRun, UnusableTemplateError
from lean_sandbox.kube.errors import AlreadyExists
from lean_sandbox.model import names
from lean_sandbox.model.sandbox_status import FailedStep
from lean_sandbox.model.service import ServiceSpec, build_service, owned_service_patch
from lean_sandbox.runtime.workers import ReconcileError, failing_as
from lean_sandbox.watch.resources.children import ServiceEntry


class ServiceOfSandbox:
    """Creates, adopts, repairs or deletes the Service of a Sandbox."""

    def __init__(self, run: SandboxRun) -> None:
        self._run = run
        self._caches = run.context.caches
        self._requests = run.context.requests

    async def sync(self) -> None:
        """Bring the Service to the desired state; raises ReconcileError if it cannot."""
        step = self._plan(self._caches.services.get(self._run.key))
        if isinstance(step, plans.Fetch):
            step = self._plan(await self._fetch())
        if isinstance(step, plans.Create):
            if await self._create_service():
                self._run.seen.service_present = True
                return
            step = self._plan(await self._fetch())
        if isinstance(step, plans.Fetch | plans.Create):
            raise ReconcileError(f"{FailedStep.SERVICE_GET}: others write to it at the same time")
        await self._carry_out_service(step)
        self._run.seen.service_present = isinstance(step, plans.Adopt | plans.Keep)

    def _plan(self, service: ServiceEntry | None) -> plans.ServiceStep:
        return plans.plan_service(self._run.entry, service)

    async def _fetch(self) -> ServiceEntry | None:
        with failing_as(FailedStep.SERVICE_GET):
            found = await self._requests.get(self._caches.services, self._run.key)
        return found.entry if found is not None else None

    async def _create_service(self) -> bool:
        """Create the Service; false when one of its name exists already."""
        ports = self._run.view.ports
        if ports is None:
            raise UnusableTemplateError(self._run.view.refusal)
        # The Service may have gone together with its Sandbox, whose end is not known yet.
        await self._run.whole()
        body = build_service(self._run.entry.metadata, ports)
        try:
            made = await self._requests.create(
                self._caches.services,
                self._run.key.namespace,
                body,
                name=self._run.key.name,
            )
        except AlreadyExists:
            return False
        if self._service_lacks(made.entry):
            self._run.requeue.within(0.0)
        return True

    async def _carry_out_service(self, step: plans.ServiceStep) -> None:
        match step:
            case plans.Refuse(text):
                raise ReconcileError(text)
            case plans.Delete(service):
                # Another process may have made it for a change of the spec that is not seen yet.
                await self._run.whole()
                await self._requests.delete_service(service)
            case plans.Adopt(service) | plans.Keep(service) if lacking := self._service_lacks(
                service
            ):
                await self._repair_service(service, lacking)

    async def _repair_service(self, service: ServiceEntry, lacking: Lacking) -> None:
        if not self._run.is_in_vain(service, lacking):
            adopts, body = lacking
            if adopts:
                metadata = body.get("metadata", {}) | await self._run.ownership(
                    self._caches.services, service
                )
                body = {**body, "metadata": metadata}
            with failing_as(FailedStep.SERVICE_UPDATE if adopts else FailedStep.SERVICE_PATCH):
                made = await self._requests.patch(
                    self._caches.services, service, body, as_metadata=False
                )
            service = made.entry
            self._run.judge(service, lacking, self._service_lacks(service))
        if not self._run.owns(service):
            raise ReconcileError(plans.disowned("service", service))

    def _service_lacks(self, service: ServiceEntry) -> Lacking | None:
        """Return whether a Service lacks its owner, and what else; ``None`` if nothing."""
        missing = owned_service_patch(
            service.labels,
            service.spec or ServiceSpec(),
            names.name_hash(self._run.key.name),
            # The Sandbox decides on the ports only where spec.service asks for a Service, and they
            # can be read.
            self._run.view.ports if self._run.view.service else None,
        )
        lacking: Lacking = not self._run.owns(service), missing or {}
        return lacking if any(lacking) else None

"""Keeps the headless Service of a Sandbox as its plan says (spec, 3.9)."""

from __future__ import annotations

from typing import Any

from lean_sandbox.controllers.ownership import sandbox_meta
from lean_sandbox.controllers.sandbox.act import Act
from lean_sandbox.controllers.sandbox.failures import RefusedError, StepError
from lean_sandbox.controllers.sandbox.service_plan import (
    AdoptService,
    CreateService,
    DeleteService,
    KeepService,
    LookAtService,
    NoService,
    RefuseService,
    ServiceStep,
    plan_service,
)
from lean_sandbox.kube.errors import AlreadyExists, ControlPlaneError
from lean_sandbox.model import messages, names
from lean_sandbox.model.messages import Failure
from lean_sandbox.model.service import adopted_service, build_service, owned_service_patch
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.objects import SandboxEntry, ServiceEntry
from lean_sandbox.watch.store import Key


class ServiceUpkeep:
    """Makes, repairs, adopts or deletes the Service of a Sandbox."""

    def __init__(self, caches: Caches, act: Act) -> None:
        self._caches = caches
        self._act = act

    async def run(self, entry: SandboxEntry) -> bool:
        """Bring the Service to the wanted state; tell whether the Sandbox has one now.

        Requests: none when it is as it should be; else one write, with one GET before it where the
        watch showed a change, and always before an adoption, which writes the whole object back.
        Raises RefusedError, StepError, or the error of a create as it is.
        """
        assert entry.view is not None
        service = self._caches.services.get(entry.key)
        whole: dict[str, Any] | None = None
        # A look may follow a look only through a create that collided; nothing loops here.
        for _ in range(4):
            step = _plan(entry, service)
            if isinstance(step, LookAtService) or (isinstance(step, AdoptService) and not whole):
                service, whole = await self._look(entry.key)
                continue
            if isinstance(step, CreateService) and not await self._create(entry):
                service, whole = await self._look(entry.key)
                continue
            return await self._carry_out(entry, step, whole or {})
        raise RefusedError(
            messages.failed(Failure.SERVICE_GET, "it came and went while it was looked at")
        )

    def is_as_wanted(self, entry: SandboxEntry) -> bool:
        """Tell whether the Service, as it is known, needs nothing. Makes no request."""
        step = _plan(entry, self._caches.services.get(entry.key))
        if isinstance(step, KeepService):
            return _missing(entry, step) is None
        return isinstance(step, NoService)

    async def _look(self, key: Key) -> tuple[ServiceEntry, dict[str, Any]] | tuple[None, None]:
        try:
            return await self._act.get_service(key) or (None, None)
        except ControlPlaneError as error:
            raise StepError(Failure.SERVICE_GET, error) from error

    async def _create(self, entry: SandboxEntry) -> bool:
        """Create the Service; false when one of its name exists already."""
        assert entry.view is not None
        try:
            await self._act.create_service(
                entry.key, build_service(sandbox_meta(entry), entry.view.ports)
            )
        except AlreadyExists:
            return False
        return True

    async def _carry_out(
        self, entry: SandboxEntry, step: ServiceStep, whole: dict[str, Any]
    ) -> bool:
        assert entry.view is not None
        failure = Failure.SERVICE_DELETE
        try:
            match step:
                case RefuseService(text):
                    raise RefusedError(text)
                case DeleteService(service):
                    await self._act.delete_service(service)
                case AdoptService():
                    failure = Failure.SERVICE_UPDATE
                    body = adopted_service(whole, sandbox_meta(entry), entry.view.ports)
                    await self._act.replace_service(entry.key, body)
                case KeepService():
                    failure = Failure.SERVICE_PATCH
                    patch = _missing(entry, step)
                    if patch is not None:
                        await self._act.patch_service(entry.key, patch)
                case _:
                    pass
        except ControlPlaneError as error:
            raise StepError(failure, error) from error
        return isinstance(step, CreateService | AdoptService | KeepService)


def _plan(entry: SandboxEntry, service: ServiceEntry | None) -> ServiceStep:
    assert entry.view is not None
    return plan_service(
        service,
        wanted=entry.view.service,
        name=entry.key.name,
        uid=entry.uid,
        name_hash=names.name_hash(entry.key.name),
    )


def _missing(entry: SandboxEntry, step: KeepService) -> dict[str, Any] | None:
    """Return the merge patch that a Service of the Sandbox's needs, ``None`` for nothing."""
    assert entry.view is not None
    return owned_service_patch(
        step.service.as_service(),
        names.name_hash(entry.key.name),
        entry.view.ports if step.with_ports else None,
    )

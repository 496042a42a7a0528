"""Keeps the headless Service of a Sandbox as its plan says (spec, 3.9)."""

from __future__ import annotations

from typing import Any

from lean_sandbox.controllers.sandbox.plans import (
    Adopt,
    Create,
    Delete,
    Fetch,
    Keep,
    Nothing,
    Refuse,
    ServiceStep,
    plan_service,
)
from lean_sandbox.controllers.sandbox.requests import SandboxRequests
from lean_sandbox.kube.errors import AlreadyExists, ControlPlaneError
from lean_sandbox.model import names
from lean_sandbox.model.sandbox_status import Failure, failed
from lean_sandbox.model.service import (
    ServiceSpec,
    adopted_service,
    build_service,
    owned_service_patch,
)
from lean_sandbox.runtime.workers import ReconcileError
from lean_sandbox.watch.resources.children import ServiceEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry


async def sync_service(
    entry: SandboxEntry, held: ServiceEntry | None, requests: SandboxRequests
) -> bool:
    """Bring the Service to the wanted state; return whether the Sandbox has one now.

    Requests: none when it is as it should be; else one write, with one GET before it where the
    watch showed a change, and always before an adoption, which writes the whole object back.
    Raises ReconcileError, or the error of a create as it is.
    """
    whole: dict[str, Any] | None = None
    # A fetch may follow a fetch only through a create that collided; nothing loops here.
    for _ in range(4):
        step = plan_service(entry, held)
        must_fetch = isinstance(step, Fetch) or (isinstance(step, Adopt) and whole is None)
        if isinstance(step, Create):
            must_fetch = not await _create(entry, requests)
        if not must_fetch:
            await _carry_out(entry, step, whole or {}, requests)
            return isinstance(step, Create | Adopt | Keep)
        try:
            held, whole = await requests.get_service(entry.key) or (None, None)
        except ControlPlaneError as error:
            raise ReconcileError.of(Failure.SERVICE_GET, error) from error
    raise ReconcileError(failed(Failure.SERVICE_GET, "it came and went while it was looked at"))


def is_as_wanted(entry: SandboxEntry, service: ServiceEntry | None) -> bool:
    """Tell whether the Service, as it is known, needs nothing."""
    match plan_service(entry, service):
        case Keep(found):
            return _missing(entry, found) is None
        case Nothing():
            return True
        case _:
            return False


async def _create(entry: SandboxEntry, requests: SandboxRequests) -> bool:
    """Create the Service; false when one of its name exists already."""
    assert entry.view is not None
    try:
        await requests.create_service(entry.key, build_service(entry.metadata, entry.view.ports))
    except AlreadyExists:
        return False
    return True


async def _carry_out(
    entry: SandboxEntry, step: ServiceStep, whole: dict[str, Any], requests: SandboxRequests
) -> None:
    assert entry.view is not None
    failure = Failure.SERVICE_DELETE
    try:
        match step:
            case Refuse(text):
                raise ReconcileError(text)
            case Delete(service):
                await requests.delete_service(service)
            case Adopt():
                failure = Failure.SERVICE_UPDATE
                body = adopted_service(whole, entry.metadata, entry.view.ports)
                await requests.replace_service(entry.key, body)
            case Keep(service):
                failure = Failure.SERVICE_PATCH
                patch = _missing(entry, service)
                if patch is not None:
                    await requests.patch_service(service, patch)
            case _:
                pass
    except ControlPlaneError as error:
        raise ReconcileError.of(failure, error) from error


def _missing(entry: SandboxEntry, service: ServiceEntry) -> dict[str, Any] | None:
    """Return the merge patch that the Sandbox's own Service needs, ``None`` for nothing.

    Its ports are the Sandbox's only where ``spec.service`` asks for one.
    """
    assert entry.view is not None
    return owned_service_patch(
        service.labels,
        service.spec or ServiceSpec(),
        names.name_hash(entry.key.name),
        entry.view.ports if entry.view.service else None,
    )

"""What to do about the headless Service of a Sandbox (spec, 3.9).

Pure: the table of the specification as one function.
"""

from __future__ import annotations

import msgspec

from lean_sandbox.controllers.ownership import may_adopt, ownership_of, reference_of
from lean_sandbox.model import messages
from lean_sandbox.model.meta import Ownership
from lean_sandbox.model.service import adoption_refusal
from lean_sandbox.watch.objects import ServiceEntry


class NoService(msgspec.Struct, frozen=True):
    """Nothing to do; the Sandbox reports no Service."""


class LookAtService(msgspec.Struct, frozen=True):
    """Fetch the Service and plan again: what is remembered of it may be old."""


class CreateService(msgspec.Struct, frozen=True):
    """None exists and one is wanted."""


class KeepService(msgspec.Struct, frozen=True):
    """The Sandbox's own; repair the label and selector, and the ports when ``with_ports``."""

    service: ServiceEntry
    with_ports: bool


class DeleteService(msgspec.Struct, frozen=True):
    """The Sandbox's own, and none is wanted."""

    service: ServiceEntry


class AdoptService(msgspec.Struct, frozen=True):
    """An unowned headless Service that carries the authorisation to be taken."""

    service: ServiceEntry


class RefuseService(msgspec.Struct, frozen=True):
    """The name is held by a Service that must not be touched."""

    text: str


ServiceStep = (
    NoService
    | LookAtService
    | CreateService
    | KeepService
    | DeleteService
    | AdoptService
    | RefuseService
)


def plan_service(
    service: ServiceEntry | None, *, wanted: bool | None, name: str, uid: str, name_hash: str
) -> ServiceStep:
    """Decide what to do, given the Service of the Sandbox's name and ``spec.service``."""
    if service is None:
        return CreateService() if wanted else NoService()
    ownership = ownership_of(service.owner, uid)
    if ownership is Ownership.OTHER:
        if wanted is False:
            return NoService()
        assert service.owner is not None
        return RefuseService(
            messages.owned_by_other(messages.SERVICE, name, reference_of(service.owner), name)
        )
    if ownership is Ownership.UNOWNED:
        return _unowned(service, wanted=wanted, name=name, name_hash=name_hash)
    if wanted is False:
        return DeleteService(service)
    if service.spec is None or service.is_stale:
        return LookAtService()
    return KeepService(service, with_ports=wanted is True)


def _unowned(
    service: ServiceEntry, *, wanted: bool | None, name: str, name_hash: str
) -> ServiceStep:
    if not wanted:
        return NoService()
    if not may_adopt(service.labels, name_hash):
        return RefuseService(messages.cannot_adopt(messages.SERVICE, name))
    if service.spec is None or service.is_stale:
        return LookAtService()
    # The cached spec is enough to refuse; what is adopted is written back whole.
    refusal = adoption_refusal(service.as_service(), name_hash)
    return AdoptService(service) if refusal is None else RefuseService(refusal)

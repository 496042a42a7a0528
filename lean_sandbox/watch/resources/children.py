"""Services, PersistentVolumeClaims, NetworkPolicies: their cache entries and predicates.

Sandboxes own the first two, templates own NetworkPolicies.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from filters import (
    Change,
    Predicate,
    any_of,
    computed,
    deletion,
    keep,
    labels,
    owners,
    parse_labels,
)
from lean_sandbox.kube.resources import NETWORKPOLICIES, PVCS, SERVICES, PartialObject
from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta, OwnerReference
from lean_sandbox.model.service import Service, ServiceSpec
from lean_sandbox.model.wire import shared
from lean_sandbox.watch.kind import (
    Kind,
    Knowledge,
    OwnedEntry,
    Representation,
    identity,
    shared_owner,
)

ADOPTION_LABELS = frozenset({names.NAME_HASH_LABEL, names.ADOPTABLE_LABEL})


def _any_write_to(is_ours: Callable[[ObjectMeta], bool]) -> Predicate:
    """Pass every write to an object of ours: without a generation, it may be a change of spec."""
    return computed(
        "spec", Change.VERSION, lambda row: row.resource_version if is_ours(row) else None
    )


# -- Services --------------------------------------------------------------------------------------


class ServiceEntry(OwnedEntry, gc=False, frozen=True):
    """The cache entry of a Service.

    ``spec`` is set for a Service that a Sandbox may own, until a write may have changed it.
    ``others`` are the owners of a Service without a controller.
    """

    labels: dict[str, str] | None = None
    spec: ServiceSpec | None = None
    others: tuple[OwnerReference, ...] = ()

    @property
    def knowledge(self) -> Knowledge:
        """UNKNOWN without the spec."""
        return Knowledge.UNKNOWN if self.spec is None else Knowledge.KNOWN


def _build_service(row: ObjectMeta, item: Service | None, old: ServiceEntry | None) -> ServiceEntry:
    owner = shared_owner(row, old)
    spec = None
    if item is not None and _is_sandboxes(row):
        spec = msgspec.structs.replace(item.spec, ports=shared(item.spec.ports))
    return ServiceEntry(
        *identity(row, old),
        owner=owner,
        labels=keep(row.labels, ADOPTION_LABELS),
        spec=spec,
        others=row.owners if owner is None else (),
    )


def _is_sandboxes(row: ObjectMeta) -> bool:
    """Return whether a Sandbox owns a Service or may adopt it."""
    owner = row.controller
    is_owned = owner is not None and owner.is_a(names.SANDBOX_KIND, names.CORE_GROUP)
    return is_owned or keep(row.labels, ADOPTION_LABELS) is not None


def service_kind(
    leanest: Representation = Representation.TABLE, *, only_tracked: bool = False
) -> Kind[ServiceEntry]:
    """Services pass when their owner changes; those that a Sandbox may own on every write.

    Unless ``only_tracked``, all Services are watched: any Service with a Sandbox's name is in its
    way, and only a watch of all of them proves that there is none.
    """
    return Kind(
        resource=SERVICES,
        item_type=Service,
        predicate=any_of(
            deletion(),
            owners(),
            labels(*sorted(ADOPTION_LABELS)),
            _any_write_to(_is_sandboxes),
        ),
        build=_build_service,
        watch_as=Representation.METADATA if leanest is Representation.TABLE else leanest,
        label_selector=parse_labels(names.NAME_HASH_LABEL if only_tracked else ""),
    )


# -- PersistentVolumeClaims ------------------------------------------------------------------------


class PvcEntry(OwnedEntry, gc=False, frozen=True):
    """The cache entry of a PersistentVolumeClaim: its owners, and whether it may be adopted."""

    labels: dict[str, str] | None = None
    others: tuple[OwnerReference, ...] = ()


def _build_pvc(row: ObjectMeta, _item: PartialObject | None, old: PvcEntry | None) -> PvcEntry:
    owner = shared_owner(row, old)
    return PvcEntry(
        *identity(row, old),
        owner=owner,
        labels=keep(row.labels, ADOPTION_LABELS),
        others=row.owners if owner is None else (),
    )


def pvc_kind() -> Kind[PvcEntry]:
    """PersistentVolumeClaims pass when they end, change owners, or become adoptable."""
    return Kind(
        resource=PVCS,
        item_type=PartialObject,
        predicate=any_of(deletion(), owners(), labels(*sorted(ADOPTION_LABELS))),
        build=_build_pvc,
        watch_as=Representation.METADATA,
    )


# -- NetworkPolicies -------------------------------------------------------------------------------


class PolicyItem(msgspec.Struct, frozen=True):
    """A NetworkPolicy whose spec stays the bytes that the server sent."""

    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"null")


class PolicyEntry(OwnedEntry, gc=False, frozen=True):
    """The cache entry of a NetworkPolicy.

    ``spec_json`` is set for the policy of a template, until a write may have changed it.
    """

    spec_json: bytes | None = None

    @property
    def knowledge(self) -> Knowledge:
        """UNKNOWN without the spec."""
        return Knowledge.UNKNOWN if self.spec_json is None else Knowledge.KNOWN


def _build_policy(row: ObjectMeta, item: PolicyItem | None, old: PolicyEntry | None) -> PolicyEntry:
    return PolicyEntry(
        *identity(row, old),
        owner=shared_owner(row, old),
        spec_json=bytes(item.spec) if item is not None and _is_templates(row) else None,
    )


def _is_templates(row: ObjectMeta) -> bool:
    controller = row.controller
    return controller is not None and controller.kind == names.SANDBOX_TEMPLATE_KIND


def policy_kind() -> Kind[PolicyEntry]:
    """Policies pass when their owner changes; those of a template on every write."""
    return Kind(
        resource=NETWORKPOLICIES,
        item_type=PolicyItem,
        predicate=any_of(deletion(), owners(), _any_write_to(_is_templates)),
        build=_build_policy,
        watch_as=Representation.METADATA,
    )

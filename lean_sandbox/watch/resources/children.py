"""Services, PersistentVolumeClaims, NetworkPolicies: their cache entries and predicates.

Sandboxes own the first two, templates own NetworkPolicies.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from filters import Change, any_of, computed, deletion, keep, labels, owners
from lean_sandbox.kube.resources import NETWORKPOLICIES, PVCS, SERVICES
from lean_sandbox.kube.wire import PartialObject
from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta, OwnerReference, as_version
from lean_sandbox.model.service import Service, ServiceSpec, shared_ports
from lean_sandbox.watch.kind import (
    ADOPTION_LABELS,
    FALLBACK_ORDER,
    Key,
    Kind,
    Representation,
    is_tracked,
    key_of,
    shared_owner,
)

# -- Services --------------------------------------------------------------------------------------


class ServiceEntry(msgspec.Struct, gc=False):
    """The cache entry of a Service; ``spec`` only of those that a Sandbox owns or may adopt."""

    key: Key
    uid: str
    version: int
    owner: OwnerReference | None = None
    labels: dict[str, str] | None = None
    spec: ServiceSpec | None = None
    is_stale: bool = True
    seen: tuple[Hashable, ...] = ()

    def as_service(self) -> Service:
        """Return the Service as far as it is cached."""
        return Service(
            metadata=ObjectMeta(
                name=self.key.name, namespace=self.key.namespace, uid=self.uid, labels=self.labels
            ),
            spec=self.spec or ServiceSpec(),
        )


def service_from_row(row: ObjectMeta, old: ServiceEntry | None) -> ServiceEntry:
    """Build the entry from metadata; the spec has to be fetched before it is compared."""
    key = old.key if old is not None else key_of(row.namespace, row.name)
    return ServiceEntry(
        key=key,
        uid=old.uid if old is not None else row.uid,
        version=as_version(row.resource_version),
        owner=shared_owner(row.controller, key, old.owner if old is not None else None),
        labels=keep(row.labels, ADOPTION_LABELS),
        spec=old.spec if old is not None else None,
    )


def service_from_full(item: Service, row: ObjectMeta, old: ServiceEntry | None) -> ServiceEntry:
    """Build the entry from a full Service."""
    entry = service_from_row(row, old)
    if entry.labels is not None or _is_sandboxes(entry.owner):
        entry.spec = msgspec.structs.replace(item.spec, ports=shared_ports(item.spec.ports))
        entry.is_stale = False
    else:
        entry.spec = None
    return entry


def service_spec_version(row: ObjectMeta) -> str | None:
    """Return the version of a Service that a Sandbox owns or may adopt: it has no generation."""
    if _is_sandboxes(row.controller) or keep(row.labels, ADOPTION_LABELS):
        return row.resource_version
    return None


def _is_sandboxes(owner: OwnerReference | None) -> bool:
    return owner is not None and owner.is_a(names.SANDBOX_KIND, names.CORE_GROUP)


def service_kind(
    order: tuple[Representation, ...] = FALLBACK_ORDER, *, only_tracked: bool = False
) -> Kind[ServiceEntry]:
    """Services pass when their owner changes; those that a Sandbox may own on every write.

    Unless ``only_tracked``, all Services are watched: any Service with a Sandbox's name is in its
    way, and only the watch of all of them proves that there is none.
    """
    return Kind(
        resource=SERVICES,
        item_type=Service,
        predicate=any_of(
            deletion(),
            owners(),
            labels(*sorted(ADOPTION_LABELS), brief=True),
            computed("spec", Change.VERSION, service_spec_version),
        ),
        from_row=service_from_row,
        from_full=service_from_full,
        watch_order=tuple(form for form in order if form is not Representation.TABLE),
        label_selector=names.NAME_HASH_LABEL if only_tracked else None,
        admits=is_tracked if only_tracked else None,
    )


# -- PersistentVolumeClaims ------------------------------------------------------------------------


class PvcEntry(msgspec.Struct, gc=False):
    """The cache entry of a PersistentVolumeClaim: its owners, and whether it may be adopted."""

    key: Key
    uid: str
    version: int
    owner: OwnerReference | None = None
    labels: dict[str, str] | None = None
    others: tuple[OwnerReference, ...] = ()
    seen: tuple[Hashable, ...] = ()


def pvc_from_row(row: ObjectMeta, old: PvcEntry | None) -> PvcEntry:
    """Build the entry from metadata."""
    key = old.key if old is not None else key_of(row.namespace, row.name)
    return PvcEntry(
        key=key,
        uid=old.uid if old is not None else row.uid,
        version=as_version(row.resource_version),
        owner=shared_owner(row.controller, key, old.owner if old is not None else None),
        labels=keep(row.labels, ADOPTION_LABELS),
        others=row.owners if row.controller is None else (),
    )


def pvc_from_full(_item: PartialObject, row: ObjectMeta, old: PvcEntry | None) -> PvcEntry:
    """Build the entry from a full PersistentVolumeClaim, of which only the metadata is read."""
    return pvc_from_row(row, old)


def pvc_kind() -> Kind[PvcEntry]:
    """PersistentVolumeClaims pass when they end, change owners, or become adoptable."""
    return Kind(
        resource=PVCS,
        item_type=PartialObject,
        predicate=any_of(deletion(), owners(), labels(*sorted(ADOPTION_LABELS), brief=True)),
        from_row=pvc_from_row,
        from_full=pvc_from_full,
        watch_order=(Representation.METADATA, Representation.FULL),
        list_as=Representation.METADATA,
    )


# -- NetworkPolicies -------------------------------------------------------------------------------


class PolicyItem(msgspec.Struct, frozen=True):
    """A NetworkPolicy whose spec stays the bytes that the server sent."""

    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"null")


class PolicyEntry(msgspec.Struct, gc=False):
    """The cache entry of a NetworkPolicy; the spec only of those that a template controls."""

    key: Key
    uid: str
    version: int
    owner: OwnerReference | None = None
    spec_json: bytes | None = None
    is_stale: bool = True
    seen: tuple[Hashable, ...] = ()


def policy_from_row(row: ObjectMeta, old: PolicyEntry | None) -> PolicyEntry:
    """Build the entry from metadata; the spec has to be fetched before it is used."""
    return PolicyEntry(
        key=old.key if old is not None else key_of(row.namespace, row.name),
        uid=row.uid,
        version=as_version(row.resource_version),
        owner=row.controller,
        spec_json=old.spec_json if old is not None else None,
    )


def policy_from_full(item: PolicyItem, row: ObjectMeta, old: PolicyEntry | None) -> PolicyEntry:
    """Build the entry from a full policy."""
    entry = policy_from_row(row, old)
    if _is_templates(row):
        entry.spec_json = bytes(item.spec)
        entry.is_stale = False
    return entry


def _is_templates(row: ObjectMeta) -> bool:
    """Tell whether a template controls the policy, whatever the group of its reference."""
    controller = row.controller
    return controller is not None and controller.kind == names.SANDBOX_TEMPLATE_KIND


def _spec_version(row: ObjectMeta) -> Hashable:
    """Return the version of a policy that a template controls: any write may change its spec."""
    return row.resource_version if _is_templates(row) else None


def policy_kind() -> Kind[PolicyEntry]:
    """Policies pass when their owner changes; those of a template on every write."""
    return Kind(
        resource=NETWORKPOLICIES,
        item_type=PolicyItem,
        predicate=any_of(deletion(), owners(), computed("spec", Change.VERSION, _spec_version)),
        from_row=policy_from_row,
        from_full=policy_from_full,
        watch_order=(Representation.METADATA, Representation.FULL),
    )

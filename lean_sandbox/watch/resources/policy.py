"""NetworkPolicies: their cache entry, and the predicate over their events."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from filters import Change, any_of, computed, deletion, owners
from lean_sandbox.kube.resources import NETWORKPOLICIES
from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta, OwnerReference, as_version
from lean_sandbox.watch.kind import Key, Kind, Representation, key_of


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
    if entry.owner is not None and entry.owner.kind == names.SANDBOX_TEMPLATE_KIND:
        entry.spec_json = bytes(item.spec)
        entry.is_stale = False
    return entry


def _template_policy(row: ObjectMeta) -> Hashable:
    """Return the version of a policy that a template controls: any write may change its spec."""
    controller = row.controller
    if controller is not None and controller.kind == names.SANDBOX_TEMPLATE_KIND:
        return row.resource_version
    return None


def policy_kind() -> Kind[PolicyEntry]:
    """Policies pass when their owner changes; those of a template on every write."""
    return Kind(
        resource=NETWORKPOLICIES,
        item_type=PolicyItem,
        predicate=any_of(deletion(), owners(), computed("spec", Change.VERSION, _template_policy)),
        from_row=policy_from_row,
        from_full=policy_from_full,
        watch_order=(Representation.METADATA, Representation.FULL),
    )

"""ObjectMeta as far as decisions need it, owner references, and what metadata children get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.wire import Lenient, OrNull

# The digits of the largest version that a store hands out, a signed number of 64 bits.
_VERSION_DIGITS = 19


class OwnerReference(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """One entry of ``metadata.ownerReferences``."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = False
    block_owner_deletion: bool | None = False

    @property
    def group(self) -> str:
        """The API group, empty for the core group; versions are never compared."""
        return self.api_version.rpartition("/")[0]

    def is_a(self, kind: str, group: str) -> bool:
        """Return whether the owner is of this kind of this API group."""
        return self.kind == kind and self.group == group


class Reference(Lenient, frozen=True):
    """A reference by name to an object of the same namespace."""

    name: OrNull[str] = ""


class ManagedFieldsEntry(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of ``metadata.managedFields`` after managed-field pruning: who wrote, and when.

    ``fieldsV1``, more than half of a typical object's metadata, is skipped while decoding.
    """

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str = ""


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Metadata of any object, from whatever form it came in.

    ``columns`` is not on the wire: the printer columns, ``None`` where the form has none.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = ()
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None
    managed_fields: tuple[ManagedFieldsEntry, ...] | None = None
    columns: dict[str, str] | None = msgspec.field(default=None, name="-columns")

    @property
    def owners(self) -> tuple[OwnerReference, ...]:
        """The owner references."""
        return self.owner_references or ()

    def as_answered(self, columns: dict[str, str] | None) -> ObjectMeta:
        """Return the metadata of a response to our own write, with these printer columns.

        Missing managedFields become empty ones: in an event their lack means that anybody may have
        written the status, but here the writer knows what was written.
        """
        return msgspec.structs.replace(
            self, columns=columns, managed_fields=self.managed_fields or ()
        )

    def with_columns(self, columns: dict[str, str] | None) -> ObjectMeta:
        """Return the same metadata with these printer columns."""
        return msgspec.structs.replace(self, columns=columns)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls the object, or ``None``."""
        for reference in self.owners:
            if reference.controller:
                return reference
        return None


def as_version(resource_version: str) -> int:
    """Return a resource version as a number, ``0`` when it is not one.

    With 0 every comparison fails, which costs a request but never loses a change.
    """
    if len(resource_version) > _VERSION_DIGITS or not resource_version.isascii():
        return 0
    return int(resource_version) if resource_version.isdecimal() else 0


def is_controlled_by(controller: OwnerReference | None, uid: str) -> bool:
    """Return whether an object with this controller belongs to the object with this uid.

    Only the uid counts: the API version may be older, and kind and name may be a predecessor's.
    """
    return controller is not None and controller.uid == uid


def controller_reference(
    kind: str, name: str, uid: str, api_version: str = names.EXTENSIONS_API_VERSION
) -> OwnerReference:
    """Return the reference that a controlling claim, pool or template puts on its children."""
    return OwnerReference(api_version, kind, name, uid, controller=True, block_owner_deletion=True)


def sandbox_reference(name: str, uid: str) -> OwnerReference:
    """Return the reference that a Sandbox puts on its children."""
    return controller_reference(names.SANDBOX_KIND, name, uid, names.CORE_API_VERSION)


def changed_keys(
    old: Mapping[str, str] | None, new: Mapping[str, str] | None
) -> dict[str, str | None]:
    """Return the merge patch that turns one map into the other; None removes a key."""
    old = old or {}
    new = new or {}
    changes: dict[str, str | None] = {k: v for k, v in new.items() if old.get(k) != v}
    changes.update((key, None) for key in old if key not in new)
    return changes


def child_metadata(
    sandbox_meta: ObjectMeta, name: str, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the metadata of a child of a Sandbox; the tracking label overrides ``labels``."""
    return {
        "name": name,
        "namespace": sandbox_meta.namespace,
        "labels": {**(labels or {}), names.NAME_HASH_LABEL: names.name_hash(sandbox_meta.name)},
        "ownerReferences": [sandbox_reference(sandbox_meta.name, sandbox_meta.uid)],
    }


def with_controller_reference(
    references: Iterable[OwnerReference], reference: OwnerReference
) -> tuple[OwnerReference, ...]:
    """Return ``references`` with this one replacing that of its kind and name, else at the end."""
    target = reference.group, reference.kind, reference.name
    kept = list(references)
    for index, present in enumerate(kept):
        if (present.group, present.kind, present.name) == target:
            kept[index] = reference
            return tuple(kept)
    return (*kept, reference)

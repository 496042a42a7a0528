"""ObjectMeta as far as it decides anything, and who controls an object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from lean_sandbox.model.names import (
    CORE_API_VERSION,
    EXTENSIONS_API_VERSION,
    NAME_HASH_LABEL,
    SANDBOX_KIND,
    name_hash,
)
from lean_sandbox.model.wire import Lenient, OrNull, Value


class OwnerReference(Value, frozen=True):
    """One entry of ``metadata.ownerReferences``."""

    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool | None = False
    blockOwnerDeletion: bool | None = False

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        group, slash, _ = self.apiVersion.partition("/")
        return group if slash else ""


class FieldManager(Value, frozen=True):
    """One entry of ``metadata.managedFields``; the fields themselves are skipped while decoding."""

    operation: str = ""
    manager: str = ""
    subresource: str = ""
    time: str = ""


class ObjectMeta(Lenient, frozen=True):
    """Metadata of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: OrNull[tuple[OwnerReference, ...]] = ()
    deletionTimestamp: str | None = None
    creationTimestamp: str | None = None
    generateName: str = ""
    managedFields: OrNull[tuple[FieldManager, ...]] = ()


NO_RECORD: Final[list[dict[str, Any]]] = [{}]
"""What to write to ``metadata.managedFields`` to end the record of who set which field."""


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """Return the first owner reference marked as controller."""
    for reference in meta.ownerReferences:
        if reference.controller:
            return reference
    return None


def controller_reference(api_version: str, kind: str, name: str, uid: str) -> OwnerReference:
    """Return the reference a controller puts on its children."""
    return OwnerReference(api_version, kind, name, uid, controller=True, blockOwnerDeletion=True)


def extension_reference(kind: str, name: str, uid: str) -> OwnerReference:
    """Return the controller reference of a claim, pool or template."""
    return controller_reference(EXTENSIONS_API_VERSION, kind, name, uid)


def sandbox_reference(sandbox_meta: ObjectMeta) -> OwnerReference:
    """Return the controller reference of a Sandbox."""
    return controller_reference(CORE_API_VERSION, SANDBOX_KIND, sandbox_meta.name, sandbox_meta.uid)


def child_metadata(
    sandbox_meta: ObjectMeta, name: str, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the metadata of a child of a Sandbox; the tracking label overrides ``labels``."""
    return {
        "name": name,
        "namespace": sandbox_meta.namespace,
        "labels": {**(labels or {}), NAME_HASH_LABEL: name_hash(sandbox_meta.name)},
        "ownerReferences": owner_references_body((sandbox_reference(sandbox_meta),)),
    }


def with_controller_reference(
    references: Iterable[OwnerReference], reference: OwnerReference
) -> tuple[OwnerReference, ...]:
    """Return ``references`` with ``reference`` among them.

    It takes the place of the one to the same group, kind and name, else the end of the list; every
    other reference is kept.
    """
    kept = list(references)
    for index, present in enumerate(kept):
        if _target(present) == _target(reference):
            kept[index] = reference
            break
    else:
        kept.append(reference)
    return tuple(kept)


def owner_references_body(references: Iterable[OwnerReference]) -> list[dict[str, Any]]:
    """Return ``references`` as plain JSON data for a request body."""
    return [msgspec.to_builtins(reference) for reference in references]


def _target(reference: OwnerReference) -> tuple[str, str, str]:
    return reference.group, reference.kind, reference.name

"""Small decoded forms of what the API server sends, shared by every kind.

All skip fields they do not name, so ``managedFields`` (more than half of a typical object's
metadata) are never allocated.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from lean_sandbox.model.meta import ObjectMeta

T = TypeVar("T")

JSON_ACCEPT = "application/json"

#: One object, a watch event or the answer of a write as metadata only. The plain form stands behind
#: it for servers that cannot; both decode as :class:`PartialObject`.
METADATA_ACCEPT = (
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;q=0.5"
)

#: The same for a list: the server refuses the singular form there (406).
LIST_METADATA_ACCEPT = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;q=0.5"
)


class PartialObject(msgspec.Struct, frozen=True):
    """Any object of the API, of which only the metadata matters."""

    metadata: ObjectMeta
    apiVersion: str = ""
    kind: str = ""


class ListMeta(msgspec.Struct, frozen=True, gc=False):
    """The metadata of a list: its version, and where the next page begins ("" at the end)."""

    resourceVersion: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remainingItemCount: int | None = None


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list. Use ``Page[Pod]`` as the type to decode."""

    metadata: ListMeta = ListMeta()
    #: Lists made by conversion (metadata only) say null when they are empty.
    items_or_null: tuple[T, ...] | None = msgspec.field(name="items", default=None)

    @property
    def items(self) -> tuple[T, ...]:
        """The objects of the page."""
        return self.items_or_null or ()


class ObjectReference(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Which object an event regards."""

    apiVersion: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    fieldPath: str = ""

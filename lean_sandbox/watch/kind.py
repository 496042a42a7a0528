"""How one kind is listed, watched and cached, and the deltas that its cache hands out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from filters import Change, Predicate
from lean_sandbox.kube.resources import Resource
from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta, OwnerReference
from lean_sandbox.model.sharing import interned, small_values
from lean_sandbox.model.wire import ODD

ADOPTION_LABELS = frozenset({names.NAME_HASH_LABEL, names.ADOPTABLE_LABEL})


class Key(NamedTuple):
    """Identifies an object of one kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def key_of(namespace: str, name: str) -> Key:
    """Return the key with the namespace interned: thousands of objects share a few namespaces."""
    return Key(sys.intern(namespace), name)


class Entry(Protocol):
    """The fields that every cache entry has; ``seen`` are the fingerprints of its last event."""

    key: Key
    uid: str
    version: int
    seen: tuple[Hashable, ...]


E = TypeVar("E", bound=Entry)
T = TypeVar("T")
V = TypeVar("V")


class Representation(Enum):
    """How the objects of a watch are sent.

    Order of preference: a Table (metadata plus condition columns), partial metadata, the full
    object. A server that cannot give one answers 406; the reflector then falls back to the next and
    says so once. Measured on a real API server, one event and watcher cost it 85 us as a Table,
    100 us as partial metadata and 450 us as a full object.
    """

    TABLE = "table"
    METADATA = "metadata"
    FULL = "full"

    @property
    def watch_accept(self) -> str:
        """The Accept header of a watch in this form; there is no fallback inside the header.

        Without an alternative the server answers 406 when it cannot, which is what lets the
        reflector know what it got.
        """
        if self is Representation.TABLE:
            return "application/json;as=Table;g=meta.k8s.io;v=v1"
        if self is Representation.METADATA:
            return "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        return "application/json"

    @property
    def list_accept(self) -> str:
        """The Accept header of a list in this form, with full objects as the alternative.

        Only the metadata of the items is read, which full objects have as well.
        """
        if self is Representation.METADATA:
            return (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
            )
        return self.watch_accept


FALLBACK_ORDER = tuple(Representation)


def representations(leanest: Representation) -> tuple[Representation, ...]:
    """Return the representations to try in turn, beginning with ``leanest``."""
    return FALLBACK_ORDER[FALLBACK_ORDER.index(leanest) :]


class Delta(msgspec.Struct, Generic[E], frozen=True):
    """A change of a cache entry that passed the predicate.

    ``old`` is the entry before (``None`` for a new object), ``new`` the entry now (``None`` for one
    that is gone). ``initial`` marks the objects of the first list, and unchanged objects of a
    resync. ``saw_deletion`` says that an object that is gone was seen with a deletion timestamp;
    otherwise it may only have stopped matching the selector of the watch.
    """

    key: Key
    change: Change
    old: E | None
    new: E | None
    initial: bool = False
    saw_deletion: bool = False

    @property
    def is_new(self) -> bool:
        """Whether somebody else has created the object since the first list."""
        return self.old is None and self.new is not None and not self.initial


class Kind(msgspec.Struct, Generic[E], frozen=True):
    """How to list, watch and cache one kind.

    * ``item_type``: the Struct of a full object; it has ``metadata: ObjectMeta``.
    * ``from_row``: builds an entry from metadata and columns, with what still holds of the old one.
    * ``from_full``: builds an entry from a full object.
    * ``columns_of``: the printer columns of a full object, so that all forms have the same
      fingerprints.
    * ``suspects``: whether a row contradicts the entry; the event then passes in any case.
    * ``columns``: the columns that are read; a Table without one of them counts as metadata alone.
    * ``admits``: whether an object with these labels matches the selector; ``None`` for all.
    * ``owner_of``: the uid of the owner by which an entry is indexed, in the same namespace.
    """

    resource: Resource
    item_type: type[Any]
    predicate: Predicate
    from_row: Callable[[ObjectMeta, E | None], E]
    from_full: Callable[[Any, ObjectMeta, E | None], E]
    columns_of: Callable[[Any], dict[str, str]] | None = None
    suspects: Callable[[ObjectMeta, E], bool] = lambda _row, _entry: False
    columns: tuple[str, ...] = ()
    watch_order: tuple[Representation, ...] = FALLBACK_ORDER
    list_as: Representation = Representation.FULL
    label_selector: str | None = None
    field_selector: str | None = None
    admits: Callable[[Mapping[str, str] | None], bool] | None = None
    owner_of: Callable[[E], str | None] = lambda _entry: None


def is_tracked(labels: Mapping[str, str] | None) -> bool:
    """Tell whether a watch by the tracking label shows an object with these labels."""
    return names.NAME_HASH_LABEL in (labels or {})


def view_or_fault(view_of: Callable[[T], V], item: T) -> tuple[V | None, str]:
    """Return the view of a full object, or the reason why its spec cannot be used."""
    try:
        return view_of(item), ""
    except ODD as error:
        return None, str(error)


def shared_owner(
    owner: OwnerReference | None, key: Key, held: OwnerReference | None
) -> OwnerReference | None:
    """Return an equal owner reference that shares its memory where it can.

    ``held`` is that of the old entry. The name of an owner with the name of the object, such as the
    Sandbox of a Pod, is the text of the key; an owner with another name is likely that of many.
    """
    if owner is None:
        return None
    if owner == held:
        return held
    if owner.name != key.name:
        return _one_owner(owner)
    return _compact(owner, key.name)


@small_values(256)
def _one_owner(owner: OwnerReference) -> OwnerReference:
    return _compact(owner, owner.name)


def _compact(owner: OwnerReference, name: str) -> OwnerReference:
    return OwnerReference(
        kind=interned(owner.kind),
        name=name,
        uid=owner.uid,
        api_version=interned(owner.api_version),
        controller=owner.controller,
        block_owner_deletion=owner.block_owner_deletion,
    )

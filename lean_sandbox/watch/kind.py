"""How one kind is listed, watched and cached, and the deltas that its cache hands out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable
from enum import Enum, StrEnum, auto
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from filters import EVERYTHING, Change, LabelSelector, Predicate
from lean_sandbox.kube.resources import Resource
from lean_sandbox.model import names
from lean_sandbox.model.meta import ManagedFieldsEntry, ObjectMeta, OwnerReference, as_version
from lean_sandbox.model.wire import ODD, interned, small_values


class Key(NamedTuple):
    """Identifies an object of one kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def key_of(namespace: str, name: str) -> Key:
    """Return the key with the namespace interned: thousands of objects share a few namespaces."""
    return Key(sys.intern(namespace), name)


class Knowledge(Enum):
    """What an entry says of the full object, of which a watch may show only the metadata."""

    KNOWN = auto()
    #: What it was once, as a full object showed it; something has shown since that it may differ.
    STALE = auto()
    #: Nothing, or not everything: no full object was seen, or what it showed was forgotten.
    UNKNOWN = auto()


class Entry(msgspec.Struct, gc=False, frozen=True):
    """The cached part of an object; ``seen`` holds the fingerprints of its last event.

    Only the store changes it, by :meth:`.store.Store.mark`.
    """

    key: Key
    uid: str
    version: int
    generation: int = 0
    is_deleting: bool = False
    seen: tuple[Hashable, ...] = ()

    @property
    def knowledge(self) -> Knowledge:
        """What is known of the full object; a kind whose watch shows all that is read is KNOWN."""
        return Knowledge.KNOWN

    @property
    def needs_fetch(self) -> bool:
        """Whether the full object has to be fetched before a reconcile can decide by it."""
        return self.knowledge is not Knowledge.KNOWN


class OwnedEntry(Entry, gc=False, frozen=True):
    """The entry of a kind whose objects a controller may own."""

    owner: OwnerReference | None = None

    def owner_key(self, kind: str) -> Key | None:
        """Return the key of the owner if it is of ``kind``, one of our kinds."""
        group = names.CORE_GROUP if kind == names.SANDBOX_KIND else names.EXTENSIONS_GROUP
        if self.owner is None or not self.owner.is_a(kind, group):
            return None
        return Key(self.key.namespace, self.owner.name)


E = TypeVar("E", bound=Entry)
T = TypeVar("T")
V = TypeVar("V")

# A fault may quote what a tenant wrote.
_LONGEST_FAULT: Final = 1024


class Representation(StrEnum):
    """How the objects of a watch are sent, in the order of preference.

    The reflector falls back to the next form when the server answers 406. Measured on a real API
    server, an event for a watcher cost 85 us as a Table, 100 us as metadata, 450 us in full.
    """

    TABLE = "table"
    METADATA = "metadata"
    FULL = "full"


#: The Accept header of a metadata watch, whose events have no spec and no status. It names no
#: alternative: a server that cannot serve it answers 406.
METADATA_WATCH_ACCEPT: Final = {
    Representation.TABLE: "application/json;as=Table;g=meta.k8s.io;v=v1",
    Representation.METADATA: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
}
#: The Accept header of a list of metadata. A server that cannot serve it sends full objects, whose
#: metadata is read.
METADATA_LIST_ACCEPT: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)


class Delta(msgspec.Struct, Generic[E], frozen=True):
    """A change of a cache entry that passed the predicate.

    ``old`` is the entry before (``None`` for a new object), ``new`` the entry now (``None`` for one
    that is gone). ``initial`` marks the objects of the first list, and unchanged objects of a
    resync. ``saw_deletion`` says that a deletion of an object that is gone was observed; without
    it the object may only have stopped matching the selector of the watch.
    """

    key: Key
    change: Change
    old: E | None
    new: E | None
    initial: bool = False
    saw_deletion: bool = False

    @property
    def is_new(self) -> bool:
        """Whether the object is new, and not one of the first list."""
        return self.old is None and not self.initial

    @property
    def has_ended(self) -> bool:
        """Whether the object is gone that was there before, perhaps for another of its name."""
        return self.old is not None and (self.new is None or self.new.uid != self.old.uid)


class Kind(msgspec.Struct, Generic[E], frozen=True):
    """How to list, watch and cache one kind.

    * ``item_type``: the Struct of a full object; it has ``metadata: ObjectMeta``. If it is
      PartialObject, only metadata is requested.
    * ``build``: makes an entry from metadata and columns, from the full object if there is one, and
      from the parts of the same object's old entry that still hold.
    * ``columns_of``: the printer columns of a full object, so that all forms have the same
      fingerprints.
    * ``status_columns``: the printer columns of a status, for responses of metadata alone.
    * ``new_columns``: those of each new object; with them a response to a create is asked for as
      metadata alone, and the event of the same version is applied as well.
    * ``suspects``: whether a row contradicts the entry; the event then passes in any case.
    * ``columns``: the columns that are read; a Table without one of them counts as metadata alone.
    * ``watch_as``: the leanest form in which a watch has what the predicate reads.
    * ``owner_of``: the key of an entry in the index of its namespace, usually the uid of its owner.
    * ``title``: the name of its cache in metrics, where not the plural of the resource.
    """

    resource: Resource
    item_type: type[Any]
    predicate: Predicate
    build: Callable[[ObjectMeta, Any, E | None], E]
    columns_of: Callable[[Any], dict[str, str]] | None = None
    status_columns: Callable[[Any], dict[str, str]] | None = None
    new_columns: dict[str, str] | None = None
    suspects: Callable[[ObjectMeta, E], bool] = lambda _row, _entry: False
    columns: tuple[str, ...] = ()
    watch_as: Representation = Representation.TABLE
    label_selector: LabelSelector = EVERYTHING
    field_selector: str = ""
    owner_of: Callable[[E], str | None] = lambda _entry: None
    title: str = ""

    @property
    def name(self) -> str:
        """The name under which it is watched; two kinds of one resource have different ones."""
        return self.title or self.resource.plural

    def row_of(self, item: Any) -> ObjectMeta:
        """Return the metadata of a full object with its printer columns."""
        row: ObjectMeta = item.metadata
        return row if self.columns_of is None else row.with_columns(self.columns_of(item))

    def build_on(self, kept: E | None, row: ObjectMeta, item: Any) -> E:
        """Return the entry of what is shown of an object whose last entry is ``kept``.

        Nothing carries over from one whose version was forgotten: the store was restored.
        """
        return self.build(row, item, kept if kept is not None and kept.version else None)


def identity(row: ObjectMeta, old: Entry | None) -> tuple[Key, str, int, int, bool]:
    """Return the first five fields of an entry, sharing the strings of the old one."""
    version = as_version(row.resource_version)
    is_deleting = row.deletion_timestamp is not None
    if old is None:
        key = key_of(row.namespace, row.name)
        return key, row.uid, version, row.generation, is_deleting
    return old.key, old.uid, version, row.generation, is_deleting


def view_or_fault(view_of: Callable[[T], V], item: T) -> tuple[V | None, str]:
    """Return the view of a full object, or the reason why its spec cannot be used."""
    try:
        return view_of(item), ""
    except ODD as error:
        return None, str(error)[:_LONGEST_FAULT]


def status_writers(writers: Iterable[ManagedFieldsEntry], *, besides: str = "") -> int:
    """Return a digest of who wrote the status and when, apart from ``besides``; 0 if none did.

    A change of the digest reveals a write of the status on events that carry metadata alone, but
    not the second of two writes by one manager within a second.
    """
    found = tuple(
        [
            (writer.manager, writer.time)
            for writer in writers
            if writer.subresource == "status" and writer.manager != besides
        ]
    )
    return hash(found) if found else 0


def shared_owner(row: ObjectMeta, old: OwnedEntry | None) -> OwnerReference | None:
    """Return the controlling owner of an object, in memory that objects with that owner share.

    An owner with the name of the object, such as the Sandbox of a Pod, uses the string of the key.
    """
    owner = row.controller
    if owner is None:
        return None
    if old is not None and owner == old.owner:
        return old.owner
    name = row.name if old is None else old.key.name
    return _compact(owner, name) if owner.name == name else _one_owner(owner)


@small_values(256)
def _one_owner(owner: OwnerReference) -> OwnerReference:
    return _compact(owner, owner.name)


def _compact(owner: OwnerReference, name: str) -> OwnerReference:
    return msgspec.structs.replace(
        owner, kind=interned(owner.kind), name=name, api_version=interned(owner.api_version)
    )

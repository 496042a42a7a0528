"""What a cache and its reflector need to know about one kind, and what they tell of its objects."""

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
    """What every cached value has; ``seen`` are the fingerprints of its last event."""

    key: Key
    uid: str
    version: int
    seen: tuple[Hashable, ...]


E = TypeVar("E", bound=Entry)


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
        """The Accept header of a list in this form, with whole objects as the alternative.

        Who reads the metadata of a list's items does not mind what else they hold.
        """
        if self is Representation.METADATA:
            return (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
            )
        return self.watch_accept


FALLBACK_ORDER = tuple(Representation)


def representations(leanest: Representation) -> tuple[Representation, ...]:
    """Return the order of fall back that starts with ``leanest``."""
    return FALLBACK_ORDER[FALLBACK_ORDER.index(leanest) :]


class Delta(msgspec.Struct, Generic[E], frozen=True):
    """A change that passed the predicates.

    ``old`` is what was known before (``None`` at first sight), ``new`` what is known now (``None``
    when the object is gone). ``initial`` marks the objects of the first list, and those that a
    later one shows as they are known. ``token`` identifies the event so that it can be withdrawn
    when it turns out to be the echo of our own write.
    ``saw_deletion`` says that the last sight of an object that is gone showed its deletion: else
    it may only have stopped matching the watch's selector.
    """

    key: Key
    change: Change
    old: E | None
    new: E | None
    initial: bool = False
    token: str | None = None
    saw_deletion: bool = False

    @property
    def is_new(self) -> bool:
        """Whether somebody else has made the object since the first list."""
        return self.old is None and self.new is not None and not self.initial


class Kind(msgspec.Struct, Generic[E], frozen=True):
    """How to list, watch and remember one kind.

    ``item_type`` is the Struct that a full object decodes into; it has ``metadata: ObjectMeta``.
    ``from_row`` builds the entry from metadata (and columns) alone, keeping of the old entry what
    still holds; ``from_full`` builds it from a whole object. ``columns_of`` gives the printer
    columns of a full object, so that both forms have the same fingerprints. ``suspects`` says that
    a row contradicts what is known, which passes the event whatever the predicate remembers.
    ``columns`` are those without which a Table says nothing of an object. ``admits`` says of a
    selector that users' labels decide whether an object with these is within. ``owner_of`` returns
    the uid of the owner under which an entry is found; the owner is in the same namespace.
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


def shared_owner(
    owner: OwnerReference | None, key: Key, held: OwnerReference | None
) -> OwnerReference | None:
    """Return an equal owner reference that costs as little as possible.

    ``held`` is the one remembered so far. An owner that bears the name of the object, as a Sandbox
    does that owns a Pod, shares that text; one with another name is likely the owner of many.
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

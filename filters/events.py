"""What a predicate looks at: kinds of events, kinds of change, and the object as it was observed.

Predicates never see JSON. They read plain attributes, described by :class:`Observed`, so that any
decoded object will do. Who has no such objects uses :class:`ObservedObject` with :func:`from_json`
(a full object or PartialObjectMetadata) or :func:`from_table_row` (one row of a watched Table).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag, StrEnum
from typing import Any, Protocol

__all__ = [
    "Change",
    "EventType",
    "Observed",
    "ObservedObject",
    "Owner",
    "OwnerLike",
    "from_json",
    "from_table_row",
    "group_of",
]


class EventType(StrEnum):
    """The watch events that carry the state of an object, spelled as on the wire."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Change(IntFlag):
    """What may have changed since the event before, as a bit set that can be OR-ed in a queue.

    The first three speak of the whole object and come alone; the others are raised by predicates.
    A bit that is not set is a promise only for what the predicate looks at.
    """

    FIRST_SEEN = 1
    """The object was not remembered: new, or evicted from the memory."""
    RECREATED = 2
    """Same namespace and name, another uid: a delete followed by a create."""
    GONE = 4
    """The object was deleted."""
    DELETING = 8
    """``metadata.deletionTimestamp`` appeared."""
    GENERATION = 16
    LABELS = 32
    ANNOTATIONS = 64
    FINALIZERS = 128
    OWNERS = 256
    COLUMNS = 512
    """A printer column, or whatever a computed predicate files under it."""
    VERSION = 1024
    """``metadata.resourceVersion``: anything at all."""


class OwnerLike(Protocol):
    """One entry of ``metadata.ownerReferences``."""

    @property
    def uid(self) -> str:
        """Return the uid of the owner."""

    @property
    def kind(self) -> str:
        """Return the kind of the owner."""

    @property
    def api_version(self) -> str:
        """Return group and version of the owner, such as ``apps/v1`` or ``v1``."""

    @property
    def name(self) -> str:
        """Return the name of the owner."""

    @property
    def controller(self) -> bool:
        """Return whether this owner is the managing controller; at most one is."""


class Observed(Protocol):
    """The attributes predicates read. Only those that the chosen predicates read must exist."""

    @property
    def uid(self) -> str:
        """Return the uid; an object without one is never remembered and always passes."""

    @property
    def name(self) -> str:
        """Return the name."""

    @property
    def namespace(self) -> str:
        """Return the namespace, empty for cluster-scoped kinds."""

    @property
    def resource_version(self) -> str:
        """Return the opaque version; empty when unknown."""

    @property
    def generation(self) -> int | None:
        """Return the generation; ``None`` or 0 when the server sets none (it starts at 1)."""

    @property
    def labels(self) -> Mapping[str, str] | None:
        """Return the labels; ``None`` means there are none."""

    @property
    def annotations(self) -> Mapping[str, str] | None:
        """Return the annotations; ``None`` means there are none."""

    @property
    def finalizers(self) -> Sequence[str]:
        """Return the finalizers."""

    @property
    def owners(self) -> Sequence[OwnerLike]:
        """Return the owner references."""

    @property
    def deletion_timestamp(self) -> str | None:
        """Return when deletion was asked for; ``None`` when it was not."""

    @property
    def columns(self) -> Mapping[str, str] | None:
        """Return cell text by column name.

        An empty text is a cell without a value (a condition not reported yet); a missing key is a
        column the server does not have; ``None`` is an event without columns at all.
        """


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner reference, reduced to what identifies the owner."""

    uid: str
    kind: str = ""
    api_version: str = ""
    name: str = ""
    controller: bool = False


@dataclass(frozen=True, slots=True)
class ObservedObject:
    """A ready-made :class:`Observed` for users who have no structs of their own."""

    uid: str
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    generation: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owners: tuple[Owner, ...] = ()
    deletion_timestamp: str | None = None
    columns: Mapping[str, str] | None = None


def group_of(api_version: str) -> str:
    """Return the API group of ``group/version``; the core group is the empty string."""
    group, slash, _ = api_version.rpartition("/")
    return group if slash else ""


def from_json(
    obj: Mapping[str, Any], *, columns: Mapping[str, str] | None = None
) -> ObservedObject:
    """Read the metadata of a full object or a PartialObjectMetadata.

    ``columns`` are taken as they are. Raises ValueError when the object has no usable metadata.
    """
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        raise ValueError("the object has no metadata")  # noqa: TRY004 - bad data, no wrong type
    generation = metadata.get("generation")
    try:
        return ObservedObject(
            uid=str(metadata.get("uid") or ""),
            name=str(metadata.get("name") or ""),
            namespace=str(metadata.get("namespace") or ""),
            resource_version=str(metadata.get("resourceVersion") or ""),
            generation=generation if isinstance(generation, int) else None,
            labels=_texts(metadata.get("labels")),
            annotations=_texts(metadata.get("annotations")),
            finalizers=tuple(str(entry) for entry in metadata.get("finalizers") or ()),
            owners=tuple(_owner(entry) for entry in metadata.get("ownerReferences") or ()),
            deletion_timestamp=str(metadata.get("deletionTimestamp") or "") or None,
            columns=columns,
        )
    except (AttributeError, TypeError) as error:
        raise ValueError(f"the metadata is malformed: {error}") from error


def from_table_row(
    columns_definitions: Sequence[Mapping[str, Any]] | None, row: Mapping[str, Any]
) -> ObservedObject:
    """Read one row of a Table that was asked for with ``includeObject=Metadata``.

    A watch sends ``columnDefinitions`` in its first event only: keep them and pass them for every
    later row. Without definitions, or when their number is not that of the cells, the object has no
    columns. A null cell becomes an empty text: the column exists and has no value yet. Raises
    ValueError when the row carries no object and KeyError for a definition without a name.
    """
    cells = row.get("cells")
    columns: dict[str, str] | None = None
    if columns_definitions and isinstance(cells, list) and len(cells) == len(columns_definitions):
        columns = {
            str(definition["name"]): "" if cell is None else str(cell)
            for definition, cell in zip(columns_definitions, cells, strict=True)
        }
    obj = row.get("object")
    if not isinstance(obj, Mapping):
        problem = "the row has no object; ask the server with includeObject=Metadata"
        raise ValueError(problem)  # noqa: TRY004 - as above
    return from_json(obj, columns=columns)


def _texts(entries: Any) -> Mapping[str, str]:
    return {str(key): str(value) for key, value in entries.items()} if entries else {}


def _owner(entry: Mapping[str, Any]) -> Owner:
    return Owner(
        uid=str(entry.get("uid") or ""),
        kind=str(entry.get("kind") or ""),
        api_version=str(entry.get("apiVersion") or ""),
        name=str(entry.get("name") or ""),
        controller=entry.get("controller") is True,
    )

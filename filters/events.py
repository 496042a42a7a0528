"""Events: their kinds, the object as predicates observe it, and what is worth keeping of it.

Predicates read the attributes of :class:`Observed`, so any decoded object will do;
:func:`from_json` makes an :class:`ObservedObject` of a dictionary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag, StrEnum
from typing import Any, Protocol

from filters.columns import derive_columns


class EventType(StrEnum):
    """The watch events that carry the state of an object, spelled as on the wire."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Change(IntFlag):
    """What may have changed since the event before, as a set of bits.

    The first three speak of the whole object and come alone; the others are raised by predicates.
    A bit that is not set is a promise only for what the predicate reads.
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
    OWNERS = 128
    COLUMNS = 256
    """A printer column, or whatever a computed predicate files under it."""
    VERSION = 512
    """``metadata.resourceVersion``: anything at all."""


class OwnerLike(Protocol):
    """One entry of ``metadata.ownerReferences``."""

    @property
    def uid(self) -> str:
        """The uid of the owner."""

    @property
    def controller(self) -> bool | None:
        """Whether this owner is the managing controller; at most one is."""


class Observed(Protocol):
    """The attributes predicates read. Only those that the chosen predicates read must exist."""

    @property
    def uid(self) -> str:
        """The uid; an object without one is never remembered and always passes."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def namespace(self) -> str:
        """The namespace, empty for cluster-scoped kinds."""

    @property
    def resource_version(self) -> str:
        """The opaque version; empty when unknown."""

    @property
    def generation(self) -> int | None:
        """The generation; ``None`` or 0 when the server sets none (it starts at 1)."""

    @property
    def labels(self) -> Mapping[str, str] | None:
        """The labels; ``None`` means there are none."""

    @property
    def annotations(self) -> Mapping[str, str] | None:
        """The annotations; ``None`` means there are none."""

    @property
    def owners(self) -> Sequence[OwnerLike]:
        """The owner references."""

    @property
    def deletion_timestamp(self) -> str | None:
        """When deletion was asked for; ``None`` when it was not."""

    @property
    def columns(self) -> Mapping[str, str] | None:
        """Cell text by column name.

        An empty text is a cell without a value (a condition not reported yet); a missing key is a
        column the server does not have; ``None`` is an event without columns at all.
        """


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner reference, reduced to what tells owners apart."""

    uid: str
    controller: bool = False


@dataclass(frozen=True, slots=True)
class ObservedObject:
    """A ready-made :class:`Observed`."""

    uid: str
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    generation: int | None = None
    labels: Mapping[str, str] | None = field(default_factory=dict)
    annotations: Mapping[str, str] | None = field(default_factory=dict)
    owners: tuple[Owner, ...] = ()
    deletion_timestamp: str | None = None
    columns: Mapping[str, str] | None = None


def from_json(
    obj: Mapping[str, Any], *, columns: Mapping[str, str] | None = None
) -> ObservedObject:
    """Read the metadata of a decoded object, and the printer columns it stands for.

    Without ``columns`` they are derived: those of a Pod, or status and reason of the condition
    Ready. Metadata alone has none. Raises ValueError when the object has no usable metadata.
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
            owners=tuple(
                Owner(str(entry.get("uid") or ""), entry.get("controller") is True)
                for entry in metadata.get("ownerReferences") or ()
            ),
            deletion_timestamp=str(metadata.get("deletionTimestamp") or "") or None,
            columns=derive_columns(obj) if columns is None else columns,
        )
    except (AttributeError, TypeError, LookupError) as error:
        raise ValueError(f"the object is malformed: {error}") from error


def _texts(entries: Any) -> Mapping[str, str]:
    return {str(key): str(value) for key, value in entries.items()} if entries else {}


def keep(mapping: Mapping[str, str] | None, keys: Collection[str]) -> dict[str, str] | None:
    """Return the entries under the keys, ``None`` when there are none.

    The cost is that of ``keys``, not of the mapping. The result has the caller's key texts, so that
    all objects share them and the decoded ones can be freed.
    """
    if not mapping:
        return None
    return {key: mapping[key] for key in keys if key in mapping} or None

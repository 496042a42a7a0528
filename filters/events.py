"""Watch events: their types, the object as predicates see it, and what is worth keeping of it.

Predicates read attributes, so any decoded object that has them will do; :func:`from_json` makes an
:class:`ObservedObject` of a dictionary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag, StrEnum
from typing import Any, TypeAlias


class EventType(StrEnum):
    """The watch events that carry the state of an object, spelled as on the wire."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Change(IntFlag):
    """What may have changed since the event before, as a set of bits.

    The first three concern the whole object and come alone; the others are set by predicates.
    A bit that is not set says nothing about fields that the predicate does not read.
    """

    NONE = 0
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
    """A printer column, or what a computed predicate reports as one."""
    VERSION = 512
    """``metadata.resourceVersion``: anything at all."""


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner reference, reduced to what distinguishes owners."""

    uid: str
    controller: bool = False


@dataclass(frozen=True, slots=True)
class ObservedObject:
    """An object as predicates observe it."""

    # One without a uid is never remembered and always passes.
    uid: str
    name: str = ""
    # Empty for cluster-scoped kinds.
    namespace: str = ""
    # Opaque; empty when unknown.
    resource_version: str = ""
    # None or 0 when the server sets none: it starts at 1.
    generation: int | None = None
    labels: Mapping[str, str] | None = field(default_factory=dict)
    annotations: Mapping[str, str] | None = field(default_factory=dict)
    owners: tuple[Owner, ...] = ()
    # When deletion was asked for.
    deletion_timestamp: str | None = None
    # Cell text by column name. An empty text is a cell without a value (a condition not reported
    # yet), a missing key a column the server does not have, None an event without columns at all.
    columns: Mapping[str, str] | None = None


Observed: TypeAlias = Any
"""What predicates read: an object with those attributes of an :class:`ObservedObject` they need."""


def from_json(
    obj: Mapping[str, Any], *, columns: Mapping[str, str] | None = None
) -> ObservedObject:
    """Return a decoded object as predicates see it: its metadata and printer columns.

    Without ``columns`` they are derived as the server prints them: Ready and IP of a Pod, status
    and reason of the condition Ready of other kinds, none from metadata alone. Raises ValueError
    when the object has no usable metadata.
    """
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        raise ValueError("the object has no metadata")  # noqa: TRY004 - bad data, not a wrong type
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
            columns=_columns_of(obj) if columns is None else columns,
        )
    except (AttributeError, TypeError, LookupError) as error:
        raise ValueError(f"the object is malformed: {error}") from error


def _texts(entries: Any) -> Mapping[str, str]:
    return {str(key): str(value) for key, value in entries.items()} if entries else {}


def _columns_of(obj: Mapping[str, Any]) -> dict[str, str] | None:
    if "spec" not in obj and "status" not in obj:
        return None
    if obj.get("kind") == "Pod":
        return pod_columns(obj)
    ready = condition_of(obj.get("status") or {}, "Ready")
    return {"Ready": str(ready.get("status") or ""), "Reason": str(ready.get("reason") or "")}


def pod_columns(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns Ready and IP of a full Pod."""
    spec = pod.get("spec") or {}
    status = pod.get("status") or {}
    sidecars = sidecars_of(spec)
    started = [
        found
        for found in status.get("containerStatuses") or ()
        if (found.get("state") or {}).get("running") is not None
    ]
    started += [
        found
        for found in status.get("initContainerStatuses") or ()
        if found.get("name") in sidecars
    ]
    ready = sum(1 for found in started if found.get("ready"))
    total = len(spec.get("containers") or ()) + len(sidecars)
    first: Mapping[str, Any] = next(iter(status.get("podIPs") or ()), {})
    return {"Ready": f"{ready}/{total}", "IP": str(first.get("ip") or "<none>")}


def condition_of(status: Mapping[str, Any], kind: object) -> Mapping[str, Any]:
    """Return the first condition of a type in a status, or an empty mapping."""
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    return next((found for found in conditions if found.get("type") == kind), {})


def sidecars_of(spec: Mapping[str, Any]) -> list[str]:
    """Return the names of a Pod's sidecars: init containers that keep running."""
    initial = spec.get("initContainers") or ()
    return [found.get("name") for found in initial if found.get("restartPolicy") == "Always"]


def keep(mapping: Mapping[str, str] | None, keys: Collection[str]) -> dict[str, str] | None:
    """Return the entries under the keys, ``None`` when there are none.

    The cost grows with ``keys``, not with the mapping. The result uses the caller's key strings, so
    that all objects share them and the decoded ones can be freed.
    """
    if not mapping:
        return None
    return {key: mapping[key] for key in keys if key in mapping} or None

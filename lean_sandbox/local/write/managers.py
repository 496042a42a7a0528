"""`metadata.managedFields`: who set which field, kept up to date on every write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from lean_sandbox.local.kinds.registry import Kind
from lean_sandbox.local.schema.structural import Node
from lean_sandbox.local.write.fieldsets import (
    Fields,
    changes,
    difference,
    from_wire,
    to_wire,
    union,
)
from lean_sandbox.local.write.options import WriteOptions

Json = dict[str, Any]

_SYSTEM: Final = frozenset(
    (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
    )
)


@dataclass(frozen=True, slots=True)
class Manager:
    """One writer: its name, how it writes, through which version and subresource."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @classmethod
    def of(cls, kind: Kind, options: WriteOptions, operation: str) -> Manager:
        """Return who writes an object with these options."""
        return cls(options.manager, operation, kind.api_version, options.subresource)

    @property
    def label(self) -> str:
        """Return the writer as conflict messages show it."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            text += f" using {self.api_version}"
        return text


@dataclass(slots=True)
class _Record:
    fields: Fields
    time: str


Managers = dict[Manager, _Record]


def read(entries: Iterable[Json]) -> Managers:
    """Return the managers recorded in an object."""
    return {
        Manager(
            entry.get("manager", ""),
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        ): _Record(from_wire(entry.get("fieldsV1") or {}), entry.get("time", ""))
        for entry in entries
    }


def write(managers: Managers) -> list[Json]:
    """Return the managers as `managedFields`: appliers first, then by time and name."""
    ordered = sorted(
        ((key, record) for key, record in managers.items() if record.fields),
        key=lambda pair: (pair[0].operation != "Apply", pair[1].time, pair[0].name),
    )
    entries = []
    for key, record in ordered:
        entry = {
            "manager": key.name,
            "operation": key.operation,
            "apiVersion": key.api_version,
            "time": record.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_wire(record.fields),
        }
        if key.subresource:
            entry["subresource"] = key.subresource
        entries.append(entry)
    return entries


def owned_view(obj: Json, *, hide: tuple[str, ...] = ()) -> Json:
    """Return the part of an object that can be owned: no identity, no system fields."""
    view = {
        key: value
        for key, value in obj.items()
        if key not in ("kind", "apiVersion", "metadata") and key not in hide
    }
    if "metadata" not in hide:
        metadata = obj.get("metadata") or {}
        kept = {key: value for key, value in metadata.items() if key not in _SYSTEM}
        if kept:
            view["metadata"] = kept
    return view


def hidden_from(kind: Kind, subresource: str) -> tuple[str, ...]:
    """Return the members that a writer does not come to own, for they are written elsewhere."""
    if subresource == "status":
        return ("spec", "metadata") if kind.is_custom else ("spec",)
    return ("status",) if kind.has_status else ()


def track_update(
    old: Json,
    new: Json,
    node: Node,
    writer: Manager,
    now: str,
    *,
    hide: tuple[str, ...],
    is_new: bool = False,
) -> tuple[list[Json], bool]:
    """Return the new `managedFields` after ``writer`` changed ``old`` to ``new``.

    Returns:
        the entries, and whether the owned part of the object differs at all.

    """
    before, after = owned_view(old, hide=hide), owned_view(new, hide=hide)
    # metadata is a member every object has; it is never itself owned.
    before.setdefault("metadata", {})
    after.setdefault("metadata", {})
    recorded = new["metadata"].get("managedFields")
    known = (old.get("metadata") or {}).get("managedFields") or []
    if recorded is None:
        recorded = known
    if not is_new and (not known or not any(recorded)):
        # Whoever empties the record ends it: only an apply begins it anew.
        return [], before != after or bool(known)
    changed, removed = changes(before, after, node)
    if not changed and not removed:
        return recorded, False
    managers = read(recorded)
    gone = union(changed, removed)
    for key, record in managers.items():
        if key != writer:
            record.fields = difference(record.fields, gone)
    own = managers.get(writer)
    if changed:
        if own is None:
            managers[writer] = _Record(changed, now)
        else:
            own.fields = union(difference(own.fields, removed), changed)
            own.time = now
    elif own is not None:
        own.fields = difference(own.fields, removed)
        own.time = now
    return write(managers), True


def apply_managers(
    managers: Managers, writer: Manager, fields: Fields, lost: Fields, now: str
) -> list[Json]:
    """Return `managedFields` after ``writer`` applied ``fields`` and others lost ``lost``."""
    for key, record in managers.items():
        if key != writer:
            record.fields = difference(record.fields, lost)
    known = managers.get(writer)
    if known is None or to_wire(known.fields) != to_wire(fields):
        managers[writer] = _Record(fields, now)
    return write(managers)

"""`metadata.managedFields`: who set which field; and server-side apply, which goes by it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause, StatusError
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.schema.structural import Node
from lean_sandbox.local.write.bodies import WriteOptions
from lean_sandbox.local.write.changes import (
    Fields,
    changes,
    difference,
    fields_of,
    from_wire,
    intersection,
    members,
    parts,
    path_text,
    rebuilt,
    to_wire,
    union,
)

Json = dict[str, Any]

_SYSTEM: Final = frozenset(
    (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
        "selfLink",
    )
)
_BEFORE: Final = "before-first-apply"
"""Who owns what an object without a record has when it is applied to."""


@dataclass(frozen=True, slots=True)
class FieldManager:
    """One writer: its name, how it writes, through which version and subresource."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @classmethod
    def of(cls, kind: Kind, options: WriteOptions, operation: str) -> FieldManager:
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


Managers = dict[FieldManager, _Record]


def _read(entries: Iterable[Json]) -> Managers:
    """Return the managers recorded in an object."""
    return {
        FieldManager(
            entry.get("manager", ""),
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        ): _Record(from_wire(entry.get("fieldsV1") or {}), entry.get("time", ""))
        for entry in entries
    }


def _is_readable(entry: Json) -> bool:
    """Say whether an entry of a record, as a client sent it, can be understood."""
    steps = entry.get("fieldsV1") or {}
    is_known = entry.get("operation") in ("Apply", "Update")
    is_known &= entry.get("fieldsType") == "FieldsV1"
    return is_known and all(step == "." or step[:2] in ("f:", "k:", "v:") for step in steps)


def _write(managers: Managers) -> list[Json]:
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


def _owned_view(obj: Json, *, hide: tuple[str, ...] = ()) -> Json:
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
    writer: FieldManager,
    now: str,
    *,
    is_new: bool = False,
) -> tuple[list[Json], bool]:
    """Return the new `managedFields` after ``writer`` changed ``old`` to ``new``.

    Returns:
        the entries, and whether the owned part of the object differs at all.

    """
    before = _owned_view(old)
    after = _owned_view(new)
    # metadata is a member every object has; it is never itself owned.
    before.setdefault("metadata", {})
    after.setdefault("metadata", {})
    recorded = new["metadata"].get("managedFields")
    known = (old.get("metadata") or {}).get("managedFields") or []
    if recorded is None or (any(recorded) and not all(map(_is_readable, recorded))):
        recorded = known
    if not is_new and (not known or not any(recorded)):
        # Whoever empties the record ends it: only an apply begins it anew.
        return [], before != after or bool(known)
    changed, removed = changes(before, after, node)
    if not changed and not removed:
        return recorded, False
    managers = _read(recorded)
    gone = union(changed, removed)
    for key, record in managers.items():
        if key != writer:
            record.fields = difference(record.fields, gone)
    own = managers.setdefault(writer, _Record({}, now))
    own.fields = union(difference(own.fields, removed), changed)
    own.time = now
    return _write(managers), True


def apply_managers(
    managers: Managers, writer: FieldManager, fields: Fields, lost: Fields, now: str
) -> list[Json]:
    """Return `managedFields` after ``writer`` applied ``fields`` and others lost ``lost``."""
    for key, record in managers.items():
        if key != writer:
            record.fields = difference(record.fields, lost)
    known = managers.get(writer)
    if known is None or to_wire(known.fields) != to_wire(fields):
        managers[writer] = _Record(fields, now)
    return _write(managers)


def _merge(live: Any, applied: Any, node: Node) -> Any:
    before = parts(live, node)
    if applied is None and before is not None:
        return live  # who says nothing of a map or list claims it, and none of its members
    wanted = parts(applied, node)
    if before is None or wanted is None or isinstance(live, dict) is not isinstance(applied, dict):
        return applied
    merged = {step: value for step, (value, _) in before.items()}
    for step, (value, below) in wanted.items():
        merged[step] = _merge(merged.get(step), value, below)
    return rebuilt(applied, merged)


def _prune(value: Any, dropped: Fields, kept: Fields, node: Node) -> Any:
    """Return ``value`` without the paths ``dropped`` that nobody in ``kept`` still claims."""
    found = parts(value, node)
    if found is None:
        return value
    remaining = {
        step: _pruned_item(
            item, dropped.get(step), kept.get(step), below, is_item=step.startswith("k:")
        )
        for step, (item, below) in found.items()
    }
    return rebuilt(value, {step: item for step, item in remaining.items() if item is not _GONE})


_GONE: Any = object()


def _pruned_item(
    value: Any, dropped: Fields | None, kept: Fields | None, node: Node, *, is_item: bool
) -> Any:
    if not dropped:
        return value
    # Who owns a field of an item of a list does not own the item.
    if "." in dropped and (not kept or (is_item and "." not in kept)):
        return _GONE
    rest = _prune(value, dropped, kept or {}, node)
    # A map or list that only this manager had filled goes with its last member.
    if not rest and not kept and value:
        return _GONE
    return rest


def _refuse_conflicts(lost: list[tuple[FieldManager, Fields]]) -> None:
    causes: list[ErrorCause] = []
    texts: list[str] = []
    for manager, fields in lost:
        paths = [path_text(path) for path in sorted(members(fields))]
        causes += [
            ErrorCause("FieldManagerConflict", f"conflict with {manager.label}", path)
            for path in paths
        ]
        texts.append(f"conflicts with {manager.label}:\n" + "\n".join(f"- {p}" for p in paths))
    said = "conflicts: " + "\n".join(texts)
    if len(causes) == 1:
        said = f"conflict: {causes[0].message}: {causes[0].field}"
    message = f"Apply failed with {len(causes)} {said}"
    details = {"causes": [cause.body() for cause in causes]}
    raise StatusError(409, "Conflict", message, details=details)


def claimed_by(applied: Json, node: Node, *, hide: tuple[str, ...]) -> Fields:
    """Return the fields that who applies an object comes to own."""
    return fields_of(_owned_view(applied, hide=hide), node, with_self=False)


def apply_onto(
    live: Json,
    applied: Json,
    node: Node,
    writer: FieldManager,
    now: str,
    *,
    force: bool,
    hide: tuple[str, ...],
) -> Json:
    """Return ``live`` with ``applied`` merged in and `managedFields` kept.

    Raises StatusError: 409 when a changed field belongs to another manager and not ``force``.
    """
    said = _owned_view(applied, hide=hide)
    before = _owned_view(live)
    claimed = claimed_by(applied, node, hide=hide)
    managers = _read(live["metadata"].get("managedFields") or ())
    if not managers:
        former = replace(writer, name=_BEFORE, operation="Update")
        nothing: Json = {"metadata": {}}
        held, _ = changes(nothing, nothing | _owned_view(live, hide=hide), node)
        managers[former] = _Record(held, now)
    merged = _merge(before, said, node)
    changed, _ = changes(before, merged, node)
    lost: list[tuple[FieldManager, Fields]] = []
    taken: Fields = {}
    for manager, record in managers.items():
        if manager.name == writer.name and manager.operation == "Apply":
            continue
        shared = intersection(record.fields, changed)
        if shared:
            lost.append((manager, shared))
            taken = union(taken, shared)
    if lost and not force:
        _refuse_conflicts(lost)
    own = managers.get(writer)
    if own is not None:
        others: Fields = claimed
        for manager, record in managers.items():
            if manager != writer:
                others = union(others, record.fields)
        dropped = difference(own.fields, claimed)
        if dropped:
            merged = _prune(merged, dropped, others, node)
    both = {**live, **merged}
    result: Json = {key: both[key] for key in both if key in merged or key not in before}
    system = {key: value for key, value in live["metadata"].items() if key in _SYSTEM}
    result["metadata"] = {**system, **(merged.get("metadata") or {})}
    result["metadata"]["managedFields"] = apply_managers(managers, writer, claimed, taken, now)
    return result

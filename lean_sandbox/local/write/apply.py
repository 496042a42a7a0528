"""Server-side apply: merge by schema, conflicts between managers, removal of what is unsaid."""

from __future__ import annotations

from typing import Any

from lean_sandbox.local.errors import Cause, StatusError
from lean_sandbox.local.schema.structural import Node
from lean_sandbox.local.write.fieldsets import (
    Fields,
    changes,
    difference,
    fields_of,
    intersection,
    members,
    parts,
    path_text,
    rebuilt,
    union,
)
from lean_sandbox.local.write.managers import Manager, apply_managers, owned_view, read

Json = dict[str, Any]


def _merge(live: Any, applied: Any, node: Node) -> Any:
    before, wanted = parts(live, node), parts(applied, node)
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
        step: _pruned_item(item, dropped.get(step), kept.get(step), below)
        for step, (item, below) in found.items()
    }
    return rebuilt(value, {step: item for step, item in remaining.items() if item is not _GONE})


_GONE: Any = object()


def _pruned_item(value: Any, dropped: Fields | None, kept: Fields | None, node: Node) -> Any:
    if not dropped:
        return value
    if "." in dropped and not kept:
        return _GONE
    rest = _prune(value, dropped, kept or {}, node)
    # A map or list that only this manager had filled goes with its last member.
    if not rest and not kept and value:
        return _GONE
    return rest


def _refuse_conflicts(lost: list[tuple[Manager, Fields]]) -> None:
    causes: list[Cause] = []
    lines: list[tuple[str, list[str]]] = []
    for manager, fields in lost:
        paths = [path_text(path) for path in sorted(members(fields))]
        text = f"conflict with {manager.label}"
        causes.extend(Cause("FieldManagerConflict", text, path) for path in paths)
        lines.append((manager.label, paths))
    count = len(causes)
    noun = "conflict" if count == 1 else "conflicts"
    if count == 1:
        text = f"conflict with {lines[0][0]}: {lines[0][1][0]}"
    else:
        text = "\n".join(
            "conflicts with " + label + ":\n" + "\n".join(f"- {path}" for path in paths)
            for label, paths in lines
        )
    raise StatusError(
        409,
        "Conflict",
        f"Apply failed with {count} {noun}: {text}",
        details={"causes": [cause.body() for cause in causes]},
    )


def apply_onto(
    live: Json,
    applied: Json,
    node: Node,
    writer: Manager,
    now: str,
    *,
    force: bool,
    hide: tuple[str, ...],
) -> Json:
    """Return ``live`` with ``applied`` merged in and `managedFields` kept.

    Raises:
        StatusError: 409 when a changed field belongs to another manager and not ``force``.

    """
    said = owned_view(applied, hide=hide)
    before = owned_view(live)
    claimed = fields_of(said, node, with_self=False)
    managers = read(live["metadata"].get("managedFields") or ())
    merged = _merge(before, said, node)
    changed, _ = changes(before, merged, node)
    lost: list[tuple[Manager, Fields]] = []
    for manager, record in managers.items():
        if manager.name == writer.name and manager.operation == "Apply":
            continue
        shared = intersection(record.fields, intersection(changed, claimed))
        if shared:
            lost.append((manager, shared))
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
    result: Json = {**live, **merged}
    for key in before:
        if key not in merged:
            result.pop(key, None)
    system = {key: value for key, value in live["metadata"].items() if key not in _owned_keys(live)}
    result["metadata"] = {**system, **(merged.get("metadata") or {})}
    taken: Fields = {}
    for _, fields in lost:
        taken = union(taken, fields)
    result["metadata"]["managedFields"] = apply_managers(managers, writer, claimed, taken, now)
    return result


def _owned_keys(obj: Json) -> frozenset[str]:
    return frozenset((owned_view(obj).get("metadata") or {}).keys())

"""What a write may change of an object, and what the server counts and keeps of it."""

from __future__ import annotations

from typing import Any

from lean_sandbox.local.kinds.kinds import Kind
from lean_sandbox.local.schema.metadata import ordered_metadata
from lean_sandbox.local.schema.structural import is_same

Json = dict[str, Any]


def keep_system(old: Json, new: Json) -> None:
    """Put back the metadata that only the server sets."""
    for key in (
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
    ):
        if key in old:
            new[key] = old[key]
        else:
            new.pop(key, None)


def count_generation(kind: Kind, old: Json, new: Json) -> None:
    """Raise the generation if anything changed that it counts."""
    if not kind.has_generation:
        return
    before, after = (_counted(kind, obj) for obj in (old, new))
    if not is_same(before, after):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _counted(kind: Kind, obj: Json) -> Json:
    """Return the part of an object whose changes its generation counts."""
    if kind.counted is not None:
        whole = {**obj, **{f"metadata.{key}": value for key, value in obj["metadata"].items()}}
        return {key: whole[key] for key in kind.counted if key in whole}
    ignored = {"metadata", "kind", "apiVersion", *(["status"] if kind.has_status else [])}
    return {key: value for key, value in obj.items() if key not in ignored}


def is_unchanged(old: Json, new: Json) -> bool:
    """Return whether a write changes nothing, so that the version stays."""
    return is_same({**old, "metadata": ordered_metadata(old["metadata"])}, new)

"""The order of `metadata`."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["ordered_metadata"]

Json = dict[str, Any]

_KEYS_ORDER: Final = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)


def ordered_metadata(metadata: Json) -> Json:
    """Return the known members in the order a server writes them, without empty ones."""
    return {
        key: metadata[key] for key in _KEYS_ORDER if metadata.get(key) not in (None, "", {}, [])
    }

"""Objects and events the tests of the filters are about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from filters import Decision, EventType, Filter
from filters.events import ObservedObject, Owner

ADDED = EventType.ADDED
MODIFIED = EventType.MODIFIED
DELETED = EventType.DELETED

POD_COLUMNS = ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Readiness Gates")


def sandbox(**changes: Any) -> ObservedObject:
    """Return a healthy Sandbox as a Table row shows it, with some attributes changed."""
    values: dict[str, Any] = {
        "uid": "uid-1",
        "name": "box",
        "namespace": "default",
        "resource_version": "10",
        "generation": 1,
        "labels": {"app": "web"},
        "owners": (Owner("pool-uid", controller=True),),
        "columns": {"Ready": "True", "Reason": "DependenciesReady"},
    }
    return ObservedObject(**{**values, **changes})


def pod(**changes: Any) -> ObservedObject:
    """Return a Pod of a server that gives Pods no generation."""
    columns = {"Ready": "0/1", "Status": "Pending", "IP": "<none>", "Node": "<none>"}
    columns["Readiness Gates"] = "<none>"
    columns.update(changes.pop("columns", {}))
    values: dict[str, Any] = {"uid": "pod-1", "name": "box", "namespace": "default"}
    return ObservedObject(**{**values, "resource_version": "1", "columns": columns, **changes})


def decisions(subject: Filter, objects: Iterable[ObservedObject]) -> list[Decision]:
    """Admit the objects in turn, the first as ADDED, and return the decisions after the first."""
    stream = iter(objects)
    assert subject.admit(ADDED, next(stream)).passed
    return [subject.admit(MODIFIED, obj) for obj in stream]


def partial(
    name: str = "box", *, uid: str = "uid-1", version: str = "1", **metadata: Any
) -> dict[str, Any]:
    """Return a PartialObjectMetadata document."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "resourceVersion": version,
            **metadata,
        },
    }


def table(
    *rows: tuple[list[Any], dict[str, Any]], columns: Iterable[str] | None = None
) -> dict[str, Any]:
    """Return a Table document; without columns it is one that follows the first of a watch."""
    definitions = (
        None if columns is None else [{"name": name, "type": "string"} for name in columns]
    )
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "columnDefinitions": definitions,
        "rows": [{"cells": cells, "object": obj} for cells, obj in rows],
    }

"""Objects, lists and watch events as a server sends them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lean_sandbox.model.names import NAME_HASH_LABEL, name_hash

Json = dict[str, Any]

SANDBOX_COLUMNS = ("Name", "Ready", "Reason", "Age")
POD_COLUMNS = ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Readiness Gates")


def meta(name: str, version: int, **fields: Any) -> Json:
    """Return metadata; ``fields`` are spelled as on the wire, a None takes one away."""
    made = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-of-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
        **fields,
    }
    return {key: value for key, value in made.items() if value is not None}


def sandbox(
    name: str,
    version: int,
    *,
    ready: str = "True",
    reason: str = "DependenciesReady",
    **fields: Any,
) -> Json:
    """Return a whole Sandbox."""
    fields.setdefault("generation", 1)
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": reason,
        "message": "said",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
        "observedGeneration": 1,
    }
    return {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": meta(name, version, **fields),
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main"}]}}},
        "status": {"conditions": [condition]},
    }


def owned_by(name: str, uid: str = "", *, controller: bool = True) -> list[Json]:
    """Return the owner references of a Sandbox's child."""
    return [
        {
            "apiVersion": "agents.x-k8s.io/v1beta1",
            "kind": "Sandbox",
            "name": name,
            "uid": uid or f"uid-of-{name}",
            "controller": controller,
            "blockOwnerDeletion": True,
        }
    ]


def pod_meta(name: str, version: int, **fields: Any) -> Json:
    """Return the metadata of a Sandbox's Pod."""
    fields.setdefault("labels", {NAME_HASH_LABEL: name_hash(name), "app": "web"})
    fields.setdefault("ownerReferences", owned_by(name))
    fields.setdefault("uid", f"uid-of-pod-{name}")
    return meta(name, version, **fields)


def pod(
    name: str,
    version: int,
    *,
    phase: str = "Running",
    ready: bool = True,
    ip: str = "10.0.0.1",
    node: str = "node-1",
    **fields: Any,
) -> Json:
    """Return a whole Pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": pod_meta(name, version, **fields),
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {
            "phase": phase,
            "podIP": ip,
            "podIPs": [{"ip": ip}] if ip else [],
            "conditions": [
                {"type": "Ready", "status": str(ready)},
                {"type": "PodScheduled", "status": "True" if node else "False"},
            ],
        },
    }


def page(items: Iterable[Any], version: int, continue_: str = "") -> Json:
    """Return one page of a list."""
    metadata: Json = {"resourceVersion": str(version)}
    if continue_:
        metadata["continue"] = continue_
    return {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": list(items)}


def event(event_type: str, obj: Json) -> Json:
    """Return a watch event of an object as it is."""
    return {"type": event_type, "object": obj}


def partial(event_type: str, metadata: Json) -> Json:
    """Return a watch event of the metadata alone."""
    kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return event(event_type, {**kind, "metadata": metadata})


def table(
    event_type: str, metadata: Json, cells: Iterable[Any], columns: Iterable[str] | None = None
) -> Json:
    """Return a watch event as a Table; the first one of a watch names the columns."""
    definitions = (
        None if columns is None else [{"name": name, "type": "string"} for name in columns]
    )
    row = {
        "cells": list(cells),
        "object": {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
        },
    }
    return event(
        event_type,
        {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": metadata.get("resourceVersion", "")},
            "columnDefinitions": definitions,
            "rows": [row],
        },
    )


def sandbox_row(
    event_type: str,
    name: str,
    version: int,
    *,
    ready: str | None = "True",
    reason: str | None = "DependenciesReady",
    first: bool = False,
    **fields: Any,
) -> Json:
    """Return a Table event of a Sandbox."""
    fields.setdefault("generation", 1)
    return table(
        event_type,
        meta(name, version, **fields),
        [name, ready, reason, "5m"],
        SANDBOX_COLUMNS if first else None,
    )


def pod_row(
    event_type: str,
    name: str,
    version: int,
    *,
    status: str = "Running",
    ready: str = "1/1",
    ip: str = "10.0.0.1",
    node: str = "node-1",
    gates: str = "<none>",
    first: bool = False,
    **fields: Any,
) -> Json:
    """Return a Table event of a Pod."""
    return table(
        event_type,
        pod_meta(name, version, **fields),
        [name, ready, status, 0, "5m", ip, node, gates],
        POD_COLUMNS if first else None,
    )


def bookmark(version: int, *, annotations: Mapping[str, str] | None = None) -> Json:
    """Return a bookmark of a watch of full or partial objects."""
    metadata: Json = {"resourceVersion": str(version), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return event("BOOKMARK", {"kind": "Sandbox", "metadata": metadata})


def table_bookmark(version: int, columns: Iterable[str] | None = None) -> Json:
    """Return a bookmark of a Table watch: its mark sits in the object of the only row."""
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    made = table("BOOKMARK", metadata, ["", None, None, "<unknown>"], columns)
    made["object"]["metadata"] = {}
    return made


def problem(code: int, reason: str, **details: Any) -> Json:
    """Return an ERROR event."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return event(
        "ERROR", {**status, "code": code, "reason": reason, "message": reason, "details": details}
    )

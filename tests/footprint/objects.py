"""Sandboxes and Pods as a cluster has them, for what measures the memory that they cost."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import msgspec

from lean_sandbox.model import names

__all__ = ["address", "held_bytes", "pod", "row", "sandbox"]


def sandbox(number: int, *, is_claimed: bool) -> dict[str, Any]:
    """Return a ready Sandbox; uid, name, address, node and times differ as they do in a cluster."""
    name = f"sandbox-{number:06d}"
    at = f"2026-01-02T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "DependenciesReady",
        "message": "Pod is Ready",
        "lastTransitionTime": at,
        "observedGeneration": 1,
    }
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "team-a",
        "uid": f"{number:08x}-1111-4000-8000-000000000000",
        "resourceVersion": str(1_000_000 + number),
        "generation": 1,
        "creationTimestamp": at,
        "labels": {"app": "agents", names.CREATED_BY_LABEL: "controller"},
        "annotations": {names.POD_NAME_ANNOTATION: name},
        "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}, "f:status": {}}}],
    }
    if is_claimed:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
                "kind": "SandboxClaim",
                "name": f"claim-{number:06d}",
                "uid": f"{number:08x}-3333-4000-8000-000000000000",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    template = {"labels": {"app": "agents"}, "annotations": {"note": "x"}}
    return {
        "metadata": metadata,
        "spec": {
            "podTemplate": {
                "metadata": template,
                "spec": {"containers": [{"name": "main", "ports": [{"containerPort": 80}]}]},
            },
            "operatingMode": "Running",
            "shutdownPolicy": "Retain",
        },
        "status": {
            "conditions": [condition],
            "selector": f"{names.NAME_HASH_LABEL}={names.name_hash(name)}",
            "podIPs": [address(number)],
            "nodeName": f"node-{number % 50}",
        },
    }


def pod(number: int) -> dict[str, Any]:
    """Return the running Pod of that Sandbox."""
    name = f"sandbox-{number:06d}"
    owner = {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "name": name,
        "uid": f"{number:08x}-1111-4000-8000-000000000000",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"{number:08x}-2222-4000-8000-000000000000",
            "resourceVersion": str(2_000_000 + number),
            "labels": {"app": "agents", names.NAME_HASH_LABEL: names.name_hash(name)},
            "annotations": {
                names.PROPAGATED_LABELS_ANNOTATION: "app",
                names.PROPAGATED_ANNOTATIONS_ANNOTATION: "note",
                "note": "x",
                "cni/foreign": f"network {number}",
            },
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": f"node-{number % 50}", "containers": [{"name": "main"}]},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": address(number)}],
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True"},
            ],
        },
    }


def address(number: int) -> str:
    """Return the address of the Pod."""
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def row(metadata: dict[str, Any], cells: dict[str, Any], version: int) -> bytes:
    """Return a Table event, the first of its watch, at a later version."""
    definitions = [{"name": name} for name in cells]
    inner = {"metadata": {**metadata, "resourceVersion": str(version)}}
    table = {
        "columnDefinitions": definitions,
        "rows": [{"cells": list(cells.values()), "object": inner}],
    }
    return msgspec.json.encode({"type": "MODIFIED", "object": table})


def held_bytes() -> int:
    """Return the bytes of the heap that something holds on to."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]

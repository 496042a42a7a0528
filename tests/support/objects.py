"""Sandboxes and Pods as tests make and read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lean_sandbox.model.names import name_hash
from lean_sandbox.model.times import format_rfc3339
from tests.support.clock import FakeClock

Json = dict[str, Any]
NS = "ns"
HASH_LABEL = "agents.x-k8s.io/sandbox-name-hash"


def sandbox(
    name: str = "sb-1",
    *,
    spec: Mapping[str, Any] | None = None,
    template: Mapping[str, Any] | None = None,
    pod_spec: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    namespace: str = NS,
) -> Json:
    """Return a Sandbox: one container, mode Running, no service, changed as asked."""
    body: Json = {"containers": [{"name": "main", "image": "busybox"}], **(pod_spec or {})}
    return {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
        "spec": {"podTemplate": {**(template or {}), "spec": body}, **(spec or {})},
    }


def condition(obj: Json, type_: str) -> Json:
    """Return a condition of an object's status; fails when there is none."""
    found = [one for one in obj.get("status", {}).get("conditions", []) if one["type"] == type_]
    assert len(found) == 1, f"{type_}: {obj.get('status')}"
    result: Json = found[0]
    return result


def status_managers(obj: Json) -> set[str]:
    """Return who has written what the status of an object says."""
    entries = obj["metadata"]["managedFields"]
    return {one["manager"] for one in entries if one.get("subresource") == "status"}


def running_status(*, ready: bool = True, ips: tuple[str, ...] = ("10.244.0.5",)) -> Json:
    """Return the status of a running Pod, as its kubelet writes it."""
    return {
        "phase": "Running",
        "podIP": ips[0] if ips else None,
        "podIPs": [{"ip": ip} for ip in ips],
        "conditions": pod_conditions(ready=ready),
        "containerStatuses": [
            {
                "name": "main",
                "image": "busybox",
                "imageID": "",
                "ready": ready,
                "restartCount": 0,
                "state": {"running": {}},
            }
        ],
    }


def pod_conditions(*, ready: bool, scheduled: bool = True) -> list[Json]:
    """Return a Pod's conditions as scheduler and kubelet write them."""
    at = format_rfc3339(FakeClock().now())
    return [
        {
            "type": "PodScheduled",
            "status": "True" if scheduled else "False",
            "lastTransitionTime": at,
        },
        {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": at},
    ]


def pod_body(
    name: str = "sb-1",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owners: tuple[Json, ...] = (),
) -> Json:
    """Return a Pod that somebody else made, for the cases where one stands in the way."""
    metadata: Json = {"name": name, "namespace": NS}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    if owners:
        metadata["ownerReferences"] = list(owners)
    container = {"name": "theirs", "image": "busybox"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container]},
    }


def tracking(name: str = "sb-1") -> dict[str, str]:
    """Return the tracking label of the children of a Sandbox."""
    return {HASH_LABEL: name_hash(name)}


def controlled_by(owner: Json, *, api_version: str | None = None) -> Json:
    """Return the controller reference to an object."""
    return {
        "apiVersion": api_version or owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }

"""Builders for the fixture of the model tests: namespace ``ns``, Sandbox ``sb-1``, uid ``U``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from lean_sandbox.model.meta import ObjectMeta, OwnerReference, controller_reference
from lean_sandbox.model.pod import PodCondition, PodState
from lean_sandbox.model.sandbox import PodTemplateMetadata, Sandbox
from lean_sandbox.model.sandbox_status import Observation, ObservedPod

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
UID = "U"
REFERENCE = {
    "apiVersion": "agents.x-k8s.io/v1beta1",
    "kind": "Sandbox",
    "name": "sb-1",
    "uid": UID,
    "controller": True,
    "blockOwnerDeletion": True,
}
"""What a child of the Sandbox names as its owner."""
HASH = "ae84b5b2"
HASH_KEY = "agents.x-k8s.io/sandbox-name-hash"


def sandbox(spec: dict[str, Any] | None = None, **metadata: Any) -> Sandbox:
    """Return the fixture Sandbox, decoded from JSON like a real one."""
    body = {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": "sb-1", "namespace": "ns", "uid": UID, "generation": 1, **metadata},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "i"}]}}},
    }
    body["spec"] = {**body["spec"], **(spec or {})}  # type: ignore[dict-item]
    return msgspec.json.decode(msgspec.json.encode(body), type=Sandbox)


def template(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a ``podTemplate``."""
    return {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": spec or {"containers": [{"name": "main", "image": "i"}]},
    }


def owner(kind: str, api_version: str = "extensions.agents.x-k8s.io/v1beta1") -> OwnerReference:
    """Return a controller reference to some object of ``kind``."""
    return controller_reference(kind, "owner", "owner-uid", api_version)


def sandbox_meta(
    labels: dict[str, str] | None = None, *owners: OwnerReference, name: str = "sb-1"
) -> ObjectMeta:
    """Return the metadata of the fixture Sandbox."""
    return ObjectMeta(
        name=name, namespace="ns", uid=UID, generation=1, labels=labels, owner_references=owners
    )


def pod_meta(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    *,
    is_tracked: bool = True,
) -> PodTemplateMetadata:
    """Return labels and annotations of the owned Pod of the fixture Sandbox."""
    tracking = {HASH_KEY: HASH} if is_tracked else {}
    return PodTemplateMetadata({**tracking, **(labels or {})}, annotations)


def pod(phase: str = "Running", **fields: Any) -> ObservedPod:
    """Return an observed Pod, owned and healthy unless said otherwise."""
    is_owned = fields.pop("is_owned", True)
    defaults: dict[str, Any] = {
        "phase": phase,
        "is_ready": True,
        "ips": ("10.244.0.5",),
        "node": "node-1",
        "scheduled": PodCondition("PodScheduled", "True", "", ""),
    }
    return ObservedPod(is_owned, state=PodState(**{**defaults, **fields}))


def seen(**fields: Any) -> Observation:
    """Return an observation of generation 1."""
    return Observation(**{"generation": 1, **fields})


def as_json(value: Any) -> Any:
    """Return a body as the server would read it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def merged(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386) to plain JSON data."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result

"""The objects that the load is made of, as small as a user would write them."""

from __future__ import annotations

from typing import Any

from lean_sandbox.kube.resources import (
    PODS,
    SANDBOXCLAIMS,
    SANDBOXES,
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
    Resource,
)
from lean_sandbox.model import names

MARK = "bench.lean-sandbox/run"
"""Label of the namespaces that a run makes."""
TEMPLATE = "t"
POOL = "p"

_POD_SPEC: dict[str, Any] = {
    "terminationGracePeriodSeconds": 1,
    "containers": [{"name": "main", "image": "busybox", "command": ["sleep", "inf"]}],
}


def namespace(name: str) -> dict[str, Any]:
    """Return a namespace of the bench."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {MARK: "bench"}},
    }


def template() -> dict[str, Any]:
    """Return the SandboxTemplate that pools are made from."""
    return _object(SANDBOXTEMPLATES, TEMPLATE, {"podTemplate": {"spec": _POD_SPEC}})


def pool(replicas: int) -> dict[str, Any]:
    """Return the SandboxWarmPool."""
    spec = {"replicas": replicas, "sandboxTemplateRef": {"name": TEMPLATE}}
    return _object(SANDBOXWARMPOOLS, POOL, spec)


def claim(name: str) -> dict[str, Any]:
    """Return a SandboxClaim on the pool."""
    return _object(SANDBOXCLAIMS, name, {"warmPoolRef": {"name": POOL}})


def sandbox(name: str, *, owner_uid: str = "") -> dict[str, Any]:
    """Return a Sandbox; with ``owner_uid`` a member of the pool of that uid."""
    made = _object(SANDBOXES, name, {"podTemplate": {"spec": _POD_SPEC}})
    if owner_uid:
        made["metadata"]["ownerReferences"] = [
            {
                "apiVersion": SANDBOXWARMPOOLS.api_version,
                "kind": names.SANDBOX_WARM_POOL_KIND,
                "name": POOL,
                "uid": owner_uid,
                "controller": True,
            }
        ]
    return made


def pod(name: str) -> dict[str, Any]:
    """Return the Pod of such a Sandbox, bare."""
    return _object(PODS, name, _POD_SPEC)


def _object(resource: Resource, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }

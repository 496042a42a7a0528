"""Objects of any kind that hold anything anywhere, as no schema would let in."""

from __future__ import annotations

from typing import Any

from lean_sandbox.watch.kind import Kind
from lean_sandbox.watch.resources.children import policy_kind, pvc_kind, service_kind
from lean_sandbox.watch.resources.extensions import claim_kind, pool_kind, template_kind
from lean_sandbox.watch.resources.pod import pod_kind
from lean_sandbox.watch.resources.sandbox import sandbox_kind
from tests.watch.hand import Hand

MADE: dict[str, Any] = {
    "pods": pod_kind,
    "services": service_kind,
    "pvcs": pvc_kind,
    "sandboxes": sandbox_kind,
    "claims": claim_kind,
    "templates": template_kind,
    "pools": pool_kind,
    "policies": policy_kind,
}


def hand_for(kind: str) -> Hand[Any]:
    """Return an empty store with its decoder."""
    made: Kind[Any] = MADE[kind]()
    return Hand(made)

"""The NetworkPolicy of a template, as tests make it and read it."""

from __future__ import annotations

from typing import Any

from tests.support.names import POLICIES
from tests.support.world import NS, World

Json = dict[str, Any]
NAME = "tpl-network-policy"
UNMANAGED: Json = {"networkPolicyManagement": "Unmanaged"}
RULES: Json = {
    "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}],
    "egress": [{"to": [{"ipBlock": {"cidr": "1.2.3.0/24"}}], "ports": [{"port": 443}]}],
}
ROUTER = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"}},
    "podSelector": {"matchLabels": {"app": "sandbox-router"}},
}


def policy(world: World, name: str = NAME) -> Json | None:
    """Return a NetworkPolicy, ``None`` when there is none."""
    return world.find(POLICIES, name)


def spec_of(world: World) -> Json:
    """Return the spec of the template's policy."""
    found = policy(world)
    assert found is not None
    spec: Json = found["spec"]
    return spec


def theirs(**metadata: Any) -> Json:
    """Return a policy that somebody else made under the template's name."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NAME, "namespace": NS, **metadata},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }


def errors(world: World) -> int:
    """Return how many reconciles over templates failed."""
    return world.controller.activity().errors["sandboxtemplate"]

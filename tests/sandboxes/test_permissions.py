"""What the controller must be allowed to do, and that it never asks for more."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.model.times import format_rfc3339
from tests.support.clock import EPOCH
from tests.support.world import CONTROLLER, NS, World, condition, open_world, pod_body, sandbox

Json = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
EVERYTHING = ["create", "delete", "get", "list", "patch", "update", "watch"]
# The published ClusterRole of the controller, without the Lease that leader election needs.
RULES: list[Json] = [
    {
        "apiGroups": [""],
        "resources": ["persistentvolumeclaims", "pods", "services"],
        "verbs": EVERYTHING,
    },
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": ["agents.x-k8s.io"], "resources": ["sandboxes"], "verbs": EVERYTHING},
    {
        "apiGroups": ["agents.x-k8s.io"],
        "resources": ["sandboxes/finalizers", "sandboxes/status"],
        "verbs": ["get", "patch", "update"],
    },
]
ADOPTABLE = {"agents.x-k8s.io/adoptable": "true"}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def grant(plane: ControlPlane, *, in_namespace: bool) -> None:
    """Take the controller's rights away and give it those of the rules, everywhere or in one."""
    plane.store.delete(f"clusterrolebindings.{GROUP}", "", "controller")
    prefix = "" if in_namespace else "Cluster"
    metadata: Json = {"name": "lean"} | ({"namespace": NS} if in_namespace else {})
    role = {"apiVersion": f"{GROUP}/v1", "kind": f"{prefix}Role", "metadata": metadata}
    plane.store.create({**role, "rules": RULES})
    *_, namespace, name = CONTROLLER.split(":")
    plane.store.create(
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": f"{prefix}RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": GROUP, "kind": f"{prefix}Role", "name": "lean"},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
        }
    )


def whole(name: str, **spec: Any) -> Json:
    """Return a Sandbox with everything that one can have."""
    claims = [{"metadata": {"name": "data"}, "spec": CLAIM}]
    return sandbox(name, spec={"service": True, "volumeClaimTemplates": claims, **spec})


async def live(world: World) -> None:
    """Take Sandboxes through every flow."""
    edit = {"spec": {"podTemplate": {"metadata": {"labels": {"team": "red"}}}}}
    await world.ready_sandbox(whole("sb-1"))
    await world.patch("sandboxes", "sb-1", edit)
    await world.delete("pods", "sb-1")
    await world.run_pod("sb-1")
    await world.patch("sandboxes", "sb-1", {"spec": {"operatingMode": "Suspended"}})
    await world.delete("pods", "sb-1")
    await world.patch("sandboxes", "sb-1", {"spec": {"operatingMode": "Running"}})
    await world.run_pod("sb-1")
    await world.patch("services", "sb-1", {"spec": {"selector": {"app": "x"}}})
    await world.patch("sandboxes", "sb-1", {"spec": {"service": False}})
    assert condition(world.get(), "Ready")["message"] == "Pod is Ready"
    world.plane.store.create(pod_body("sb-2", labels=ADOPTABLE))
    world.plane.store.create(_child("Service", "sb-2", {"clusterIP": "None"}))
    world.plane.store.create(_child("PersistentVolumeClaim", "data-sb-2", CLAIM))
    await world.create(whole("sb-2"))
    await world.run_pod("sb-2")
    assert condition(world.get("sb-2"), "Ready")["message"] == "Pod is Ready; Service Exists"
    for resource, name in (("pods", "sb-2"), ("services", "sb-2")):
        found = world.find(resource, name)
        assert found is not None
        assert found["metadata"]["ownerReferences"][0]["name"] == "sb-2"
    for name, policy in (("sb-3", "Retain"), ("sb-4", "Delete")):
        await world.ready_sandbox(whole(name))
        past = {"shutdownPolicy": policy, "shutdownTime": format_rfc3339(EPOCH)}
        await world.patch("sandboxes", name, {"spec": past})
    await world.advance(1.0)
    assert condition(world.get("sb-3"), "Ready")["reason"] == "SandboxExpired"
    assert world.find("sandboxes", "sb-4") is None
    await world.delete("sandboxes", "sb-1")
    await world.advance(60.0)


def _child(kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": NS, "labels": ADOPTABLE}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.case(150)
async def test_every_flow_gets_by_with_the_published_permissions() -> None:
    """Case 150: with exactly the published ClusterRole no request is forbidden."""
    async with open_world(prepare=lambda plane: grant(plane, in_namespace=False)) as world:
        await live(world)
        refused = world.plane.audit.codes(CONTROLLER, at_least=401)
        assert not {what for what in refused if what.startswith(("401", "403"))}
        assert {event["reason"] for event in world.events()} >= {"SandboxReady", "SandboxExpired"}


@pytest.mark.case(150)
async def test_for_chosen_namespaces_a_role_is_enough() -> None:
    """Case 150: told which namespaces to watch, the controller needs no right outside of them."""
    settings = Settings(sandbox_status_window=1.0, namespaces=(NS,))
    grants = lambda plane: grant(plane, in_namespace=True)  # noqa: E731 -- one line says it all
    async with open_world(settings, prepare=grants) as world:
        await live(world)
        refused = world.plane.audit.codes(CONTROLLER, at_least=401)
        assert not {what for what in refused if what.startswith(("401", "403"))}

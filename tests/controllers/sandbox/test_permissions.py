"""What the controller must be allowed to do, and that it never asks for more."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.local.controlplane import ControlPlane
from tests.support.builders import claim, pool, template
from tests.support.clock import FakeClock
from tests.support.names import CLAIMS, SANDBOXES
from tests.support.volumes import WHOLE
from tests.support.world import CONTROLLER, NS, open_world, sandbox

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


def grant(plane: ControlPlane, *, in_namespace: str = "", rules: list[Json] = RULES) -> None:
    """Take the controller's rights away and give it those of the rules, everywhere or in one."""
    if plane.store.find(f"clusterrolebindings.{GROUP}", "", "controller"):
        plane.store.delete(f"clusterrolebindings.{GROUP}", "", "controller")
    if in_namespace and not plane.store.find("namespaces", "", in_namespace):
        about = {"name": in_namespace}
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": about})
    prefix = "" if in_namespace else "Cluster"
    metadata: Json = {"name": f"lean-{len(rules)}"}
    metadata |= {"namespace": in_namespace} if in_namespace else {}
    role = {"apiVersion": f"{GROUP}/v1", "kind": f"{prefix}Role", "metadata": metadata}
    plane.store.create({**role, "rules": rules})
    *_, namespace, name = CONTROLLER.split(":")
    plane.store.create(
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": f"{prefix}RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": GROUP, "kind": f"{prefix}Role", "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
        }
    )


def all_but(*missing: str) -> list[Json]:
    """Return the rules of Sandboxes and claims without those for some resources."""
    kinds = ["sandboxes", "sandboxclaims", "sandboxtemplates", "sandboxwarmpools"]
    left = [
        name for name in (*RULES[0]["resources"], *kinds, "networkpolicies") if name not in missing
    ]
    groups = ["", "agents.x-k8s.io", "extensions.agents.x-k8s.io", "networking.k8s.io"]
    resources = [*left, *(f"{name}/status" for name in left)]
    return [{"apiGroups": groups, "resources": resources, "verbs": EVERYTHING}]


@pytest.mark.parametrize("missing", ["pods", "persistentvolumeclaims", "sandboxwarmpools", ""])
async def test_a_namespace_that_may_not_be_listed_does_not_hold_up_the_others(missing: str) -> None:
    """At a start; without a ``missing`` kind it is gone with its Role. No claim in it is judged."""
    settings = Settings(sandbox_status_window=1.0, namespaces=("gone", NS), extensions=True)

    def grants(plane: ControlPlane) -> None:
        grant(plane, in_namespace=NS, rules=all_but())
        if missing:
            grant(plane, in_namespace="gone", rules=all_but(missing))
            plane.store.create(claim(pool="unseen", metadata={"namespace": "gone"}))

    before = (template(), pool(), claim(), sandbox(spec=WHOLE))
    async with open_world(settings, prepare=grants, before=before, is_served=False) as world:
        await world.pass_time(20.0)
        made = (("persistentvolumeclaims", "data-sb-1"), ("pods", "sb-1"), ("sandboxes", "c"))
        assert [kind for kind, name in made if world.find(kind, name) is None] == []
        assert "in namespace 'gone'" in world.controller.problems[missing or "sandboxes"]
        assert world.controller.not_ready is None
        if missing in ("pods", "sandboxwarmpools"):
            assert "status" not in world.plane.store.get(CLAIMS, "gone", "c")


async def test_where_no_namespace_may_be_listed_the_controller_is_not_ready() -> None:
    """There is nothing to serve: somebody has forgotten the Roles."""
    settings = Settings(namespaces=("gone", NS))
    grants = lambda plane: grant(plane, in_namespace="other")  # noqa: E731 -- one line says it all
    async with open_world(settings, prepare=grants, is_served=False) as world:
        await world.pass_time(120.0)
        assert "allow verb 'list' on resource 'sandboxes" in (world.controller.not_ready or "")


async def test_a_namespace_whose_role_comes_late_is_served_once_all_in_it_is_known() -> None:
    """While its Sandboxes are listed and their Pods are not, nothing is made of that."""
    settings = Settings(sandbox_status_window=1.0, namespaces=("other", NS))
    grants = lambda plane: grant(plane, in_namespace="other")  # noqa: E731 -- one line says it all
    async with ControlPlane(clock=FakeClock()) as plane:
        async with open_world(plane=plane) as before:
            await before.ready_sandbox()
        plane.store.patch(SANDBOXES, NS, "sb-1", {"spec": {"operatingMode": "Suspended"}})
        async with open_world(settings, plane=plane, prepare=grants, is_served=False) as world:
            await world.pass_time(20.0)
            world.forget_requests()
            grant(plane, in_namespace=NS, rules=RULES[1:])
            await world.pass_time(60.0)
            assert set(world.controller.problems) == {"pods", "services"}
            assert world.writes() == {}
            grant(plane, in_namespace=NS)
            await world.pass_time(60.0)
            assert world.writes() == {"delete pods": 1, "patch sandboxes/status": 1}

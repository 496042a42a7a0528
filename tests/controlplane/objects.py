"""Objects of the tests on a real control plane, and what they wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.controlplane.scene import Scene, Spent

__all__ = ["all_ready", "condition", "extension", "fill", "filled", "sandbox"]

Json = dict[str, Any]


def sandbox(name: str = "sb", **spec: Any) -> Json:
    """Return a Sandbox of one container."""
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    return {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": name},
        "spec": {"podTemplate": template, **spec},
    }


def extension(kind: str, name: str, **spec: Any) -> Json:
    """Return an object of the extensions."""
    version = "extensions.agents.x-k8s.io/v1beta1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def condition(obj: Json, type_: str) -> str:
    """Return the status of a condition, empty when there is none."""
    found = obj.get("status", {}).get("conditions", [])
    return next((str(one["status"]) for one in found if one["type"] == type_), "")


def all_ready(count: int) -> Callable[[list[Json]], bool]:
    """Return the test that there are so many objects, and each one Ready."""
    return lambda found: (
        len(found) == count and all(condition(one, "Ready") == "True" for one in found)
    )


async def fill(scene: Scene, replicas: int) -> None:
    """Create a template ``t`` and a pool ``p``, and wait until the pool is full."""
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    await scene.create("sandboxtemplates", extension("SandboxTemplate", "t", podTemplate=template))
    pool = extension("SandboxWarmPool", "p", replicas=replicas, sandboxTemplateRef={"name": "t"})
    await scene.create("sandboxwarmpools", pool)
    await scene.until("sandboxes", all_ready(replicas))


async def filled(scene: Scene, replicas: int) -> Spent:
    """Fill a pool, and return what that cost once all is told."""
    await fill(scene, replicas)
    return await scene.spent()

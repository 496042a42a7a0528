"""A Sandbox from which no Pod can be made: what it has goes on, and ends when it is to end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.expiry import at, reason
from tests.support.world import NS, World, open_world, sandbox

Json = dict[str, Any]


def pod_spec(**spec: Any) -> Json:
    """Return the spec of a Sandbox with this in the spec of its Pod."""
    return {"podTemplate": {"spec": spec}}


async def store(world: World, spec: Json) -> None:
    """Change the spec of a Sandbox to what no definition need let in."""
    held = world.get()
    held["spec"] |= spec
    held["metadata"]["generation"] += 1
    world.plane.store.plant(held)
    await world.settle()


LARGE = {"podTemplate": {"metadata": {"annotations": {"a": "x" * 300_000}}}}
_PORTS = [{"containerPort": 1 + number} for number in range(1001)]
MANY_PORTS = pod_spec(containers=[{"name": "main", "ports": _PORTS}])
UNUSABLE = {
    "too large annotations": LARGE,
    "too many ports": MANY_PORTS,
    "containers that are none": pod_spec(containers={"name": "main"}),
    "a port that is none": pod_spec(
        containers=[{"name": "main", "ports": [{"containerPort": "x"}]}]
    ),
}
each_unusable = pytest.mark.parametrize("unusable", UNUSABLE.values(), ids=UNUSABLE)


@pytest.mark.parametrize(
    "spec",
    [{"operatingMode": "Suspended"}, {"shutdownTime": at(-10.0)}],
    ids=["suspended", "expired"],
)
@each_unusable
async def test_a_template_that_no_pod_can_have_does_not_keep_the_pod_alive(
    spec: Json, unusable: Json
) -> None:
    """Neither suspension nor expiry needs the template."""
    async with open_world() as world:
        await world.ready_sandbox()
        await store(world, unusable)
        assert reason(world) == "InvalidConfiguration"
        await store(world, spec)
        await world.advance(10.0)
        pod = world.find("pods")
        assert pod is None or "deletionTimestamp" in pod["metadata"]
        assert reason(world) in ("SandboxSuspended", "SandboxExpired")


async def test_what_cannot_be_read_as_a_time_does_not_keep_a_suspended_pod_alive() -> None:
    """When the Sandbox expires is not known; that its Pod is to go is."""
    async with open_world() as world:
        await world.ready_sandbox()
        await store(world, {"shutdownTime": "soon"})
        assert reason(world) == "InvalidConfiguration"
        await store(world, {"operatingMode": "Suspended"})
        assert "deletionTimestamp" in world.pod()["metadata"]
        await world.delete("pods", "sb-1")
        await store(world, {"operatingMode": "Running"})
        assert world.find("pods") is None
        assert reason(world) == "InvalidConfiguration"
        await store(world, {"shutdownTime": at(600.0)})
        assert world.find("pods") is not None


async def test_a_template_whose_ports_cannot_be_read_takes_none_from_the_service() -> None:
    """Its clients go on; the other children are looked after as before."""
    async with open_world() as world:
        ports = [{"name": "main", "image": "busybox", "ports": [{"containerPort": 80}]}]
        await world.ready_sandbox(sandbox(spec={"service": True}, pod_spec={"containers": ports}))
        before = world.plane.store.get("services", NS, "sb-1")["spec"]["ports"]
        await store(world, MANY_PORTS)
        await world.patch("services", "sb-1", {"spec": {"selector": {"a": "b"}}})
        after = world.plane.store.get("services", NS, "sb-1")["spec"]
        assert after["ports"] == before
        assert "a" not in after["selector"]
        await world.delete("services", "sb-1")
        await world.advance(10.0)
        assert world.find("services") is None
        assert reason(world) == "InvalidConfiguration"


@pytest.mark.parametrize("metadata", [LARGE["podTemplate"]["metadata"], {"labels": {"a": "b c"}}])
async def test_a_template_that_no_pod_can_have_does_not_freeze_the_status(metadata: Json) -> None:
    """Whoever refuses it: the status goes on telling of the Pod there is, and of its end."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.patch("sandboxes", "sb-1", {"spec": {"podTemplate": {"metadata": metadata}}})
        refused = reason(world)
        assert refused in ("InvalidConfiguration", "ReconcilerError")
        await world.run_pod(ips=("10.0.0.2",))
        await world.advance(10.0)
        assert world.get()["status"]["podIPs"] == ["10.0.0.2"]
        assert reason(world) == refused
        await world.delete("pods", "sb-1")
        await world.advance(10.0)
        assert "podIPs" not in world.get()["status"]

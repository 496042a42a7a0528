"""A controller that starts over Sandboxes of every kind finds its work done."""

from __future__ import annotations

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.support.clock import FakeClock
from tests.support.names import SANDBOXES
from tests.support.world import (
    World,
    condition,
    controlled_by,
    open_world,
    pod_body,
    pod_conditions,
    sandbox,
    tracking,
)

CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


async def every_kind(world: World) -> None:
    """Bring Sandboxes into every state in which nothing is left to do."""
    await world.ready_sandbox(sandbox("ready"))
    await world.ready_sandbox(
        sandbox("whole", spec={"service": True, "volumeClaimTemplates": [CLAIM]})
    )
    await world.ready_sandbox(sandbox("failed"))
    await world.pod_status("failed", phase="Failed", conditions=pod_conditions(ready=False))
    await world.ready_sandbox(sandbox("suspended"))
    await world.patch("sandboxes", "suspended", {"spec": {"operatingMode": "Suspended"}})
    await world.delete("pods", "suspended")
    await world.create(sandbox("unplaced"))
    await world.create(sandbox("invalid", pod_spec={"containers": []}))
    await world.ready_sandbox(sandbox("expired"))
    past = {"spec": {"shutdownTime": "2026-01-01T00:00:00Z"}}
    await world.patch("sandboxes", "expired", past)
    await world.advance(1.0)
    await world.delete("pods", "expired")
    await world.ready_sandbox(sandbox("many"))
    stored = world.get("many")
    twin = pod_body("twin", labels=tracking("many"), owners=(controlled_by(stored),))
    await world.create(twin)
    await world.advance(2.0)


@pytest.mark.case(23)
@pytest.mark.parametrize(
    "server",
    [
        pytest.param(LocalSettings(), id="tables"),
        pytest.param(LocalSettings(tables=False, partial_metadata=False), id="full objects only"),
    ],
)
async def test_a_restart_reads_the_lists_and_asks_for_nothing_more(server: LocalSettings) -> None:
    """Case 23: one list of each kind is all that a start over finished work costs, Events too."""
    async with ControlPlane(server, clock=FakeClock()) as plane:
        async with open_world(plane=plane) as world:
            await every_kind(world)
            before = {one["metadata"]["name"]: one for one in plane.store.list(SANDBOXES)}
            reasons = {name: condition(one, "Ready")["reason"] for name, one in before.items()}
            assert reasons == {
                "ready": "DependenciesReady",
                "whole": "DependenciesReady",
                "failed": "PodFailed",
                "suspended": "SandboxSuspended",
                "unplaced": "DependenciesNotReady",
                "invalid": "InvalidConfiguration",
                "expired": "SandboxExpired",
                "many": "MultiplePods",
            }
        plane.audit.reset()
        async with open_world(plane=plane) as world:
            # A Pod that the server refused is tried once more: the server may know better by now.
            assert world.writes(events=True) == {"create pods": 1, "create events": 1}
            asked = {what for what in world.asked() if what.split()[0] != "list"}
            assert asked == {"create pods", "get sandboxes"}
            assert len(world.requests("get", "sandboxes")) == 1
            after = {one["metadata"]["name"]: one for one in plane.store.list(SANDBOXES)}
            assert after == before
            await world.advance(60.0)
            assert len(world.requests("get", "pods")) == 0
            # And what happens from now on is seen.
            await world.run_pod("ready", ready=False)
            assert condition(world.get("ready"), "Ready")["status"] == "False"


@pytest.mark.case(14, 63)
async def test_what_happened_while_no_controller_ran_is_caught_up_with() -> None:
    """Case 14, 63: a Pod gone, a Pod ready, a Sandbox new or gone: the start sees to all."""
    async with ControlPlane(clock=FakeClock()) as plane:
        async with open_world(plane=plane) as world:
            await world.ready_sandbox(sandbox("loses-pod"))
            await world.create(sandbox("gets-ready"))
            await world.ready_sandbox(sandbox("suspends"))
            await world.ready_sandbox(sandbox("goes"))
            uid = world.pod("loses-pod")["metadata"]["uid"]
        plane.store.delete("pods", "ns", "loses-pod", grace_s=0)
        plane.store.delete(SANDBOXES, "ns", "goes")
        plane.store.create(sandbox("comes"))
        suspend = {"spec": {"operatingMode": "Suspended"}}
        plane.store.patch(SANDBOXES, "ns", "suspends", suspend)
        ready = {
            "phase": "Running",
            "podIPs": [{"ip": "10.0.0.9"}],
            "conditions": pod_conditions(ready=True),
        }
        plane.store.patch("pods", "ns", "gets-ready", {"status": ready}, subresource="status")
        async with open_world(plane=plane) as world:
            assert world.pod("loses-pod")["metadata"]["uid"] != uid
            assert condition(world.get("gets-ready"), "Ready")["status"] == "True"
            assert world.get("gets-ready")["status"]["podIPs"] == ["10.0.0.9"]
            assert world.pod("suspends")["metadata"]["deletionTimestamp"]
            assert world.find("sandboxes", "goes") is None
            assert world.find("pods", "comes") is not None
            await world.advance(1.0)
            assert condition(world.get("loses-pod"), "Ready")["status"] == "False"
            assert condition(world.get("comes"), "Ready")["status"] == "False"

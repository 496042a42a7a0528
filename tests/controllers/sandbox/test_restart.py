"""A controller that starts over Sandboxes of every kind finds its work done."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.support.clock import FakeClock
from tests.support.names import SANDBOXES
from tests.support.volumes import volume
from tests.support.world import (
    NS,
    World,
    condition,
    controlled_by,
    open_world,
    pod_body,
    pod_conditions,
    sandbox,
    tracking,
    write_pod_status,
)

PAST: dict[str, Any] = {"spec": {"shutdownTime": "2026-01-01T00:00:00Z"}}


async def every_kind(world: World) -> None:
    """Bring Sandboxes into every state in which nothing is left to do."""
    await world.ready_sandbox(sandbox("ready"))
    await world.ready_sandbox(
        sandbox("whole", spec={"service": True, "volumeClaimTemplates": [volume()]})
    )
    await world.ready_sandbox(sandbox("failed"))
    await world.pod_status("failed", phase="Failed", conditions=pod_conditions(ready=False))
    await world.ready_sandbox(sandbox("suspended"))
    await world.patch("sandboxes", "suspended", {"spec": {"operatingMode": "Suspended"}})
    await world.delete("pods", "suspended")
    await world.create(sandbox("unplaced"))
    await world.create(sandbox("invalid", pod_spec={"containers": []}))
    await world.ready_sandbox(sandbox("expired"))
    await world.patch("sandboxes", "expired", PAST)
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


async def test_a_status_of_an_older_generation_says_nothing_of_the_pod() -> None:
    """Resumed and suspended again while no controller ran: the Pod made in between is stopped."""
    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        async with open_world(plane=plane) as world:
            await world.ready_sandbox()
            await world.patch("sandboxes", "sb-1", {"spec": {"operatingMode": "Suspended"}})
            await world.delete("pods", "sb-1")
            assert condition(world.get(), "Suspended")["reason"] == "PodTerminated"
        for mode in ("Running", "Suspended"):
            plane.store.patch(SANDBOXES, NS, "sb-1", {"spec": {"operatingMode": mode}})
        # Without the label by which Pods are watched.
        plane.store.create(
            pod_body(owners=(controlled_by(plane.store.get(SANDBOXES, NS, "sb-1")),))
        )
        plane.audit.reset()
        async with open_world(plane=plane) as world:
            assert len(world.requests("delete", "pods")) == 1


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
        write_pod_status(plane, "gets-ready", ready)
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


async def test_a_timer_is_no_start() -> None:
    """What a status said before the start is believed once; a later reconcile looks for itself."""
    clock = FakeClock()
    async with ControlPlane(clock=FakeClock()) as plane:
        async with open_world(plane=plane, clock=clock) as world:
            spec = {"operatingMode": "Suspended", "shutdownTime": "2026-01-02T03:05:45Z"}
            await world.create(sandbox(spec=spec))
            assert told(plane) == "SandboxSuspended"
        plane.audit.reset()
        async with open_world(plane=plane, clock=clock) as world:
            assert world.requests("get", "pods") == []
            # The server, whose clock stands still, is asked for the time: the timer is early.
            clock.set_wall(-15.0)
            await world.advance(105.0)
            assert told(plane) == "SandboxSuspended"
            assert len(world.requests("get", "pods")) == 1


def dies_at_a_status(world: World, record: RequestRecord) -> None:
    """Kill a controller when it is answered that a status was written."""
    if record.resource == f"{SANDBOXES}/status":
        world.kill()


def told(plane: ControlPlane) -> str:
    """Return why the Sandbox is ready or not, by its status."""
    return str(condition(plane.store.get(SANDBOXES, NS, "sb-1"), "Ready")["reason"])


def hide(plane: ControlPlane) -> None:
    """Take the label from the Pod by which it is watched."""
    plane.store.patch("pods", NS, "sb-1", {"metadata": {"labels": None}})


@pytest.mark.case(119)
async def test_a_pod_of_which_no_status_has_told_yet_goes_at_expiry_whoever_sees_to_it() -> None:
    """Case 119: the mark is all that the next controller has to go by; no list shows the Pod."""
    async with ControlPlane(clock=FakeClock()) as plane:
        async with open_world(plane=plane, observer=dies_at_a_status) as world:
            await world.create(sandbox())
            assert world.find("pods")
            assert "status" not in world.get()
            await world.patch("sandboxes", "sb-1", PAST)
        assert told(plane) == "SandboxExpired"
        hide(plane)
        async with open_world(plane=plane) as world:
            assert world.find("pods") is None
            assert condition(world.get(), "Ready")["reason"] == "SandboxExpired"
            assert set(world.get()["status"]) == {"conditions"}


@pytest.mark.case(119, 129)
async def test_a_pod_whose_create_got_no_answer_goes_at_expiry_whoever_sees_to_it() -> None:
    """Case 129: the reconcile in which the time passes marks as well, and knows of no Pod."""
    clock = FakeClock()

    def time_passes() -> None:
        # Only the reading of the clock moves: no timer rings in the middle of a request.
        clock._elapsed += 60.0

    async with ControlPlane(clock=clock.elsewhere()) as plane:
        held = plane.hold_events("pods")
        async with open_world(plane=plane, clock=clock, observer=dies_at_a_status) as world:
            world.meanwhile("create", "pods", time_passes)
            plane.fail_next("create", "pods", 500, after=True)
            await world.create(sandbox(spec={"shutdownTime": "2026-01-02T03:05:05Z"}))
        assert told(plane) == "SandboxExpired"
        hide(plane)
        held.release()
        async with open_world(plane=plane, clock=clock) as world:
            assert world.find("pods") is None
            assert set(world.get()["status"]) == {"conditions"}


@pytest.mark.case(119, 126)
async def test_a_pod_made_since_an_expiry_goes_at_the_next() -> None:
    """Case 126: the status still tells of the first expiry, after which there was no Pod."""
    async with ControlPlane(clock=FakeClock()) as plane:
        async with open_world(plane=plane) as world:
            await world.create(sandbox(spec=PAST["spec"]))
        async with open_world(plane=plane) as world:
            plane.fail_next("patch", "sandboxes/status", 500, times=100)
            await world.patch("sandboxes", "sb-1", {"spec": {"shutdownTime": None}})
            assert world.find("pods")
        assert told(plane) == "SandboxExpired"
        plane.faults.clear()
        hide(plane)
        plane.store.patch(SANDBOXES, NS, "sb-1", PAST)
        async with open_world(plane=plane) as world:
            assert world.find("pods") is None
            assert condition(world.get(), "Ready")["observedGeneration"] == 3

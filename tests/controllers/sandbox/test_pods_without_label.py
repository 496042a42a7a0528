"""Pods that lost the label by which they are watched, and got it back."""

from __future__ import annotations

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.model.names import name_hash
from tests.support.clock import FakeClock
from tests.support.names import SANDBOXES
from tests.support.world import (
    HASH_LABEL,
    NS,
    World,
    condition,
    controlled_by,
    open_world,
    pod_body,
    tracking,
)


def relabel(world: World) -> None:
    """Give the Pod its label back, as whoever took it away."""
    world.plane.store.patch("pods", NS, "sb-1", {"metadata": {"labels": tracking()}})


async def test_a_pod_that_a_get_finds_labelled_again_is_known_from_then_on() -> None:
    """What happens to it from then on the watch shows: its end costs no GET of another one."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.meanwhile("get", "pods", lambda: relabel(world))
        world.forget_requests()
        await world.patch("pods", "sb-1", {"metadata": {"labels": {HASH_LABEL: None}}})
        assert world.asked()["get pods"] == 1
        assert world.pod()["metadata"]["labels"][HASH_LABEL] == name_hash("sb-1")
        assert world.asked()["patch pods"] == 0
        world.forget_requests()
        await world.delete("pods", "sb-1", grace_s=30)
        await world.delete("pods", "sb-1")
        assert world.asked()["create pods"] == 1
        assert world.asked()["get pods"] == 0
        await world.run_pod()
        assert condition(world.get(), "Ready")["status"] == "True"


async def test_a_suspended_sandbox_is_looked_at_for_a_pod_that_nobody_shows() -> None:
    """Not at a start, where its status is believed; but when it changes after ten minutes."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.patch("sandboxes", "sb-1", {"spec": {"operatingMode": "Suspended"}})
        await world.delete("pods", "sb-1")
        await world.advance(601.0)
        assert condition(world.get(), "Suspended")["reason"] == "PodTerminated"
        world.plane.store.create(pod_body(owners=(controlled_by(world.get()),)))
        await world.poke()
        await world.advance(60.0)
        assert world.find("pods") is None


async def test_a_start_looks_for_the_pod_of_a_sandbox_that_was_suspended_meanwhile() -> None:
    """Its status does not say that the Pod is gone, and no watch shows it: it ends all the same."""
    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        async with open_world(plane=plane) as world:
            await world.ready_sandbox()
        plane.store.patch("pods", NS, "sb-1", {"metadata": {"labels": {HASH_LABEL: None}}})
        plane.store.patch(SANDBOXES, NS, "sb-1", {"spec": {"operatingMode": "Suspended"}})
        async with open_world(plane=plane) as world:
            await world.advance(3.0)
            assert "deletionTimestamp" in world.pod()["metadata"]
            await world.delete("pods", "sb-1")
            await world.advance(3.0)
            assert condition(world.get(), "Suspended")["reason"] == "PodTerminated"

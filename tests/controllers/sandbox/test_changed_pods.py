"""Changes of a child that the Sandbox has to notice."""

from __future__ import annotations

from typing import Any

from tests.support.world import condition, open_world, pod_body, sandbox, tracking

Json = dict[str, Any]
LEAVE = {"metadata": {"labels": {"agents.x-k8s.io/adoptable": "true"}}}


async def test_leave_to_adopt_a_watched_pod_is_noticed() -> None:
    """As it is for a Service: its user mends what Ready complains of, and waits."""
    async with open_world() as world:
        world.plane.store.create(pod_body("sb-1", labels=tracking("another")))
        await world.create(sandbox())
        await world.advance(400.0)
        await world.patch("pods", "sb-1", LEAVE)
        await world.advance(10.0)
        assert condition(world.get(), "Ready")["reason"] != "ReconcilerError"


async def test_a_ready_pod_that_loses_its_address() -> None:
    """The row says <none>: the event passes, and nobody fetches the Pod."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.pod_status(podIPs=None, podIP=None)
        await world.advance(60.0)
        assert "podIPs" not in world.get()["status"]
        assert condition(world.get(), "Ready")["status"] == "False"

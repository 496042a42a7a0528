"""What a policy refuses to write of a Sandbox or its Pod does not keep that Pod alive."""

from __future__ import annotations

from tests.support.names import POD_NAME
from tests.support.refusals import BY_POLICY
from tests.support.suspension import IS_SUSPENDED, state, suspend
from tests.support.world import HASH_LABEL, open_world


async def test_a_pod_goes_although_the_label_it_lost_is_refused() -> None:
    """A policy lets nobody write to it: it is deleted all the same, and its end is found."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.plane.fail_next("patch", "pods", 422, times=1000, body=BY_POLICY)
        await world.patch("pods", "sb-1", {"metadata": {"labels": {HASH_LABEL: None}}})
        await suspend(world)
        assert "deletionTimestamp" in world.pod()["metadata"]
        await world.delete("pods", "sb-1")
        await world.advance(60.0)
        assert state(world) == IS_SUSPENDED
        assert world.writes()["delete pods"] == 1


async def test_a_pod_goes_although_its_sandbox_may_not_be_written() -> None:
    """An annotation that names no Pod is to be cleared, which a policy refuses until later."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.plane.fail_next("patch", "sandboxes", 422, times=1000, body=BY_POLICY)
        named = {"metadata": {"annotations": {POD_NAME: "nobody"}}}
        await world.patch("sandboxes", "sb-1", named)
        await suspend(world)
        assert "deletionTimestamp" in world.pod()["metadata"]
        await world.delete("pods", "sb-1")
        world.plane.faults.clear()
        await world.advance(60.0)
        assert state(world) == IS_SUSPENDED
        assert POD_NAME not in (world.get()["metadata"].get("annotations") or {})
        assert world.writes()["delete pods"] == 1

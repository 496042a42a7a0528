"""A Sandbox that is resumed gets a new Pod, with what outlived the one before."""

from __future__ import annotations

import pytest

from tests.support.conditions import says, types
from tests.support.names import SANDBOXES
from tests.support.suspension import IS_SUSPENDED, resume, state, suspend
from tests.support.volumes import volume
from tests.support.world import (
    NS,
    condition,
    controlled_by,
    open_world,
    pod_body,
    pod_conditions,
    sandbox,
    tracking,
)


@pytest.mark.case(110, 111)
async def test_service_and_claims_outlive_the_pod_and_serve_the_next() -> None:
    """Case 110: Service and claims are untouched by suspension; resumed (111) they are used again.

    The new Pod is made from the template as it is now.
    """
    async with open_world() as world:
        await world.ready_sandbox(
            sandbox(spec={"service": True, "volumeClaimTemplates": [volume()]})
        )
        service = world.find("services")
        claim = world.find("persistentvolumeclaims", "data-sb-1")
        uid = world.pod()["metadata"]["uid"]
        await suspend(world)
        await world.delete("pods", "sb-1")
        assert says(world, "Suspended")[0] == "True"
        containers = [{"name": "main", "image": "busybox:2"}]
        template = {"podTemplate": {"spec": {"containers": containers}}}
        await world.patch("sandboxes", "sb-1", {"spec": template})
        assert world.find("pods") is None
        await world.advance(60.0)
        await resume(world)
        assert world.pod()["metadata"]["uid"] != uid
        assert world.pod()["spec"]["containers"][0]["image"] == "busybox:2"
        mounted = world.pod()["spec"]["volumes"][0]
        assert mounted["persistentVolumeClaim"] == {"claimName": "data-sb-1"}
        assert world.find("services") == service
        assert world.find("persistentvolumeclaims", "data-sb-1") == claim
        await world.run_pod(ips=("10.244.0.9",))
        suspended = condition(world.get(), "Suspended")
        assert (suspended["status"], suspended["reason"]) == ("False", "NotSuspended")
        assert suspended["message"] == "Sandbox is not suspended"
        assert suspended["lastTransitionTime"] == "2026-01-02T03:05:05Z"
        assert suspended["observedGeneration"] == world.get()["metadata"]["generation"] == 4
        assert says(world) == ("True", "DependenciesReady", "Pod is Ready; Service Exists")
        assert world.get()["status"]["podIPs"] == ["10.244.0.9"]


@pytest.mark.case(111)
async def test_a_resumption_is_told_at_once() -> None:
    """Case 111: that the Sandbox is no longer suspended waits for no window, unlike a launch."""
    async with open_world() as world:
        await world.ready_sandbox()
        await suspend(world)
        await world.delete("pods", "sb-1")
        await world.advance(60.0)
        await resume(world)
        suspended = condition(world.get(), "Suspended")
        assert (suspended["status"], suspended["reason"]) == ("False", "NotSuspended")
        assert suspended["lastTransitionTime"] == "2026-01-02T03:05:05Z"
        assert says(world)[1:] == (
            "DependenciesNotReady",
            "Pod exists with phase: Pending",
        )
        assert "PodScheduled" in types(world)


@pytest.mark.case(108, 111)
async def test_resumed_while_its_pod_terminates_a_sandbox_waits_for_the_end() -> None:
    """Case 111: no second Pod while the first is there; its end brings the new one."""
    async with open_world() as world:
        await world.ready_sandbox()
        uid = world.pod()["metadata"]["uid"]
        await suspend(world)
        world.forget_requests()
        await resume(world)
        assert world.pod()["metadata"]["uid"] == uid
        assert says(world, "Suspended")[:2] == ("False", "NotSuspended")
        # The old Pod still serves, but it is on its way out and so of no use.
        assert says(world) == ("False", "PodTerminating", "Pod is terminating")
        await world.pod_status(phase="Failed", conditions=pod_conditions(ready=False))
        assert says(world) == ("False", "PodTerminating", "Pod is terminating")
        assert types(world) == ["PodScheduled", "Ready", "Suspended"]
        assert not world.requests("create", "pods")
        await world.delete("pods", "sb-1")
        assert world.pod()["metadata"]["uid"] != uid
        assert len(world.requests("create", "pods")) == 1
        assert says(world)[:2] == ("False", "DependenciesNotReady")
        await world.run_pod()
        assert says(world)[0] == "True"
        assert not world.conflicts()


@pytest.mark.case(108, 111)
async def test_suspended_again_during_its_resumption_a_sandbox_loses_the_new_pod() -> None:
    """Case 108: each Pod is deleted once, however quickly the mind is changed."""
    async with open_world() as world:
        await world.ready_sandbox()
        for _ in range(3):
            await suspend(world)
            await world.delete("pods", "sb-1") if world.find("pods") else None
            assert state(world) == IS_SUSPENDED
            await resume(world)
            await world.bind()
        assert len(world.requests("delete", "pods")) == 3
        assert len(world.requests("create", "pods")) == 4
        assert not world.conflicts()


async def test_a_pod_that_another_process_has_made_after_a_resumption_is_not_deleted() -> None:
    """Its events may come before those of its Sandbox, which is fetched before the Pod goes."""
    async with open_world() as world:
        await world.ready_sandbox()
        await suspend(world)
        await world.delete("pods", "sb-1")
        held = world.plane.hold_events("sandboxes")
        running = {"spec": {"operatingMode": "Running"}}
        owner = controlled_by(world.plane.store.patch(SANDBOXES, NS, "sb-1", running))
        made = world.plane.store.create(pod_body(labels=tracking(), owners=(owner,)))
        await world.moments(300)
        held.release()
        await world.settle()
        assert world.pod()["metadata"]["uid"] == made["metadata"]["uid"]
        assert "deletionTimestamp" not in world.pod()["metadata"]

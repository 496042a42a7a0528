"""What a Sandbox reports of its Pod: readiness, its reasons, addresses, scheduling, the end."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.runtime.workers import ReconcileOutcome
from tests.support.conditions import says
from tests.support.refusals import BY_SCHEMA
from tests.support.world import condition, open_world, pod_conditions, running_status, sandbox

Json = dict[str, Any]


@pytest.mark.case(29, 30, 31, 35)
async def test_a_pod_that_does_not_serve_yet_is_described() -> None:
    """Case 29, 30, 31, 35: the message says how far the Pod is; none of it counts as ready."""
    async with open_world() as world:
        await world.create(sandbox())
        await world.advance(1.0)
        assert says(world)[2] == "Pod exists with phase: Pending"
        steps: tuple[tuple[Json, str], ...] = (
            (running_status(ready=False, ips=("10.0.0.1",)), "Pod is Running but not Ready"),
            (running_status(ready=True, ips=()), "Pod is Ready but has no podIPs yet"),
            ({"phase": "Unknown"}, "Pod exists with phase: Unknown"),
        )
        for status, message in steps:
            await world.pod_status(**status)
            await world.advance(1.0)
            assert says(world) == ("False", "DependenciesNotReady", message)


@pytest.mark.case(32, 42)
async def test_a_serving_pod_makes_its_sandbox_ready_with_addresses_and_node() -> None:
    """Case 32: Ready True, all addresses in the Pod's order, the node; the moment is the flip's."""
    async with open_world() as world:
        await world.create(sandbox())
        await world.advance(1.0)
        before = condition(world.get(), "Ready")["lastTransitionTime"]
        await world.run_pod(ready=False, ips=())
        await world.advance(5.0)
        unready = condition(world.get(), "Ready")
        assert unready["message"] == "Pod is Running but not Ready"
        assert unready["lastTransitionTime"] == before
        await world.run_pod(ips=("10.244.0.5", "fd00::5"))
        stored = world.get()
        assert says(world) == ("True", "DependenciesReady", "Pod is Ready")
        assert stored["status"]["podIPs"] == ["10.244.0.5", "fd00::5"]
        assert stored["status"]["nodeName"] == "node-1"
        assert condition(stored, "Ready")["lastTransitionTime"] > before
        scheduled = condition(stored, "PodScheduled")
        assert (scheduled["status"], scheduled["reason"]) == ("True", "PodScheduled")


@pytest.mark.case(34)
async def test_a_failed_service_shows_its_error_and_blocks_readiness() -> None:
    """Case 34: a wanted Service that cannot be made is an error even while the Pod is fine."""
    async with open_world() as world:
        world.plane.fail_next("create", "services", 500, times=1_000)
        await world.create(sandbox(spec={"service": True}))
        assert says(world) == ("False", "ReconcilerError", "Error seen: injected failure")
        await world.run_pod()
        assert says(world) == ("False", "ReconcilerError", "Error seen: injected failure")
        assert "service" not in world.get()["status"]
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]


@pytest.mark.case(36, 37, 38)
@pytest.mark.parametrize(
    ("phase", "reason", "message"),
    [
        ("Failed", "PodFailed", "Pod failed"),
        ("Succeeded", "PodSucceeded", "Pod completed successfully"),
    ],
)
async def test_a_finished_pod_is_reported_and_replaced_only_when_deleted(
    phase: str, reason: str, message: str
) -> None:
    """Case 36, 37, 38: the end is told at once and kept; deleting the Pod starts a new one."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.pod_status(phase=phase, conditions=pod_conditions(ready=False))
        stored = world.get()
        ended = condition(stored, "Finished")
        assert (ended["status"], ended["reason"], ended["message"]) == ("True", reason, message)
        assert says(world) == ("False", reason, message)
        world.forget_requests()
        await world.advance(600.0)
        assert not world.writes(events=True)
        old = world.pod()["metadata"]["uid"]
        await world.delete("pods", "sb-1")
        await world.advance(1.0)
        assert world.pod()["metadata"]["uid"] != old
        types = {one["type"] for one in world.get()["status"]["conditions"]}
        assert types == {"Suspended", "PodScheduled", "Ready"}
        assert "podIPs" not in world.get()["status"]
        assert says(world)[2] == "Pod exists with phase: Pending"


@pytest.mark.case(36)
async def test_a_quick_end_is_reported_without_waiting_for_the_window() -> None:
    """Case 36: a Pod that fails within the window of its launch is told at once."""
    async with open_world() as world:
        await world.create(sandbox())
        await world.bind()
        await world.pod_status(phase="Failed")
        assert says(world) == ("False", "PodFailed", "Pod failed")
        assert world.writes() == {"create pods": 1, "patch sandboxes/status": 1}


@pytest.mark.case(39, 40, 41)
async def test_the_schedulers_finding_is_mirrored() -> None:
    """Case 39, 40, 41: PodScheduled is the Pod's own, with a reason of ours where it has none."""
    unplaced: tuple[tuple[str, str, str], ...] = (
        ("Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.", "Unschedulable"),
        ("SchedulingGated", "Scheduling is blocked", "SchedulingGated"),
        ("", "", "PodSchedulingUnknown"),
    )
    async with open_world() as world:
        await world.create(sandbox())
        for reason, message, shown in unplaced:
            one = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
            await world.pod_status(conditions=[one])
            await world.advance(1.0)
            found = condition(world.get(), "PodScheduled")
            assert (found["status"], found["reason"], found["message"]) == ("False", shown, message)
            because = f" ({reason})" if reason else ""
            assert says(world)[2] == f"Pod exists with phase: Pending{because}"
        await world.run_pod()
        found = condition(world.get(), "PodScheduled")
        assert (found["status"], found["reason"], found["message"]) == ("True", "PodScheduled", "")


@pytest.mark.case(40)
async def test_a_pod_gated_at_its_creation_is_reported_so() -> None:
    """Case 40: the server says at once that gates hold the Pod; no later event repeats it."""
    async with open_world() as world:
        await world.create(sandbox(pod_spec={"schedulingGates": [{"name": "quota.io/wait"}]}))
        await world.advance(1.0)
        found = condition(world.get(), "PodScheduled")
        assert (found["status"], found["reason"]) == ("False", "SchedulingGated")
        assert found["message"] == "Scheduling is blocked due to non-empty scheduling gates"
        world.forget_requests()
        await world.advance(60.0)
        assert not world.asked()
        await world.patch("pods", "sb-1", {"spec": {"schedulingGates": None}})
        await world.pod_status(conditions=pod_conditions(ready=False)[:1])
        await world.advance(1.0)
        assert condition(world.get(), "PodScheduled")["status"] == "True"


@pytest.mark.case(42)
async def test_only_a_flip_moves_the_moment_of_a_condition() -> None:
    """Case 42: a new message or generation keeps the moment of Ready; a new status moves it."""
    async with open_world() as world:
        first = condition(await world.ready_sandbox(), "Ready")
        await world.advance(10.0)
        await world.patch("sandboxes", "sb-1", {"spec": {"service": True}})
        second = condition(world.get(), "Ready")
        assert second["message"] == "Pod is Ready; Service Exists"
        assert second["observedGeneration"] == 2
        assert second["lastTransitionTime"] == first["lastTransitionTime"]
        await world.run_pod(ready=False)
        third = condition(world.get(), "Ready")
        assert third["status"] == "False"
        assert third["lastTransitionTime"] > first["lastTransitionTime"]
        suspended = condition(world.get(), "Suspended")
        assert suspended["lastTransitionTime"] == first["lastTransitionTime"]


@pytest.mark.case(43)
async def test_a_node_alone_is_worth_no_write_before_readiness() -> None:
    """Case 43: while nothing else changes, the node of an unready Pod waits for the next write."""
    async with open_world() as world:
        await world.create(sandbox())
        await world.pod_status(conditions=pod_conditions(ready=False)[:1])
        await world.advance(1.0)
        assert condition(world.get(), "PodScheduled")["status"] == "True"
        world.forget_requests()
        # The binding changes the Pod's own PodScheduled condition in nothing that is reported.
        await world.bind()
        await world.advance(10.0)
        assert not world.writes()
        assert "nodeName" not in world.get()["status"]
        await world.run_pod()
        assert world.get()["status"]["nodeName"] == "node-1"
        assert world.writes() == {"patch sandboxes/status": 1}


@pytest.mark.case(44)
async def test_the_node_of_a_ready_sandbox_is_written_at_once() -> None:
    """Case 44: a client of a ready Sandbox relies on its node, so it never waits."""
    async with open_world() as world:
        await world.create(sandbox())
        await world.pod_status(**running_status(ready=True, ips=("10.0.0.1",)))
        assert says(world)[0] == "True"
        assert "nodeName" not in world.get()["status"]
        world.forget_requests()
        await world.bind()
        assert world.get()["status"]["nodeName"] == "node-1"
        assert world.writes() == {"patch sandboxes/status": 1}


@pytest.mark.case(45)
async def test_a_status_for_an_object_that_vanished_is_no_error() -> None:
    """Case 45: 404 on the status means that there is nobody left to tell."""
    async with open_world() as world:
        await world.create(sandbox())
        world.plane.fail_next("patch", "sandboxes/status", 404)
        await world.run_pod()
        assert world.reports[-1].outcome is ReconcileOutcome.SUCCESS
        await world.advance(1.0)
        assert len(world.requests("patch", "sandboxes")) == 1


@pytest.mark.case(47)
async def test_a_status_computed_from_an_older_version_is_still_taken() -> None:
    """Case 47: the patch names no version: a change made meanwhile costs no conflict."""
    async with open_world() as world:
        await world.create(sandbox())
        label = {"metadata": {"labels": {"team": "x"}}}
        world.meanwhile(
            "patch",
            "sandboxes/status",
            lambda: world.plane.store.patch("sandboxes.agents.x-k8s.io", "ns", "sb-1", label),
        )
        await world.run_pod()
        assert world.get()["metadata"]["labels"] == {"team": "x"}
        assert says(world)[0] == "True"
        assert not world.conflicts()
        assert len(world.requests("patch", "sandboxes")) == 1


@pytest.mark.case(46)
async def test_a_status_that_the_server_refuses_for_good_is_not_repeated() -> None:
    """Case 46: a 422 on the status (an object that breaks its own rules) starts no hot loop."""
    async with open_world() as world:
        await world.create(sandbox())
        world.plane.fail_next("patch", "sandboxes/status", 422, times=100, body=BY_SCHEMA)
        await world.run_pod()
        await world.advance(600.0)
        assert len(world.requests("patch", "sandboxes")) == 1
        assert world.events() != []
        assert "SandboxReady" not in [event["reason"] for event in world.events()]


async def test_lost_readiness_and_a_new_address_are_written_at_once() -> None:
    """What a client of a ready Sandbox relies on never waits for the status window."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.run_pod(ready=False)
        assert says(world) == ("False", "DependenciesNotReady", "Pod is Running but not Ready")
        await world.run_pod(ips=("10.244.0.6",))
        assert says(world)[0] == "True"
        assert world.get()["status"]["podIPs"] == ["10.244.0.6"]
        await world.run_pod(ips=("10.244.0.7",))
        assert world.get()["status"]["podIPs"] == ["10.244.0.7"]
        await world.pod_status(podIPs=None, podIP=None)
        assert says(world) == (
            "False",
            "DependenciesNotReady",
            "Pod is Ready but has no podIPs yet",
        )
        assert "podIPs" not in world.get()["status"]

"""The Events that a Sandbox's life leaves behind, as its user lists them."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.model.times import format_rfc3339
from tests.support.suspension import resume, suspend
from tests.support.world import NS, World, open_world, pod_body, pod_conditions, sandbox

Json = dict[str, Any]


def told(world: World) -> list[tuple[str, str, str]]:
    """Return type, reason and action of each Event in the order they were posted."""
    posted = sorted(world.events(), key=lambda event: int(event["metadata"]["resourceVersion"]))
    return [(event["type"], event["reason"], event["action"]) for event in posted]


def event(world: World, reason: str) -> Json:
    """Return the only Event with a reason."""
    (found,) = [one for one in world.events() if one["reason"] == reason]
    return found


CREATED = ("Normal", "SandboxPodCreated", "PodCreation")
READY = ("Normal", "SandboxReady", "Ready")


@pytest.mark.case(14, 32)
async def test_a_launch_tells_of_the_pod_and_of_readiness() -> None:
    """Case 14, 32: the Pod made and the Sandbox ready are told once each, about the Sandbox."""
    async with open_world() as world:
        stored = await world.ready_sandbox()
        assert told(world) == [CREATED, READY]
        created = event(world, "SandboxPodCreated")
        ready = event(world, "SandboxReady")
        assert created["note"] == 'Created Pod "sb-1"'
        assert created["related"]["uid"] == world.pod()["metadata"]["uid"]
        assert created["related"]["kind"] == "Pod"
        assert ready["note"] == "Sandbox is ready"
        for one in (created, ready):
            assert one["apiVersion"] == "events.k8s.io/v1"
            assert one["metadata"]["namespace"] == NS
            assert one["reportingController"] == "sandbox-controller"
            assert one["regarding"]["kind"] == "Sandbox"
            assert one["regarding"]["name"] == "sb-1"
            assert one["regarding"]["uid"] == stored["metadata"]["uid"]
        await world.poke()
        await world.advance(60.0)
        assert told(world) == [CREATED, READY]


@pytest.mark.case(27)
async def test_a_pod_that_could_not_be_made_is_a_warning() -> None:
    """Case 27: the error of the server is in the note, whether it is final or not."""
    async with open_world() as world:
        await world.create(sandbox(pod_spec={"containers": []}))
        failed = event(world, "SandboxPodCreateFailed")
        assert (failed["type"], failed["action"]) == ("Warning", "PodCreation")
        assert failed["note"].startswith('Failed to create Pod "sb-1": ')
        assert "spec.containers: Required value" in failed["note"]
        world.plane.fail_next("create", "pods", 403)
        await world.create(sandbox("sb-2"))
        notes = [one["note"] for one in world.events() if one["regarding"]["name"] == "sb-2"]
        assert notes == ['Failed to create Pod "sb-2": injected failure']


@pytest.mark.case(26, 48)
async def test_a_collision_with_an_existing_pod_is_no_failed_creation() -> None:
    """Case 26, 48: a create that finds the name taken is told neither as success nor as failure."""
    async with open_world() as world:
        await world.create(pod_body(labels={"agents.x-k8s.io/adoptable": "true"}))
        await world.create(pod_body("sb-2"))
        await world.create(sandbox())
        await world.create(sandbox("sb-2"))
        await world.run_pod()
        await world.advance(1.0)
        assert told(world) == [READY]


@pytest.mark.case(36, 37)
@pytest.mark.parametrize(
    ("phase", "wanted"),
    [
        ("Failed", ("Warning", "PodFailed", "PodCompletion")),
        ("Succeeded", ("Normal", "PodSucceeded", "PodCompletion")),
    ],
)
async def test_the_end_of_a_pod_is_told(phase: str, wanted: tuple[str, str, str]) -> None:
    """Case 36, 37: a failed Pod is a warning, a completed one is not."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.pod_status(phase=phase, conditions=pod_conditions(ready=False))
        assert told(world) == [CREATED, READY, wanted]


@pytest.mark.case(108, 109, 111)
async def test_suspending_and_resuming_are_told_once_each() -> None:
    """Case 108, 109, 111: suspending is told when taken up, not again when the Pod has gone."""
    async with open_world() as world:
        await world.ready_sandbox()
        await suspend(world)
        suspended = ("Normal", "SandboxSuspended", "Suspension")
        assert told(world) == [CREATED, READY, suspended]
        assert event(world, "SandboxSuspended")["note"] == "Sandbox is suspending"
        await world.delete("pods", "sb-1")
        await world.advance(1.0)
        assert told(world) == [CREATED, READY, suspended]
        await resume(world)
        await world.run_pod()
        counts = {
            one["reason"]: sum(
                (each.get("series") or {}).get("count", 1)
                for each in world.events()
                if each["reason"] == one["reason"]
            )
            for one in world.events()
        }
        # Another Pod is another object, so its Event is another; readiness is told a second time.
        assert counts == {"SandboxPodCreated": 2, "SandboxReady": 2, "SandboxSuspended": 1}


@pytest.mark.case(119, 120)
@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_expiry_is_told_of_sandboxes_that_stay(policy: str) -> None:
    """Case 119, 120: an expired Sandbox that is kept says so; one that is deleted does not."""
    async with open_world() as world:
        now = format_rfc3339(world.clock.now())
        spec = {"shutdownTime": now, "shutdownPolicy": policy}
        await world.create(sandbox(spec=spec))
        await world.advance(1.0)
        expired = ("Normal", "SandboxExpired", "Expiry")
        assert told(world) == ([expired] if policy == "Retain" else [])


@pytest.mark.case(46)
async def test_nothing_is_told_of_a_status_that_was_not_written() -> None:
    """Case 46: the Event follows the status: as long as the write fails, readiness is not told."""
    async with open_world() as world:
        await world.create(sandbox())
        world.plane.fail_next("patch", "sandboxes/status", 500)
        await world.run_pod()
        assert told(world) == [CREATED]
        await world.advance(0.005)
        assert told(world) == [CREATED, READY]


@pytest.mark.case(14)
async def test_events_can_be_switched_off() -> None:
    """Case 14: with the option no Event is posted; nothing else changes."""
    settings = Settings(sandbox_status_window=1.0, disable_sandbox_events=True)
    async with open_world(settings) as world:
        await world.ready_sandbox()
        assert world.events() == []
        assert not world.requests("create", "events")


@pytest.mark.case(14, 32)
async def test_events_that_the_server_refuses_disturb_nobody() -> None:
    """Case 14, 32: events are a courtesy: a launch that may not post them is as quick as ever."""
    async with open_world() as world:
        world.plane.fail_next("create", "events", 403, times=100)
        await world.ready_sandbox()
        assert world.writes() == {"create pods": 1, "patch sandboxes/status": 1}
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]

"""A Pod that is being deleted serves no more, and its last phase is not the end of the work.

A kubelet sets Failed (or Succeeded) on a Pod that was deleted or drained before it removes it.
"""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.metrics.scrape import scraping
from tests.support.clock import FakeClock
from tests.support.conditions import says, types
from tests.support.suspension import SUSPENDED
from tests.support.world import (
    World,
    controlled_by,
    open_world,
    pod_body,
    pod_conditions,
    running_status,
    sandbox,
    tracking,
    write_pod_status,
)

Json = dict[str, Any]

FORMS = [
    pytest.param(LocalSettings(), id="columns"),
    pytest.param(LocalSettings(tables=False), id="metadata"),
    pytest.param(LocalSettings(tables=False, partial_metadata=False), id="full"),
]
TERMINATING = ("False", "PodTerminating", "Pod is terminating")
LAST_PHASES = ["Failed", "Succeeded"]


async def last_phase(world: World, phase: str) -> None:
    """Report that the containers of the deleted Pod have stopped, as a kubelet does."""
    ended = {"exitCode": 137 if phase == "Failed" else 0, "reason": "Error"}
    containers = [
        {
            "name": "main",
            "image": "busybox",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": ended},
        }
    ]
    await world.pod_status(
        phase=phase, conditions=pod_conditions(ready=False), containerStatuses=containers
    )


@pytest.mark.parametrize("phase", LAST_PHASES)
@pytest.mark.parametrize("server", FORMS)
async def test_a_deleted_pod_is_replaced_and_never_finished(
    server: LocalSettings, phase: str
) -> None:
    """Not ready from the deletion on, Finished at no time, a new Pod once the old one is gone."""
    async with open_world(local=server) as world:
        await world.ready_sandbox()
        old = world.pod()["metadata"]["uid"]
        await world.delete("pods", "sb-1", grace_s=None)
        assert says(world) == TERMINATING
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]
        await world.advance(3.0)
        await last_phase(world, phase)
        assert says(world) == TERMINATING
        assert types(world) == ["PodScheduled", "Ready", "Suspended"]
        await world.delete("pods", "sb-1")
        assert world.pod()["metadata"]["uid"] != old
        assert says(world)[1] == "DependenciesNotReady"
        assert "podIPs" not in world.get()["status"]
        await world.run_pod(ips=("10.244.0.6",))
        assert says(world)[0] == "True"
        assert world.get()["status"]["podIPs"] == ["10.244.0.6"]
        found = await scraping(world)
    assert not found.find("agent_sandbox_finished_total")


@pytest.mark.parametrize("phase", LAST_PHASES)
async def test_a_deletion_learned_together_with_the_last_phase_is_no_end(phase: str) -> None:
    """A list or a GET shows both at once, whoever was away while they came to be."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.cut_watches()
        world.plane.store.delete("pods", "ns", "sb-1", grace_s=None)
        write_pod_status(world.plane, "sb-1", {"phase": phase})
        world.plane.compact()
        await world.recover()
        assert says(world) == TERMINATING
        assert types(world) == ["PodScheduled", "Ready", "Suspended"]


async def test_a_finished_pod_that_is_deleted_is_finished_no_more() -> None:
    """Its end was told; the deletion asks for a new Pod, however long a finalizer holds the old."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.patch("pods", "sb-1", {"metadata": {"finalizers": ["example.com/keep"]}})
        await world.pod_status(phase="Failed", conditions=pod_conditions(ready=False))
        assert says(world, "Finished")[1] == "PodFailed"
        await world.delete("pods", "sb-1")
        assert says(world) == TERMINATING
        assert types(world) == ["PodScheduled", "Ready", "Suspended"]


@pytest.mark.parametrize("phase", LAST_PHASES)
async def test_the_work_of_a_finished_pod_that_is_gone_is_done_again(phase: str) -> None:
    """Whoever deletes it, such as the collector of Pods that have ended: as by the reference."""
    async with open_world() as world:
        await world.ready_sandbox()
        old = world.pod()["metadata"]["uid"]
        await world.pod_status(phase=phase, conditions=pod_conditions(ready=False))
        assert says(world, "Finished")[1] == f"Pod{phase}"
        await world.delete("pods", "sb-1")
        assert world.pod()["metadata"]["uid"] != old
        assert "Finished" not in types(world)
        await world.run_pod()
        assert says(world)[0] == "True"


async def test_a_restart_over_a_terminating_pod_writes_nothing() -> None:
    """What was told before holds; the end of the Pod is waited for and not looked for."""
    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        async with open_world(plane=plane) as world:
            await world.ready_sandbox()
            await world.delete("pods", "sb-1", grace_s=None)
            await last_phase(world, "Failed")
            world.forget_requests()
        async with open_world(plane=plane) as world:
            await world.settle()
            assert not world.writes(events=True)
            assert says(world) == TERMINATING
            await world.delete("pods", "sb-1")
            assert "deletionTimestamp" not in world.pod()["metadata"]


async def test_an_address_that_comes_during_the_termination_is_told() -> None:
    """What is told of a terminating Pod is where it is, for as long as it is there."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.delete("pods", "sb-1", grace_s=None)
        await world.run_pod(ips=("10.244.0.9",))
        assert says(world) == TERMINATING
        assert world.get()["status"]["podIPs"] == ["10.244.0.9"]


async def test_a_pod_deleted_before_it_was_ready_is_told_of_too() -> None:
    """A launch that was interrupted says so at once and starts anew."""
    async with open_world() as world:
        await world.create(sandbox())
        await world.bind()
        await world.pod_status(**running_status(ready=False))
        await world.delete("pods", "sb-1", grace_s=None)
        assert says(world) == TERMINATING
        await world.delete("pods", "sb-1")
        await world.run_pod()
        assert says(world)[0] == "True"


async def test_the_address_of_a_pod_that_terminates_when_it_is_first_seen_is_told() -> None:
    """Another process has made it, and the Sandbox is suspended: one GET tells where it is."""
    async with open_world() as world:
        await world.create(sandbox(spec=SUSPENDED))
        held = world.plane.hold_events("pods")
        store = world.plane.store
        body = pod_body(labels=tracking(), owners=(controlled_by(world.get()),))
        body["spec"]["nodeName"] = "node-1"
        store.create(body)
        write_pod_status(world.plane, "sb-1", running_status())
        store.delete("pods", "ns", "sb-1", grace_s=30)
        world.forget_requests()
        held.release()
        await world.settle()
        assert says(world, "Suspended")[1] == "PodTerminating"
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]
        assert world.asked()["get pods"] == 1

"""A cold Sandbox: from its creation to Ready, and what that costs on the wire."""

from __future__ import annotations

import pytest

from tests.support.world import NS, condition, open_world, sandbox


@pytest.mark.case(14)
async def test_a_new_sandbox_gets_its_pod_and_an_unready_status_after_the_window() -> None:
    """Case 14: the Pod is made from the template; once the window has passed so is the status."""
    async with open_world() as world:
        made = await world.create(sandbox())
        pod = world.pod()
        assert pod["metadata"]["labels"] == {"agents.x-k8s.io/sandbox-name-hash": "ae84b5b2"}
        assert "annotations" not in pod["metadata"]
        assert pod["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "agents.x-k8s.io/v1beta1",
                "kind": "Sandbox",
                "name": "sb-1",
                "uid": made["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        assert [container["name"] for container in pod["spec"]["containers"]] == ["main"]
        assert world.find("services") is None
        assert "status" not in world.get()
        await world.advance(1.0)
        stored = world.get()
        # The pod-name annotation is no longer written by anyone (changes, v1.0.0).
        assert "annotations" not in stored["metadata"]
        assert [one["type"] for one in stored["status"]["conditions"]] == [
            "Suspended",
            "PodScheduled",
            "Ready",
        ]
        assert condition(stored, "Suspended")["reason"] == "NotSuspended"
        assert condition(stored, "PodScheduled")["reason"] == "PodSchedulingUnknown"
        ready = condition(stored, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "DependenciesNotReady")
        assert ready["message"] == "Pod exists with phase: Pending"
        assert all(one["observedGeneration"] == 1 for one in stored["status"]["conditions"])
        assert stored["status"]["selector"] == "agents.x-k8s.io/sandbox-name-hash=ae84b5b2"


@pytest.mark.case(23, 24, 32)
async def test_a_quick_launch_costs_one_post_and_one_status_patch() -> None:
    """Budget: POST Pod, one status PATCH, one GET each, no 409, two passes; then nothing at all."""
    async with open_world() as world:
        world.forget_requests()
        await world.create(sandbox())
        await world.bind()
        await world.pod_status(phase="Pending")
        await world.run_pod(ready=False, ips=("10.244.0.5", "fd00::5"))
        await world.run_pod(ips=("10.244.0.5", "fd00::5"))
        stored = world.get()
        assert condition(stored, "Ready")["status"] == "True"
        assert stored["status"]["podIPs"] == ["10.244.0.5", "fd00::5"]
        assert stored["status"]["nodeName"] == "node-1"
        assert world.asked() == {
            "create pods": 1,
            "patch sandboxes/status": 1,
            "get sandboxes": 1,
            "get pods": 1,
        }
        assert not world.conflicts()
        assert len(world.reports) == 2
        world.forget_requests()
        await world.advance(60.0)
        assert not world.asked(events=True)
        assert len(condition_types(world.get())) == 3
        assert NS == "ns"


def condition_types(obj: dict[str, object]) -> list[str]:
    """Return the types of the conditions in their order."""
    status = obj["status"]
    assert isinstance(status, dict)
    return [one["type"] for one in status["conditions"]]

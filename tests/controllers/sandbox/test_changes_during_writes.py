"""Changes that arrive while a reconcile is under way: whoever is late, the end is the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.names import SANDBOXES
from tests.support.suspension import SUSPEND
from tests.support.world import (
    HASH_LABEL,
    NS,
    World,
    condition,
    open_world,
    pod_conditions,
    running_status,
    sandbox,
    tracking,
    write_pod_status,
)

GOING = {"metadata": {"finalizers": ["example.com/wait"]}}


def container_status(name: str) -> dict[str, Any]:
    """Return the status of a container."""
    return {"name": name, "image": "busybox", "imageID": "", "restartCount": 0}


def change(world: World, patch: dict[str, Any]) -> None:
    """Change the Sandbox as a user does, without waiting for the controller."""
    world.plane.store.patch(SANDBOXES, NS, "sb-1", patch)


@pytest.mark.case(109, 112)
async def test_a_sandbox_suspended_while_its_pod_is_about_to_be_made_gets_none() -> None:
    """Case 109, 112: what is read right before a create outweighs what the reconcile began with."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.forget_requests()
        world.meanwhile("get", "sandboxes", lambda: change(world, SUSPEND))
        await world.delete("pods", "sb-1")
        await world.advance(1.0)
        assert world.find("pods") is None
        assert not world.requests("create", "pods")
        suspended = condition(world.get(), "Suspended")
        assert (suspended["status"], suspended["reason"]) == ("True", "PodTerminated")
        assert suspended["observedGeneration"] == 2


@pytest.mark.case(130)
async def test_a_sandbox_deleted_while_its_pod_is_about_to_be_made_is_left_alone() -> None:
    """Case 130: a deletion seen right before a create ends the reconcile without any write."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(metadata=GOING["metadata"]))
        world.forget_requests()
        store = world.plane.store
        world.meanwhile("get", "sandboxes", lambda: store.delete(SANDBOXES, NS, "sb-1"))
        await world.delete("pods", "sb-1")
        await world.advance(10.0)
        assert world.get()["metadata"]["deletionTimestamp"]
        assert world.find("pods") is None
        assert not world.writes(events=True)


@pytest.mark.case(64)
async def test_a_sandbox_replaced_while_its_pod_is_about_to_be_made_starts_afresh() -> None:
    """Case 64: a successor of the name gets a Pod and a whole status of its own."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))

        def replace() -> None:
            world.plane.store.delete(SANDBOXES, NS, "sb-1")
            world.plane.store.create(sandbox())

        world.meanwhile("get", "sandboxes", replace)
        await world.delete("pods", "sb-1")
        await world.advance(2.0)
        stored = world.get()
        assert world.pod()["metadata"]["ownerReferences"][0]["uid"] == stored["metadata"]["uid"]
        await world.run_pod()
        stored = world.get()
        assert condition(stored, "Ready")["status"] == "True"
        assert stored["status"]["selector"] == f"{HASH_LABEL}={tracking()[HASH_LABEL]}"
        assert "service" not in stored["status"]


@pytest.mark.case(59, 145)
async def test_a_label_lost_just_before_our_own_patch_comes_back() -> None:
    """Case 59, 145: our patch is newer, and still the Pod is out of the watch's sight."""
    async with open_world() as world:
        await world.ready_sandbox()
        bare = {"metadata": {"labels": {HASH_LABEL: None}}}
        store = world.plane.store
        world.meanwhile("patch", "pods", lambda: store.patch("pods", NS, "sb-1", bare))
        template = {"spec": {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}}
        await world.patch("sandboxes", "sb-1", template)
        assert world.pod()["metadata"]["labels"] == {"a": "b", **tracking()}
        await world.run_pod(ready=False)
        assert condition(world.get(), "Ready")["status"] == "False"


@pytest.mark.case(42, 116)
async def test_a_pod_that_changes_while_its_status_is_being_written_is_told_next() -> None:
    """Case 42, 116: the write that was overtaken is followed by one that tells the truth."""
    async with open_world() as world:
        await world.create(sandbox())
        stopped = {**container_status("main"), "ready": False, "state": {"running": {}}}
        status = {"conditions": pod_conditions(ready=False), "containerStatuses": [stopped]}
        world.meanwhile(
            "patch", "sandboxes/status", lambda: write_pod_status(world.plane, "sb-1", status)
        )
        await world.run_pod()
        await world.advance(1.0)
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["message"]) == ("False", "Pod is Running but not Ready")


async def test_a_pod_that_a_list_shows_before_its_create_is_answered_is_known() -> None:
    """The answer is older: it runs by then, which needs no GET."""
    async with open_world() as world:
        held = world.plane.hold("create", "pods", times=1)
        world.plane.store.create(sandbox())
        await world.until(lambda: held.waiting)
        write_pod_status(world.plane, "sb-1", running_status())
        await world.cut_watches()
        world.plane.compact()
        await world.recover()
        held.release()
        await world.settle()
        assert world.is_ready()
        assert world.asked()["get pods"] == 0

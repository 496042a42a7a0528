"""What is asked of a Sandbox, or happens to it, while it is reconciled."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane
from tests.support.expiry import dying, reason
from tests.support.names import SANDBOXES
from tests.support.refusals import BY_SCHEMA
from tests.support.suspension import SUSPEND
from tests.support.world import NS, condition, open_world, pod_body, sandbox, tracking

Json = dict[str, Any]
POD_NAME = "agents.x-k8s.io/pod-name"


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
@pytest.mark.parametrize("has_status", [True, False])
async def test_expiry_of_an_object_whose_status_is_refused_ends_its_pod(
    policy: str, *, has_status: bool
) -> None:
    """The Pod (and with Delete the object) goes although nothing can be said about it.

    Changes v1.0.6: an existing violator fails every status write; expiry must not spin.
    """
    async with open_world() as world:
        body = dying(60.0, policy=policy)
        if has_status:
            await world.ready_sandbox(body)
        world.plane.fail_next("patch", "sandboxes/status", 422, times=100_000, body=BY_SCHEMA)
        if not has_status:
            await world.create(body)
        world.forget_requests()
        # 60 s until expiry, and one tenth of a second of it.
        await world.advance(60.0)
        await world.advance(0.1)
        pod = world.find("pods")
        assert pod is None or pod["metadata"].get("deletionTimestamp")
        assert (world.find("sandboxes") is None) is (policy == "Delete")
        assert len(world.requests("patch", "sandboxes")) < 10


async def test_a_sandbox_whose_status_was_refused_once_is_told_of_its_end() -> None:
    """The server takes its statuses again, though the spec is the same: all is as if never."""
    async with open_world() as world:
        world.plane.fail_next("patch", "sandboxes/status", 422, body=BY_SCHEMA)
        await world.create(dying(60.0))
        await world.advance(2.0)
        await world.run_pod()
        assert reason(world) == "DependenciesReady"
        await world.advance(60.0)
        assert reason(world) == "SandboxExpired"


async def test_a_look_that_an_edit_overtakes_is_taken_again() -> None:
    """The answer is older than what the watch has shown: nothing is made of it."""
    async with open_world() as world:
        store = world.plane.store
        held = world.plane.hold("get", "sandboxes", times=1)
        store.create(sandbox())
        await world.until(lambda: held.waiting)
        store.patch(SANDBOXES, NS, "sb-1", SUSPEND)
        await world.moments(300)
        held.release()
        await world.settle()
        assert condition(world.get(), "Suspended")["reason"] == "PodTerminated"
        assert not world.requests("create", "pods")


async def test_a_suspension_during_the_clearing_of_an_annotation_makes_no_pod() -> None:
    """The spec that the response to our own write shows is not the one that was planned for."""

    def suspend_at_the_clearing(plane: ControlPlane) -> None:
        pending = [1]

        def act(target: Any) -> bool:
            if target.verb == "patch" and pending:
                pending.pop()
                plane.store.patch(SANDBOXES, NS, "sb-1", SUSPEND)
            return False

        plane.fail_next("patch", "sandboxes", 500, match=act)

    body = sandbox(metadata={"annotations": {POD_NAME: "none"}})
    async with open_world(before=(body,), prepare=suspend_at_the_clearing) as world:
        await world.advance(3.0)
        assert condition(world.get(), "Suspended")["reason"] == "PodTerminated"
        assert not world.requests("create", "pods")


async def test_a_generation_is_never_told_before_it_was_looked_at() -> None:
    """A write of ours that meets a newer spec does not have the old facts told as its own."""
    told: list[tuple[int, str, str]] = []
    async with open_world() as world:
        await world.ready_sandbox()
        store = world.plane.store

        def note(change: Any) -> None:
            if change.after is not None and "status" in change.after:
                found = condition(change.after, "Suspended")
                told.append((found["observedGeneration"], found["status"], found["reason"]))

        store.follow(note, (SANDBOXES,))
        world.meanwhile("patch", "sandboxes", lambda: store.patch(SANDBOXES, NS, "sb-1", SUSPEND))
        annotation = {"metadata": {"annotations": {POD_NAME: "elsewhere"}}}
        await world.patch("sandboxes", "sb-1", annotation)
        await world.advance(3.0)
        assert (2, "False", "NotSuspended") not in told, told


@pytest.mark.parametrize("mode", ["Running", "Suspended"])
async def test_the_end_of_another_sandboxes_pod_frees_the_name(mode: str) -> None:
    """Sandbox "other" has adopted a Pod called sb-1; its end matters to Sandbox sb-1."""
    async with open_world() as world:
        world.plane.store.create(pod_body("sb-1", labels=tracking("other")))
        annotation = {"annotations": {POD_NAME: "sb-1"}}
        await world.create(sandbox("other", metadata=annotation))
        assert world.pod("sb-1")["metadata"]["ownerReferences"][0]["name"] == "other"
        await world.create(sandbox("sb-1", spec={"operatingMode": mode}))
        await world.advance(200.0)
        await world.delete("sandboxes", "other")
        if world.find("pods"):
            await world.delete("pods", "sb-1")
        await world.advance(5.0)
        if mode == "Running":
            assert world.find("pods") is not None
        else:
            assert condition(world.get(), "Suspended")["status"] == "True"

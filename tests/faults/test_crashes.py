"""Controllers that die, start again, or run twice: the end is the same, and nothing is doubled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.model.times import format_rfc3339
from tests.support.clock import EPOCH, FakeClock
from tests.support.world import NS, World, condition, open_world, sandbox

Json = dict[str, Any]
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
WHOLE = {"service": True, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": CLAIM}]}
SOON = format_rfc3339(EPOCH + timedelta(seconds=100))
Story = Callable[[World], Awaitable[None]]


async def serve(world: World) -> None:
    """Let the Pod run, if it is there and does not yet."""
    pod = world.find("pods")
    if pod is not None and "deletionTimestamp" not in pod["metadata"]:
        await world.run_pod()


async def end(world: World) -> None:
    """Let a Pod that is being deleted come to its end, as a kubelet does."""
    pod = world.find("pods")
    if pod is not None and "deletionTimestamp" in pod["metadata"]:
        await world.delete("pods", "sb-1")


async def launch(world: World) -> None:
    """Take a Sandbox to Ready, from wherever an earlier attempt has left it."""
    if world.find("sandboxes") is None:
        await world.create(sandbox(spec=WHOLE))
    await world.advance(5.0)
    await serve(world)
    await world.advance(5.0)


async def suspend(world: World) -> None:
    """Take a Sandbox from Ready to suspended."""
    if world.get()["spec"]["operatingMode"] != "Suspended":
        await world.patch("sandboxes", "sb-1", {"spec": {"operatingMode": "Suspended"}})
    await world.advance(5.0)
    await end(world)
    await world.advance(5.0)


async def resume(world: World) -> None:
    """Take a Sandbox from Ready through suspension back to Ready."""
    if "resumed" not in world.get()["metadata"].get("labels", {}):
        await suspend(world)
        await world.patch(
            "sandboxes",
            "sb-1",
            {"metadata": {"labels": {"resumed": "x"}}, "spec": {"operatingMode": "Running"}},
        )
    await world.advance(5.0)
    await serve(world)
    await world.advance(5.0)


def expire(policy: str) -> Story:
    """Return the story of a Sandbox's end by its time."""

    async def story(world: World) -> None:
        found = world.find("sandboxes")
        if found is not None and "shutdownTime" not in found["spec"]:
            spec = {"shutdownTime": SOON, "shutdownPolicy": policy}
            await world.patch("sandboxes", "sb-1", {"spec": spec})
        await world.advance(120.0)
        await end(world)
        await world.advance(5.0)

    return story


async def relabel(world: World) -> None:
    """Change the template's labels and drop the Service."""
    edit = {"podTemplate": {"metadata": {"labels": {"team": "red"}}}, "service": False}
    await world.patch("sandboxes", "sb-1", {"spec": edit})
    await world.advance(5.0)


STORIES: dict[str, Story] = {
    "launch": launch,
    "suspend": suspend,
    "resume": resume,
    "expire-retain": expire("Retain"),
    "expire-delete": expire("Delete"),
    "relabel": relabel,
}
# More than any of the stories has requests, so that the last one is never cut short.
MOST = 16


def outcome(world: World) -> Json:
    """Return everything a user can see, without what differs from run to run."""
    shown: Json = {}
    for resource in ("sandboxes", "pods", "services", "persistentvolumeclaims"):
        qualified = "sandboxes.agents.x-k8s.io" if resource == "sandboxes" else resource
        for obj in world.plane.store.list(qualified, NS):
            metadata = obj["metadata"]
            shown[f"{resource}/{metadata['name']}"] = {
                "labels": metadata.get("labels"),
                "annotations": metadata.get("annotations"),
                "owners": [one["name"] for one in metadata.get("ownerReferences", [])],
                "status": told(obj["status"]) if resource == "sandboxes" else None,
            }
    return shown


def told(status: Json) -> Json:
    """Return a Sandbox's status without its times."""
    conditions = {
        one["type"]: (one["status"], one["reason"], one["message"], one["observedGeneration"])
        for one in status["conditions"]
    }
    return {**status, "conditions": conditions}


@asynccontextmanager
async def prepared(name: str) -> AsyncIterator[tuple[ControlPlane, FakeClock]]:
    """Start a control plane, with a Sandbox that is Ready unless its launch is the story."""
    clock = FakeClock()
    async with ControlPlane(clock=FakeClock()) as plane:
        if name != "launch":
            async with open_world(plane=plane, clock=clock) as world:
                await launch(world)
                world.kill()
        yield plane, clock


async def undisturbed(name: str) -> Json:
    """Return how a story ends when nothing goes wrong."""
    async with prepared(name) as (plane, clock), open_world(plane=plane, clock=clock) as world:
        await STORIES[name](world)
        return outcome(world)


@pytest.mark.parametrize("name", sorted(STORIES))
async def test_a_controller_that_dies_after_any_request_leaves_work_that_another_ends(
    name: str,
) -> None:
    """Killed after its k-th answer came and before anything was made of it, for every k.

    The next controller, which knows only what the server tells, comes to the very same end: every
    status told, no second Pod.
    """
    expected = await undisturbed(name)
    for k in range(1, MOST):
        is_dead = False
        async with prepared(name) as (plane, clock):
            left = [k]

            def count(world: World, record: RequestRecord, left: list[int] = left) -> None:
                if record.verb not in ("watch", "list") and "events" not in record.resource:
                    left[0] -= 1
                    if left[0] == 0:
                        world.kill()

            plane.audit.reset()
            async with open_world(plane=plane, clock=clock, observer=count) as world:
                await STORIES[name](world)
            is_dead = left[0] <= 0
            async with open_world(plane=plane, clock=clock) as world:
                await STORIES[name](world)
                assert outcome(world) == expected, f"killed after request {k}"
                created = world.requests("create", "pods")
                made = [entry for entry in created if entry.code == 201]
                assert len(made) == (1 if name in ("launch", "resume") else 0)
                world.kill()
        if not is_dead:
            return
    pytest.fail("the story has more requests than were cut short")


@pytest.mark.parametrize("name", sorted(STORIES))
async def test_two_controllers_at_once_come_to_the_same_end(name: str) -> None:
    """Two by mistake: they get in each other's way, and still make one Pod and the same status."""
    expected = await undisturbed(name)
    async with prepared(name) as (plane, clock):
        plane.audit.reset()
        async with (
            open_world(plane=plane, clock=clock) as one,
            open_world(plane=plane, clock=clock) as two,
        ):
            await STORIES[name](one)
            await two.settle()
            await one.advance(120.0)
            await two.settle()
            assert outcome(one) == expected
            made = [entry for entry in one.requests("create", "pods") if entry.code == 201]
            assert len(made) == (1 if name in ("launch", "resume") else 0)
            # They come to rest: neither answers the other's writes for ever.
            plane.audit.reset()
            await one.advance(600.0)
            await two.settle()
            assert sum(one.writes().values()) == 0


async def test_stopped_it_ends_the_passes_that_run_and_begins_no_more() -> None:
    """SIGTERM: the pass in the middle of its requests is finished, its status is written."""
    settings = Settings(sandbox_status_window=0.0)
    async with ControlPlane(clock=FakeClock()) as plane, open_world(settings, plane=plane) as world:
        stopping: list[str] = []

        def stop() -> None:
            stopping.append("now")
            plane.store.create(sandbox("late"))
            world.controller.stop()

        world.meanwhile("create", "pods", stop)
        plane.store.create(sandbox())
        await world.until(lambda: "status" in world.get())
        assert stopping
        assert condition(world.get(), "Ready")["reason"] == "DependenciesNotReady"
        for _ in range(200):
            await anyio.lowlevel.checkpoint()
        assert world.find("pods", "late") is None
        # What was not begun is the next controller's.
        async with open_world(plane=plane) as after:
            assert after.find("pods", "late") is not None


async def test_a_pass_that_does_not_end_in_its_grace_is_cut_off() -> None:
    """SIGTERM with a request that gets no answer: the controller ends when the grace is over."""
    settings = Settings(sandbox_status_window=0.0)
    async with open_world(settings) as world:
        world.plane.delay("create", "pods", 1e9)
        world.plane.store.create(sandbox())
        await world.until(lambda: world.controller.activity().in_flight)
        world.controller.stop()
        await world.clock.advance(19.0)
        assert world.controller.activity().in_flight
        await world.clock.advance(2.0)
        await world.until(lambda: not world.controller.activity().in_flight)
        assert [report.outcome.value for report in world.reports] == ["cancelled"]

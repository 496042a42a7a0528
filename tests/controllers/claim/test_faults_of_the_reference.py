"""What the reference controller is known to do wrong, and this one must not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio.lowlevel
import pytest

from tests.support.builders import claim
from tests.support.extensions import (
    bound_name,
    failed,
    member_names,
    open_claims,
    ready_of,
    run_members,
)
from tests.support.names import ANNOTATION, CLAIMS, SANDBOXES
from tests.support.world import NS, World, pod_conditions


def container(*, ready: bool) -> dict[str, Any]:
    """Return the status of a Pod's container, which runs."""
    about = {"name": "main", "image": "busybox", "imageID": "", "restartCount": 0}
    return {"containerStatuses": [{**about, "ready": ready, "state": {"running": {}}}]}


async def launch_step_by_step(world: World, name: str) -> None:
    """Take a Pod to Ready the way real ones go: every step is a write of its status."""
    ready = pod_conditions(ready=True)
    not_ready = pod_conditions(ready=False)
    started = {"type": "PodReadyToStartContainers", "status": "True"}
    ip = {"podIP": "10.244.0.5", "podIPs": [{"ip": "10.244.0.5"}]}
    await world.bind(name)
    for status in (
        {"phase": "Pending", "conditions": not_ready[:1]},
        {"phase": "Pending", "conditions": [*not_ready, {"type": "Initialized", "status": "True"}]},
        {"phase": "Pending", "conditions": [*not_ready, started]},
        {"phase": "Running", "conditions": [*not_ready, started], **ip, **container(ready=False)},
        {"phase": "Running", "conditions": [*ready, started], **ip, **container(ready=True)},
    ):
        await world.pod_status(name, **status)
        await world.advance(0.05)


async def test_a_burst_makes_no_replacement_too_many() -> None:
    """Twenty claims at once are replaced by twenty members, not by more."""
    names = tuple(f"m{number:02}" for number in range(25))
    async with open_claims(*names) as world:
        for number in range(20):
            world.plane.store.create(claim(f"c{number:02}"))
            if number % 5 == 0:
                await world.settle()
        await world.settle()
        await world.advance(30.0)
        assert world.writes()["create sandboxes"] == 20
        assert world.writes()["delete sandboxes"] == 0
        assert len(member_names(world)) == 25


async def test_no_write_meets_a_conflict_with_another_of_our_own() -> None:
    """Warm and cold claims at once, their Pods, their annotations, the refill: not one 409."""
    names = tuple(f"m{number:02}" for number in range(6))
    async with open_claims(*names) as world:
        claims = [f"c{number:02}" for number in range(9)]
        for name in claims:
            world.plane.store.create(claim(name))
        # The claims without a member wait for one, and then start cold.
        await world.advance(3.0)
        for name in claims:
            if ready_of(world, name)[0] != "True":
                await launch_step_by_step(world, bound_name(world, name))
        await world.advance(3.0)
        await run_members(world, *member_names(world))
        await world.advance(10.0)
        assert {ready_of(world, name)[0] for name in claims} == {"True"}
        assert not world.conflicts()
        assert [one for one in failed(world) if not one.startswith("404 get")] == []


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_claim_that_gets_another_sandbox_meets_no_conflict_of_our_own(
    *, is_slow: bool
) -> None:
    """Its status is guarded by a version, which the write of its annotations would change."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        await world.advance(3.0)
        first = bound_name(world)
        world.forget_requests()
        status = world.plane.hold("patch", "sandboxclaims/status", answers=False)
        if not is_slow:
            status.release()
        await world.delete(SANDBOXES, first)
        await world.advance(3.0)
        status.release()
        await world.advance(3.0)
        assert bound_name(world) not in ("", first)
        assert ready_of(world)[0] == "True"
        stored = world.plane.store.get(CLAIMS, NS, "c")
        assert stored["metadata"]["annotations"][ANNOTATION] == bound_name(world)
        assert not world.conflicts()
        assert world.asked()["get sandboxclaims"] <= 1


async def test_one_launch_is_told_once() -> None:
    """A Pod's five steps to Ready: one status of the Sandbox; its claim tells bound, then Ready."""
    async with open_claims() as world:
        await world.create(claim())
        await launch_step_by_step(world, "c")
        await world.advance(10.0)
        assert ready_of(world)[0] == "True"
        assert world.writes()["patch sandboxes/status"] == 1
        assert world.writes()["patch sandboxclaims/status"] == 2


async def test_a_pod_is_posted_once_though_no_watch_shows_it() -> None:
    """While the watch of Pods is down its Sandbox is reconciled again and again: one POST each."""
    names = [f"c{number}" for number in range(5)]
    async with open_claims() as world:
        await world.cut_watches()
        for verb in ("watch", "list"):
            world.plane.fail_next(verb, "pods", 503, times=8)
        for name in names:
            world.plane.store.create(claim(name))
        for turn in range(8):
            for name in names:
                if world.find("sandboxes", name) is not None:
                    spec = {"shutdownPolicy": ("Delete", "Retain")[turn % 2]}
                    world.plane.store.patch(SANDBOXES, NS, name, {"spec": spec})
            await world.clock.advance(0.25)
            for _ in range(200):
                await anyio.lowlevel.checkpoint()
        reconciles = Counter(report.item.key.name for report in world.reports)
        assert min(reconciles[name] for name in names) >= 3
        await world.recover()
        await world.advance(3.0)
        posted = world.requests("create", "pods")
        assert [one.code for one in posted] == [201] * len(names)
        await run_members(world, *names)
        await world.advance(3.0)
        assert {ready_of(world, name)[0] for name in names} == {"True"}

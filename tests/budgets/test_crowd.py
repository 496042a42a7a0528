"""Many Sandboxes at once, some of them hopeless: nobody waits for anybody else."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.local.request import Target
from tests.support.extensions import start
from tests.support.world import World, condition, open_world, sandbox

Json = dict[str, Any]
MANY = 200


def placed(name: str) -> Json:
    """Return a Sandbox whose Pod needs no scheduler."""
    return sandbox(name, pod_spec={"nodeName": "node-1"})


async def test_two_hundred_cold_sandboxes_cost_two_writes_each_and_no_conflict() -> None:
    """Budget: for each one POST, one status, one GET of Sandbox and Pod, and two reconciles."""
    async with open_world() as world:
        world.forget_requests()
        for number in range(MANY):
            world.plane.store.create(placed(f"sb-{number}"))
        await world.settle()
        assert world.asked() == {"get sandboxes": MANY, "create pods": MANY}
        for number in range(MANY):
            start(world, f"sb-{number}")
        await world.settle()
        assert all(world.is_ready(f"sb-{number}") for number in range(MANY))
        assert world.asked() == {
            "get sandboxes": MANY,
            "get pods": MANY,
            "create pods": MANY,
            "patch sandboxes/status": MANY,
        }
        assert not world.conflicts()
        assert len(world.reports) == 2 * MANY
        world.forget_requests()
        await world.advance(60.0)
        assert not world.asked()


async def test_pods_that_start_while_their_create_is_answered_cost_no_more() -> None:
    """Budget: events that overtake answers lead to two reconciles for each Sandbox all the same."""
    async with open_world() as world:
        world.forget_requests()
        names = [f"sb-{number}" for number in range(100)]
        for name in names:
            world.plane.store.create(placed(name))
        left = set(names)

        def kubelet() -> bool:
            for name in sorted(left):
                if world.find("pods", name) is not None:
                    start(world, name)
                    left.discard(name)
            return not left

        await world.until(kubelet)
        await world.settle()
        assert all(world.is_ready(name) for name in names)
        assert world.writes() == {
            "create pods": len(names),
            "patch sandboxes/status": len(names),
        }
        assert not world.conflicts()
        assert len(world.reports) <= 2 * len(names)


async def crowd_gets_ready(world: World) -> None:
    """Create fifty Sandboxes, let their Pods run, and see them Ready without the clock moving."""
    names = [f"good-{number}" for number in range(50)]
    for name in names:
        world.plane.store.create(placed(name))
    await world.settle()
    for name in names:
        start(world, name)
    await world.settle()
    assert all(world.is_ready(name) for name in names)


async def test_a_sandbox_that_the_server_refuses_delays_nobody_and_is_not_repeated() -> None:
    """Budget: a template refused with 422 costs one POST and one status, then an hour of nothing.

    The refusal is shown as InvalidConfiguration; a change of the template is tried at once.
    """
    async with open_world(Settings(sandbox_concurrent_workers=1)) as world:
        world.forget_requests()
        await world.create(sandbox("bad", pod_spec={"containers": []}))
        assert condition(world.get("bad"), "Ready")["reason"] == "InvalidConfiguration"
        assert world.writes() == {"create pods": 1, "patch sandboxes/status": 1}
        await crowd_gets_ready(world)
        world.forget_requests()
        await world.advance(3600.0)
        assert not world.asked()
        template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
        await world.patch("sandboxes", "bad", {"spec": {"podTemplate": template}})
        assert world.find("pods", "bad") is not None


@pytest.mark.parametrize("code", [500, 503])
async def test_a_create_that_always_fails_delays_nobody_and_is_not_hot_looped(code: int) -> None:
    """Budget: within an hour about twenty tries, each later than the last, and one status write.

    The pauses are 5 ms, doubled each time: 2^19 of them are 44 minutes, capped at 1000 s.
    """

    def is_bad(target: Target) -> bool:
        return target.verb == "create" and world.find("pods", "bad") is None and not crowd

    crowd: list[str] = []
    async with open_world(Settings(sandbox_concurrent_workers=1)) as world:
        world.plane.fail_next("create", "pods", code, times=10_000, match=is_bad)
        world.forget_requests()
        world.plane.store.create(sandbox("bad"))
        await world.settle()
        assert condition(world.get("bad"), "Ready")["reason"] == "ReconcilerError"
        crowd.append("here")
        await crowd_gets_ready(world)
        assert world.find("pods", "bad") is None
        crowd.clear()
        world.forget_requests()
        await world.advance(3600.0)
        tries = world.asked()["create pods"]
        assert 10 <= tries <= 25
        assert world.asked()["get sandboxes"] <= tries
        assert world.writes()["patch sandboxes/status"] <= 1

"""What claims and pools say while their Pods take long."""

from __future__ import annotations

from lean_sandbox.config.options import Settings
from tests.support.builders import claim, pool, template
from tests.support.extensions import get_claim, get_object
from tests.support.world import World, condition, open_world

COUNT = 100


def told(world: World, names: list[str]) -> list[str]:
    """Return what Ready says of those claims that say why they wait."""
    found = [condition(get_claim(world, name), "Ready") for name in names]
    return [one["message"] for one in found if one["reason"] == "DependenciesNotReady"]


async def test_a_hundred_claims_that_start_cold_say_why_they_wait() -> None:
    """Within three seconds all of them do, with the default windows."""
    names = [f"c{number}" for number in range(COUNT)]
    async with open_world(Settings(extensions=True)) as world:
        await world.create(template())
        await world.create(pool(replicas=0))
        for name in names:
            world.plane.store.create(claim(name))
        await world.advance(3.0)
        messages = told(world, names)
        assert len(messages) == COUNT
        assert all("Pod exists with phase: Pending" in one for one in messages)
        assert world.writes()["patch sandboxes/status"] == COUNT


async def test_a_new_pool_tells_its_selector_at_once() -> None:
    """With the number of its members; those that are ready follow when there are any."""
    async with open_world(Settings(extensions=True)) as world:
        await world.create(template())
        await world.create(pool(replicas=3))
        await world.advance(0.5)
        status = get_object(world, "sandboxwarmpools", "pool")["status"]
        assert status["selector"]
        assert status["replicas"] == 3
        assert world.writes()["patch sandboxwarmpools/status"] == 1

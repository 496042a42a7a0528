"""What companions ask for while nothing is to be done: their watches, and what the page names."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lean_sandbox.config.options import COMPANIONS
from tests.companions.support import PREFIX
from tests.support.builders import claim, placed, pool
from tests.support.clock import FakeClock
from tests.support.extensions import settings
from tests.support.world import NS, World, open_world, sandbox

Json = dict[str, Any]
_CORE = "agents.x-k8s.io/"
WISHES = {
    "SandboxWarmPool": {
        f"{PREFIX}rolling-update": "25%",
        f"{PREFIX}min-replicas": "3",
        f"{PREFIX}max-replicas": "9",
        f"{PREFIX}claim-defaults": '{"shutdownPolicy": "Delete", "unboundSeconds": 60}',
    },
    "Sandbox": {
        f"{_CORE}pod-failure-policy": "Recreate",
        f"{_CORE}idle-timeout-seconds": "86400",
    },
    "SandboxTemplate": {f"{_CORE}pod-failure-policy": "Recreate"},
}


async def at_rest(*companions: str, asks: bool) -> Counter[str]:
    """Return what is asked for in an hour in which nothing happens."""
    bodies = (placed(), pool(replicas=3), claim(), sandbox())
    for body in bodies:
        if asks:
            wishes = WISHES.get(body["kind"], {})
            body["metadata"]["annotations"] = wishes
    given = settings(companions=companions)
    async with open_world(given, clock=FakeClock(), one_time=True, before=bodies) as world:
        await run_pods(world)
        await world.advance(60.0)
        world.forget_requests()
        await world.advance(3600.0)
        return world.asked(events=True)


async def run_pods(world: World) -> None:
    """Take all Pods to Ready."""
    for _ in range(2):
        await world.advance(5.0)
        for pod in world.plane.store.list("pods", NS):
            if pod.get("status", {}).get("phase") != "Running":
                await world.run_pod(pod["metadata"]["name"])


async def test_all_companions_together_ask_for_nothing_where_nobody_asks_them() -> None:
    """An hour costs what it costs without them."""
    assert not await at_rest(*COMPANIONS, asks=False)
    assert not await at_rest(asks=True)


async def test_an_hour_of_objects_that_ask_for_everything_costs_the_lists_of_samples() -> None:
    """One LIST in ten minutes, as the server has no metrics."""
    asked = await at_rest(*COMPANIONS, asks=True)
    assert sum(asked.values()) <= 7
    assert all("list pods" in what for what in asked)

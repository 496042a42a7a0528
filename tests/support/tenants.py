"""Two tenants on one slow server: one with a burst, another with little to ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lean_sandbox.local.controlplane import ControlPlane
from tests.support.builders import member, placed, pool
from tests.support.extensions import open_pools
from tests.support.names import POOLS
from tests.support.world import NS, World, running_status, write_pod_status

Json = dict[str, Any]
BURST = "burst"
MEMBERS = 50


# How long the server takes for each request, however many it has, and for how long the burst is on
# its way when the single claim comes: all that may be worked on at once is by then.
_ANSWER_S = 0.01


def here(body: Json) -> Json:
    """Return an object in the namespace of the tenant with single claims."""
    return body


def inside(namespace: str, body: Json) -> Json:
    """Return an object in a namespace."""
    body["metadata"]["namespace"] = namespace
    return body


def there(body: Json) -> Json:
    """Return an object in the namespace of the tenant with the burst."""
    return inside(BURST, body)


def furnish(plane: ControlPlane) -> None:
    """Give both tenants a template and a pool with members."""
    store = plane.store
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BURST}})
    for at in (here, there):
        store.create(at(placed()))
        owner = store.create(at(pool(replicas=MEMBERS)))
        for number in range(MEMBERS):
            store.create(at(member(owner, placed(), f"m-{number}")))


def run_pods(world: World, namespace: str) -> None:
    """Let all Pods of a namespace run."""
    for pod in world.plane.store.list("pods", namespace):
        write_pod_status(world.plane, pod["metadata"]["name"], running_status(), namespace)


@asynccontextmanager
async def open_tenants() -> AsyncIterator[World]:
    """Open a world of both tenants, each with a full pool, on a server that takes its time."""
    async with open_pools(prepare=furnish) as world:
        for name in (NS, BURST):
            run_pods(world, name)
        await world.advance(3.0)
        ready = [one["status"]["readyReplicas"] for one in world.plane.store.list(POOLS)]
        assert ready == [MEMBERS, MEMBERS]
        world.plane.delay("*", "*", _ANSWER_S)
        yield world
        world.plane.delay("*", "*", 0.0)


async def step(world: World) -> None:
    """Let the controller do all that it can at this moment, then let one answer's time pass."""
    before = None
    quiet = 0
    while quiet < 20:
        await world.moments(1)
        now = (world.plane.audit.total, world.controller.activity())
        quiet = quiet + 1 if now == before else 0
        before = now
    await world.clock.advance(_ANSWER_S)

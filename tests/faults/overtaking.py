"""What somebody does while the controller waits for an answer, and answers that come late."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from lean_sandbox.local.http.faults import HeldRequests
from tests.support.volumes import volume
from tests.support.world import NS, World, condition, pod_conditions, running_status, sandbox

Json = dict[str, Any]
Act = Callable[[World], object]


def patch(resource: str, name: str, body: Json, subresource: str = "") -> Act:
    """Return a change of an object by somebody else."""
    return lambda world: world.plane.store.patch(resource, NS, name, body, subresource=subresource)


def create(*objects: Json) -> Act:
    """Return the creation of objects by somebody else."""

    def act(world: World) -> None:
        for one in objects:
            world.plane.store.create(one)

    return act


def hold_and_create(plural: str, *objects: Json) -> Act:
    """Return a creation whose events of one kind come only after everything else."""

    def act(world: World) -> None:
        world.plane.hold_events(plural)
        create(*objects)(world)

    return act


def is_ready(name: str = "sb-1", status: str = "True") -> Act:
    """Return the check of a Sandbox's Ready."""
    return lambda world: (
        "status" in world.get(name) and condition(world.get(name), "Ready")["status"] == status
    )


async def pending(world: World) -> None:
    """Begin with a Sandbox whose Pod is scheduled."""
    await world.create(sandbox())
    await world.bind()


async def ready(world: World) -> None:
    """Begin with a Ready Sandbox with a Service."""
    await world.ready_sandbox(sandbox(spec={"service": True}))
    await world.advance(3.0)


async def nothing(_: World) -> None:
    """Begin with nothing but the pool and its member."""


async def another_volume(world: World) -> None:
    """Begin with the claims for volumes watched, because another Sandbox has one."""
    other = with_volume()
    other["metadata"]["name"] = "sb-0"
    await world.create(other)


async def refused_status(world: World) -> None:
    """Begin so that the status of the next claim meets a conflict, upon which it is fetched."""
    world.plane.fail_next("patch", "sandboxclaims/status", 409)


def with_volume() -> Json:
    """Return a Sandbox that wants a volume."""
    return sandbox(spec={"volumeClaimTemplates": [volume()]})


def has_adopted(world: World) -> bool:
    """Tell whether the Sandbox has its claim for a volume, and its Pod."""
    found = world.find("persistentvolumeclaims", "data-sb-1")
    assert found is not None
    owners = [ref["name"] for ref in found["metadata"].get("ownerReferences", ())]
    return owners == ["sb-1"] and world.find("pods") is not None


RUNNING = {"status": running_status()}
UNREADY = {"status": running_status(ready=False)}
LOST = {"status": {"conditions": pod_conditions(ready=False)}}
DRIFTED = {"spec": {"selector": {"app": "theirs"}}}


async def asked(world: World, held: HeldRequests) -> None:
    """Wait until the controller fetches, which some kinds wait a little with."""
    for _ in range(40):
        await world.moments(50)
        if held.waiting:
            return
        await world.clock.advance(0.25)
    raise AssertionError(f"never fetched:\n  {world.explain()}")


@asynccontextmanager
async def overtaken(
    world: World, relevant: Act, plural: str, verb: str = "get"
) -> AsyncIterator[None]:
    """Hold the answer to what a change leads to, until the block is over."""
    held = world.plane.hold(verb, plural, times=1)
    relevant(world)
    await asked(world, held)
    yield
    held.release()
    await world.settle()

"""A crowd of claims on a slow server: more than it answers at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from lean_sandbox.local.controlplane import ControlPlane
from tests.support.builders import claim, placed, pool
from tests.support.extensions import add_member, is_ready, open_pools
from tests.support.names import CLAIMS
from tests.support.world import World, running_status, write_pod_status

Json = dict[str, Any]
MEMBERS = 96
CROWD = 90


# How long the server takes for each request: the crowd is served after some five seconds.
ANSWER_S = 0.8
VERBS = ("get", "create", "patch", "delete")


def furnish(plane: ControlPlane, first: Json) -> None:
    """Create a template, a pool and its members; ``first``: what ``m-0`` asks for besides."""
    plane.store.create(placed())
    plane.store.create(pool(replicas=MEMBERS))
    add_member(plane, "m-0", change=lambda body: body["spec"].update(first))
    for number in range(1, MEMBERS):
        add_member(plane, f"m-{number}")


@asynccontextmanager
async def crowded(*, member: Json | None = None, **first: Any) -> AsyncIterator[World]:
    """Open a world with a full pool on a slow server, and create the claims, ``c-0`` first.

    ``first`` is what the spec of ``c-0`` says besides its pool, ``member`` what that of ``m-0``
    says besides its template.
    """
    async with open_pools(prepare=lambda plane: furnish(plane, member or {})) as world:
        for number in range(MEMBERS):
            write_pod_status(world.plane, f"m-{number}", running_status())
        await world.advance(3.0)
        world.forget_requests()
        for verb in VERBS:
            world.plane.delay(verb, "*", ANSWER_S)
        for number in range(CROWD):
            world.plane.store.create(claim(f"c-{number}", **({} if number else first)))
        yield world
        for verb in VERBS:
            world.plane.delay(verb, "*", 0.0)


def number_ready(world: World) -> int:
    """Return how many claims are Ready."""
    return sum(is_ready(world, one["metadata"]["name"]) for one in world.plane.store.list(CLAIMS))


async def seconds_until(world: World, is_so: Callable[[], bool]) -> float:
    """Let time pass until something is so; return how much."""
    began_s = world.clock.monotonic()
    while not is_so():
        assert world.clock.monotonic() - began_s < 60.0
        await world.moments(40)
        await world.clock.advance(ANSWER_S / 2)
    return world.clock.monotonic() - began_s

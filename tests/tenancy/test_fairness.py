"""One tenant's burst delays another tenant's single claim by a few requests, however long it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.builders import claim, placed, pool
from tests.support.extensions import is_ready, member_names, open_pools
from tests.support.names import SANDBOXES, TEMPLATES
from tests.support.tenants import BURST, MEMBERS, inside, open_tenants, run_pods, step, there
from tests.support.world import World, sandbox

Json = dict[str, Any]

MANY = 1000
# More than the controller has requests and reconciles for.
MANY_THAT_HANG = 300
VERBS = ("get", "create", "patch", "delete")
_UNDER_WAY_S = 0.5
# Three requests make a claim Ready. Beside a burst each waits for one that is answered first.
_MOST_TIMES = 2.001


async def time_of_claim(world: World, name: str) -> float:
    """Make a single claim; return after how long it was Ready."""
    world.plane.store.create(claim(name))
    began_s = world.clock.monotonic()
    while not is_ready(world, name):
        await step(world)
    return world.clock.monotonic() - began_s


bursts = pytest.mark.parametrize(
    "make",
    [
        pytest.param(claim, id="claims of a pool with members"),
        pytest.param(partial(claim, pool="nope"), id="claims of no pool"),
        pytest.param(sandbox, id="Sandboxes"),
    ],
)


async def times_as_long(world: World, make: Callable[[str], Json], many: int) -> float:
    """Make a burst, and a single claim while it is under way; compare that with one before."""
    quiet_s = await time_of_claim(world, "quiet")
    for number in range(many):
        world.plane.store.create(there(make(f"burst-{number}")))
    until_s = world.clock.monotonic() + _UNDER_WAY_S
    while world.clock.monotonic() < until_s:
        await step(world)
    return await time_of_claim(world, "single") / quiet_s


@bursts
async def test_a_burst_delays_another_tenants_claim_by_a_few_requests(
    make: Callable[[str], Json],
) -> None:
    """A single claim takes at most twice as long beside 1,000 objects of another tenant."""
    async with open_tenants() as world:
        assert await times_as_long(world, make, MANY) <= _MOST_TIMES


@bursts
async def test_requests_of_a_burst_that_hang_delay_nobody_else(make: Callable[[str], Json]) -> None:
    """An admission webhook for one tenant's objects that never answers holds up that tenant."""
    async with open_tenants() as world:
        held = world.plane.hold("*", "*", match=lambda target: target.namespace == BURST)
        assert await times_as_long(world, make, MANY_THAT_HANG) <= _MOST_TIMES
        assert held.waiting
        held.release()


async def test_a_pool_whose_creates_hang_keeps_no_other_pool_from_its_size() -> None:
    """Pools are reconciled one by one, but for one of a tenant of whom none is."""
    async with open_tenants() as world:
        held = world.plane.hold("create", "*", match=lambda target: target.namespace == BURST)
        world.plane.store.create(there(pool("more", replicas=10)))
        while not held.waiting:
            await step(world)
        await time_of_claim(world, "single")
        began_s = world.clock.monotonic()
        while len(member_names(world)) < MEMBERS and world.clock.monotonic() - began_s < 5.0:
            await step(world)
        assert len(member_names(world)) == MEMBERS
        held.release()


@pytest.mark.parametrize("rollouts", [1, 2])
async def test_rollouts_of_another_tenant_keep_no_pool_empty(rollouts: int) -> None:
    """As many pools as are reconciled at a time replace their members, on a server that is slow."""
    answer_s = 0.5
    replaced = 60
    namespaces = [f"t{number}" for number in range(rollouts)]
    async with open_pools() as world:
        store = world.plane.store
        for name in [*namespaces, "mine"]:
            store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            store.create(inside(name, placed()))
        for name in namespaces:
            store.create(inside(name, pool(replicas=replaced, strategy="Recreate")))
        await world.advance(3.0)
        for name in namespaces:
            run_pods(world, name)
        await world.advance(5.0)
        for verb in VERBS:
            world.plane.delay(verb, "*", answer_s)
        spec = {"containers": [{"name": "main", "image": "newer"}], "nodeName": "node-1"}
        for name in namespaces:
            store.patch(TEMPLATES, name, "tpl", {"spec": {"podTemplate": {"spec": spec}}})
        for _ in range(6):
            await world.moments(100)
            await world.clock.advance(answer_s / 2)
        began_s = world.clock.monotonic()
        store.create(inside("mine", pool(replicas=2)))
        while len(store.list(SANDBOXES, "mine")) < 2:
            assert world.clock.monotonic() - began_s < 15.0
            await world.moments(100)
            await world.clock.advance(answer_s / 2)
        for verb in VERBS:
            world.plane.delay(verb, "*", 0.0)

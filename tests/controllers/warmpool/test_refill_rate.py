"""How fast a pool is filled again: the delay after a drop, and the rate of creates."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import placed, pool
from tests.support.extensions import change_pool, fill, members, names_of, open_pools, rest
from tests.support.world import World

DELAY: dict[str, Any] = {"sandbox_warm_pool_replenish_delay": 10.0}


async def lose(world: World, count: int = 1) -> None:
    """Delete members as a user, at once."""
    for name in names_of(members(world))[:count]:
        await world.delete("sandboxes", name)
    await world.advance(0.1)


def created(world: World) -> int:
    """Return how many members were asked for."""
    return world.writes()["create sandboxes"]


@pytest.mark.pool_case(94)
async def test_a_drop_puts_refilling_off_and_then_all_come_at_once() -> None:
    """Pool case 94: two lost, nothing for ten seconds, then a batch of two."""
    async with open_pools(**DELAY) as world:
        await fill(world, pool(replicas=4))
        await lose(world, 2)
        await world.advance(9.5)
        assert created(world) == 0
        await world.advance(1.0)
        assert created(world) == 2


@pytest.mark.pool_case(95)
async def test_another_drop_begins_the_wait_anew() -> None:
    """Pool case 95: lost again three seconds later, the ten seconds count from there."""
    async with open_pools(**DELAY) as world:
        await fill(world, pool(replicas=4))
        await lose(world)
        await world.advance(3.0)
        await lose(world)
        await world.advance(8.0)
        assert created(world) == 0
        await world.advance(2.5)
        assert created(world) == 2


@pytest.mark.pool_case(96)
async def test_a_stuck_member_goes_during_the_wait_but_is_not_replaced() -> None:
    """Pool case 96: deletes know no delay."""
    async with open_pools(**DELAY) as world:
        await world.create(placed())
        await world.create(pool(replicas=1))
        await rest(world)
        assert len(members(world)) == 1
        while members(world):
            await world.advance(1.0)
        assert created(world) == 1
        await world.advance(8.0)
        assert created(world) == 1
        await world.advance(3.0)
        assert created(world) == 2


@pytest.mark.pool_case(97)
async def test_a_first_fill_and_a_larger_pool_wait_for_nothing() -> None:
    """Pool case 97: only a loss is a drop."""
    async with open_pools(placed(), **DELAY) as world:
        await world.create(pool(replicas=2))
        assert len(members(world)) == 2
        await change_pool(world, {"replicas": 4})
        assert len(members(world)) == 4


@pytest.mark.pool_case(98)
async def test_creates_keep_to_the_rate() -> None:
    """Pool case 98: two at once, then two a second, and no more than the bucket holds."""
    async with open_pools(placed(), sandbox_warm_pool_max_refill_rate=2.0) as world:
        await world.create(pool(replicas=5))
        assert created(world) == 2
        await world.advance(0.4)
        assert created(world) == 2
        await world.advance(0.15)
        assert created(world) == 3
        await world.advance(1.0)
        assert created(world) == 5
        await world.advance(60.0)
        await change_pool(world, {"replicas": 9})
        assert created(world) == 7


@pytest.mark.pool_case(99)
async def test_a_slow_and_a_boundless_rate() -> None:
    """Pool case 99: one every two seconds; all at once."""
    async with open_pools(placed(), sandbox_warm_pool_max_refill_rate=0.5) as world:
        await world.create(pool(replicas=3))
        assert created(world) == 1
        await world.advance(1.9)
        assert created(world) == 1
        await world.advance(2.2)
        assert created(world) == 3
    async with open_pools(placed(), sandbox_warm_pool_max_refill_rate=1e12) as world:
        await world.create(pool(replicas=20))
        assert created(world) == 20


@pytest.mark.pool_case(101)
async def test_the_delay_comes_before_the_rate() -> None:
    """Pool case 101: the bucket is untouched while the pool is held."""
    async with open_pools(**DELAY, sandbox_warm_pool_max_refill_rate=1.0) as world:
        await world.create(placed())
        await world.create(pool(replicas=3))
        await world.advance(10.0)
        assert len(members(world)) == 3
        world.forget_requests()
        await lose(world, 3)
        await world.advance(9.5)
        assert created(world) == 0
        await world.advance(0.5)
        assert created(world) == 1
        await world.advance(1.0)
        assert created(world) == 2


@pytest.mark.parametrize("rate", [1e-300, 5e-324])
async def test_a_rate_too_small_to_be_waited_for_makes_one_member_and_no_fault(rate: float) -> None:
    """Law: any rate above zero is one: the first token is there, the next one comes never."""
    async with open_pools(sandbox_warm_pool_max_refill_rate=rate) as world:
        await fill(world, pool(replicas=3))
        await world.advance(600.0)
        assert len(members(world)) == 1
        assert not world.controller.activity().errors["sandboxwarmpool"]


async def test_a_create_that_fails_has_used_what_the_rate_grants() -> None:
    """Otherwise a server that fails would be asked far more often than one that does not."""
    async with open_pools(placed(), sandbox_warm_pool_max_refill_rate=0.1) as world:
        world.plane.fail_next("create", "sandboxes", 500)
        await world.create(pool(replicas=2))
        await world.advance(8.0)
        assert (created(world), len(members(world))) == (1, 0)
        await world.advance(8.0)
        assert (created(world), len(members(world))) == (2, 1)

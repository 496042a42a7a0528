"""Claims made together with their pool, or right after it was emptied, get its members."""

from __future__ import annotations

from typing import Any

from tests.support.builders import claim, placed, pool
from tests.support.extensions import fill, members, names_of, open_pools, owner_of, start
from tests.support.names import CLAIMS, LAUNCH_TYPE
from tests.support.world import NS, World, running_status, write_pod_status

Json = dict[str, Any]


def sandbox_of(world: World, name: str) -> str:
    """Return the Sandbox that a claim's status names, empty for none."""
    held = world.plane.store.get(CLAIMS, NS, name)
    return str(held.get("status", {}).get("sandbox", {}).get("name", ""))


def launches(world: World, claims: list[str]) -> list[str]:
    """Return how the Sandboxes of claims were started, "none" for a claim that has none yet."""
    found = [sandbox_of(world, name) for name in claims]
    return [world.get(one)["metadata"]["labels"][LAUNCH_TYPE] if one else "none" for one in found]


async def run_members(world: World) -> None:
    """Take the Pods of all members to Ready; members that claims wait for yield to no claim."""
    for name in names_of(members(world)):
        start(world, name)
    await world.settle()


async def create_claims(world: World, names: list[str]) -> None:
    """Create claims, all at one moment."""
    for name in names:
        world.plane.store.create(claim(name))
    await world.settle()


async def test_a_claim_waits_for_a_member_that_the_pool_has_just_made() -> None:
    """Nothing is written for a young claim until the new member has an address."""
    async with open_pools(placed()) as world:
        await world.create(pool(replicas=1))
        await create_claims(world, ["c"])
        await world.advance(1.0)
        assert launches(world, ["c"]) == ["none"]
        (member,) = names_of(members(world))
        await run_members(world)
        assert sandbox_of(world, "c") == member


async def test_claims_right_after_a_pool_take_its_members() -> None:
    """Of six claims 0.3 s after a pool of six none starts cold."""
    names = [f"c{number}" for number in range(6)]
    async with open_pools(placed()) as world:
        await world.create(pool(replicas=6))
        await world.advance(0.3)
        await create_claims(world, names)
        await world.advance(0.5)
        assert len(members(world)) == 6
        await run_members(world)
        assert launches(world, names) == ["warm"] * 6


async def test_claims_right_after_a_burst_take_the_replacements() -> None:
    """Six claims empty a pool; six more 0.4 s later wait for what replaces its members."""
    first = [f"a{number}" for number in range(6)]
    later = [f"b{number}" for number in range(6)]
    async with open_pools() as world:
        await fill(world, pool(replicas=6))
        await create_claims(world, first)
        assert launches(world, first) == ["warm"] * 6
        await world.advance(0.4)
        await create_claims(world, later)
        await world.advance(0.5)
        await run_members(world)
        assert launches(world, later) == ["warm"] * 6


async def test_a_member_that_runs_is_taken_before_its_address_is_published() -> None:
    """However late that is, as when many launch: nothing starts cold."""
    async with open_pools(placed(), sandbox_status_window=8.0) as world:
        await world.create(pool(replicas=1))
        await world.advance(0.4)
        (member,) = names_of(members(world))
        write_pod_status(world.plane, member, running_status(ready=False))
        await world.advance(4.6)
        assert "podIPs" not in world.get(member).get("status", {})
        await world.create(claim())
        assert owner_of(world, member) == "SandboxClaim/c"
        await world.advance(10.0)
        assert sandbox_of(world, "c") == member

"""Members that come up while claims wait for them: each wakes one claim, the oldest first."""

from __future__ import annotations

from tests.support.builders import claim, placed, pool
from tests.support.extensions import (
    add_member,
    bound_name,
    claim_reconciles,
    member_names,
    members,
    names_of,
    open_claims,
    open_pools,
)
from tests.support.extensions import start as run_pod
from tests.support.names import CLAIMS
from tests.support.world import NS, World

PATIENCE_S = 3600.0


def bound(world: World, *names: str) -> list[str]:
    """Return those claims whose status names a Sandbox."""
    return [
        name
        for name in names
        if world.plane.store.get(CLAIMS, NS, name).get("status", {}).get("sandbox", {}).get("name")
    ]


async def test_a_member_wakes_one_claim() -> None:
    """Eight claims and as many members that come up one by one: no reconcile finds nothing."""
    names = [f"c{number:02}" for number in range(8)]
    async with open_pools(placed(), sandbox_claim_warm_candidate_grace_period=PATIENCE_S) as world:
        await world.create(pool(replicas=8))
        for name in names:
            world.plane.store.create(claim(name))
        await world.settle()
        assert bound(world, *names) == []
        before = claim_reconciles(world)
        for name in names_of(members(world)):
            run_pod(world, name)
            await world.settle()
        assert bound(world, *names) == names
        # Each claim has one reconcile that binds it; what its Sandbox says later may cost another.
        assert claim_reconciles(world) - before <= 2 * len(names)


async def test_the_oldest_claim_comes_first() -> None:
    """Not the one whose name comes first, nor the one that looked last."""
    async with open_pools(placed(), sandbox_claim_warm_candidate_grace_period=PATIENCE_S) as world:
        await world.create(pool(replicas=3))
        for name in ("z", "m", "a"):
            await world.create(claim(name))
            await world.advance(2.0)
        served = []
        for name in names_of(members(world)):
            run_pod(world, name)
            await world.settle()
            served.append(bound(world, "a", "m", "z"))
        assert served == [["z"], ["m", "z"], ["a", "m", "z"]]


async def test_a_claim_that_failed_is_woken_by_a_member() -> None:
    """A claim in backoff takes the member that comes up at once, not when its time has come."""
    async with open_pools(placed()) as world:
        world.plane.fail_next("create", "sandboxes", 500, times=1000)
        await world.create(pool(replicas=1))
        await world.create(claim("c"))
        # Twelve reconciles have failed by now, and the next is due in 20 s.
        await world.advance(21.0)
        assert bound(world, "c") == []
        add_member(world.plane, "m", pool="pool")
        await world.advance(0.2)
        run_pod(world, "m")
        await world.settle()
        assert bound(world, "c") == ["c"]


async def test_a_claim_whose_sandbox_is_somebody_elses_by_now_is_woken_by_a_member() -> None:
    """Its status goes on to name that Sandbox while the server lets it have no other."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        world.plane.fail_next("create", "sandboxes", 403, times=1000)
        owners = [world.foreign_owner()]
        await world.patch("sandboxes", "m1", {"metadata": {"ownerReferences": owners}})
        await world.advance(60.0)
        assert bound_name(world) == "m1"
        (member,) = member_names(world)
        await world.run_pod(member)
        assert bound_name(world) == member


async def test_a_claim_that_takes_no_member_is_not_woken_by_one() -> None:
    """With variables of its own it waits for a Sandbox of its own, as long as its pause lasts."""
    async with open_pools(placed(envVarsInjectionPolicy="Allowed")) as world:
        await world.create(pool(replicas=3))
        world.plane.fail_next("create", "sandboxes", 500, times=1000)
        await world.create(claim(env=[{"name": "A", "value": "b"}]))
        await world.advance(21.0)
        tries = world.asked()["create sandboxes"]
        assert tries
        for name in names_of(members(world)):
            run_pod(world, name)
            await world.settle()
        assert world.asked()["create sandboxes"] == tries

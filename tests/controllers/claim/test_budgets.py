"""What a claim costs on the wire, to the request."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.builders import claim, template
from tests.support.extensions import (
    BIND,
    bound_name,
    claim_reconciles,
    failed,
    get_claim,
    get_object,
    member_names,
    open_claims,
    owner_of,
    ready_of,
    run_members,
    writes_in_order,
)
from tests.support.world import NS, World

# Our client and lightkube's make the same requests.
pytestmark = pytest.mark.usefixtures("each_client")


async def replace(world: World) -> None:
    """Let the pool make a new member and take it to Ready, and all that follows."""
    await world.advance(0.5)
    for name in member_names(world):
        if world.get(name).get("status", {}).get("nodeName") is None:
            await run_members(world, name)
    await world.advance(5.0)


@pytest.mark.claim_case(52)
async def test_a_warm_bind_is_one_patch_of_the_sandbox_its_pod_and_the_status() -> None:
    """Claim case 52: nothing else happens before the client sees Ready, and nothing is read."""
    async with open_claims("m1", "m2") as world:
        seen: list[str] = []

        def is_ready() -> bool:
            if get_claim(world).get("status"):
                seen.extend(writes_in_order(world))
            return bool(seen)

        world.plane.store.create(claim())
        await world.until(is_ready)
        assert seen[:3] == BIND
        await world.settle()
        asked = world.asked()
        assert asked["get sandboxes"] == asked["get sandboxclaims"] == 0
        assert ready_of(world)[0] == "True"


@pytest.mark.claim_case(52)
async def test_a_warm_claim_and_its_replacement_stay_within_the_budget() -> None:
    """Claim case 52: 8 writes without Events, 11 with, 1 read, no refusal, 2 reconciles at most.

    A pool that is full again within the window has nothing to tell.
    """
    async with open_claims("m1", "m2") as world:
        await world.advance(5.0)
        world.forget_requests()
        await world.create(claim())
        await replace(world)
        writes = world.writes()
        assert sum(writes.values()) <= 8, writes
        assert sum(world.writes(events=True).values()) <= 11, world.writes(events=True)
        reads = world.asked() - writes
        assert sum(reads.values()) <= 1, reads
        assert not [one for one in failed(world) if not one.startswith("404 get")]
        assert claim_reconciles(world) <= 2
        assert writes["patch sandboxclaims"] == 1
        assert writes["patch sandboxclaims/status"] == 1
        assert ready_of(world)[0] == "True"
        world.forget_requests()
        await world.advance(120.0)
        assert not world.asked(events=True)


@pytest.mark.claim_case(72, 96)
async def test_twenty_claims_at_once_on_a_pool_of_thirty() -> None:
    """Claim case 96: each gets a member of its own, none is refused, twenty are replaced.

    The pool tells its counts at most once a second.
    """
    names = tuple(f"m{number:02}" for number in range(30))
    async with open_claims(*names) as world:
        began = world.clock.monotonic()
        for number in range(20):
            world.plane.store.create(claim(f"c{number:02}"))
        await world.settle()
        bound = [bound_name(world, f"c{number:02}") for number in range(20)]
        assert len(set(bound)) == 20
        assert set(bound) <= set(names)
        for number, name in enumerate(bound):
            assert owner_of(world, name) == f"SandboxClaim/c{number:02}"
            assert ready_of(world, f"c{number:02}")[0] == "True"
        assert claim_reconciles(world) <= 40
        counted = Counter(writes_in_order(world))
        assert counted["patch sandboxes"] == counted["patch sandboxclaims/status"] == 20
        await world.advance(5.0)
        counted = Counter(writes_in_order(world))
        assert counted["create sandboxes"] == 20
        assert len(member_names(world)) == 30
        assert counted["patch sandboxclaims"] == 20
        assert counted["patch sandboxes"] == 20
        assert not [one for one in failed(world) if not one.startswith("404 get")]
        took_s = world.clock.monotonic() - began
        assert counted["patch sandboxwarmpools/status"] <= 1 + took_s
        status = get_object(world, "sandboxwarmpools", "pool")["status"]
        assert status["replicas"] == 30


async def test_a_restart_over_bound_claims_writes_nothing() -> None:
    """Budget: the next process reconciles every claim, and finds nothing to read or write."""
    async with open_claims("m1", "m2", "m3") as world:
        await world.create(claim("c1"))
        await world.create(claim("c2"))
        await replace(world)
        async with open_claims(plane=world.plane, ready=False) as second:
            await second.advance(5.0)
            assert claim_reconciles(second) == 2


async def test_a_cold_claim_costs_one_create_and_a_status_for_each_step() -> None:
    """Budget: POST Sandbox, one status each for bound and Ready, one patch of annotations."""
    async with open_claims() as world:
        await world.create(claim())
        await run_members(world, "c")
        await world.advance(5.0)
        assert ready_of(world)[0] == "True"
        writes = world.writes()
        assert writes["create sandboxes"] == writes["create pods"] == 1
        assert writes["patch sandboxclaims"] == 1
        assert writes["patch sandboxclaims/status"] <= 3
        assert writes["patch sandboxes"] == 0
        assert world.asked()["get sandboxes"] == 0
        assert not [one for one in failed(world) if not one.startswith("404 get")]


async def test_a_template_that_marks_its_pods_costs_the_bind_nothing() -> None:
    """Budget: labels and annotations that members have already are not written again."""
    marked = template(metadata={"labels": {"x/y": "1"}, "annotations": {"a": "b"}})
    async with open_claims("m1", templates=(marked,), pool_spec={}) as world:
        world.plane.store.create(claim())
        await world.settle()
        assert writes_in_order(world)[:3] == BIND
        assert world.plane.store.get("pods", NS, "m1")["metadata"]["labels"]["x/y"] == "1"

"""What goes when there are too many, and what must never go."""

from __future__ import annotations

from typing import Any

import anyio.lowlevel
import pytest

from lean_sandbox.local.request import Target
from tests.support.builders import claim, placed, pool
from tests.support.extensions import (
    change_pool,
    fill,
    members,
    names_of,
    open_pools,
    pool_status,
    rest,
    run_all,
    start,
)
from tests.support.names import CLAIMS, LAUNCH_TYPE, POOLS, SANDBOXES, TEMPLATES
from tests.support.world import NS, World, controlled_by

Json = dict[str, Any]
HOLD = "example.com/hold"


async def grown(world: World, count: int, *, ready: bool = True) -> list[str]:
    """Fill a pool one by one, a minute apart; return the names, oldest first."""
    await fill(world, pool(replicas=1))
    names = names_of(members(world))
    for replicas in range(2, count + 1):
        await world.advance(60.0)
        await change_pool(world, {"replicas": replicas})
        await rest(world)
        (new,) = set(names_of(members(world))) - set(names)
        if ready:
            start(world, new)
            await rest(world)
        names.append(new)
    world.forget_requests()
    return names


@pytest.mark.pool_case(38)
async def test_the_newest_ready_member_goes_first() -> None:
    """Pool case 38: four of different ages, three wanted."""
    async with open_pools() as world:
        names = await grown(world, 4)
        await change_pool(world, {"replicas": 3})
        await rest(world)
        assert set(names_of(members(world))) == set(names[:3])
        assert world.writes() == {"delete sandboxes": 1, "patch sandboxwarmpools/status": 1}


@pytest.mark.pool_case(39)
async def test_a_member_that_is_not_ready_goes_before_ready_ones() -> None:
    """Pool case 39: even when it is the oldest of all."""
    async with open_pools(sandbox_warm_pool_readiness_grace_period=3600.0) as world:
        names = await grown(world, 4)
        start(world, names[0], ready=False)
        await rest(world)
        await change_pool(world, {"replicas": 3})
        await rest(world)
        assert set(names_of(members(world))) == set(names[1:])


@pytest.mark.pool_case(23, 40)
async def test_a_pool_of_none_stays_and_shows_no_counts() -> None:
    """Pool case 23, 40: all members go, the pool stays, zeros are not stored."""
    async with open_pools() as world:
        await fill(world, pool(replicas=3))
        assert pool_status(world)["replicas"] == 3
        await change_pool(world, {"replicas": 0})
        await rest(world)
        assert not members(world)
        assert set(pool_status(world)) == {"selector", "observedGeneration"}


@pytest.mark.pool_case(41)
async def test_one_reconcile_deletes_no_more_than_a_batch() -> None:
    """Pool case 41: the rest goes in the reconciles that follow, without anybody's help."""
    async with open_pools(sandbox_warm_pool_max_batch_size=20) as world:
        await fill(world, pool(replicas=50))
        await change_pool(world, {"replicas": 0})
        assert len(world.requests("delete", "sandboxes")) == 20
        await rest(world)
        assert not members(world)
        assert len(world.requests("delete", "sandboxes")) == 50


async def test_a_member_is_deleted_once_however_late_the_watch_is() -> None:
    """The next batch takes others: what was deleted is known to go."""
    async with open_pools(sandbox_warm_pool_max_batch_size=2) as world:
        await fill(world, pool(replicas=6))
        names = names_of(members(world))
        held = [world.plane.hold_events(kind) for kind in ("sandboxes", "pods")]
        await change_pool(world, {"replicas": 0})
        await rest(world)
        assert sorted(one.name for one in world.requests("delete", "sandboxes")) == sorted(names)
        for one in held:
            one.release()


@pytest.mark.pool_case(42)
async def test_a_victim_that_is_gone_already_is_no_error() -> None:
    """Pool case 42: 404 is what was wanted; nobody else goes in its place."""
    async with open_pools() as world:
        await fill(world, pool(replicas=3))

        victims: list[str] = []

        def vanish(target: Target) -> bool:
            if not victims:
                victims.append(target.name)
                world.plane.store.delete(SANDBOXES, NS, target.name, grace_s=0)
            return False

        world.plane.fail_next("delete", "sandboxes", 500, match=vanish)
        await change_pool(world, {"replicas": 2})
        await rest(world)
        assert [one.code for one in world.requests("delete", "sandboxes")] == [404]
        assert len(members(world)) == 2
        await change_pool(world, {"replicas": 3})
        await rest(world)
        assert len(members(world)) == 3


@pytest.mark.pool_case(43)
async def test_a_failed_delete_ends_the_groups_and_is_tried_again() -> None:
    """Pool case 43: 500 on the first of many; the member stays one that claims can take."""
    async with open_pools() as world:
        await fill(world, pool(replicas=8))
        world.plane.fail_next("delete", "sandboxes", 500)
        await change_pool(world, {"replicas": 1})
        await rest(world)
        assert len(members(world)) == 1
        codes = [one.code for one in world.requests("delete", "sandboxes")]
        assert codes == [500, *[200] * 7]


@pytest.mark.pool_case(43)
async def test_a_member_whose_delete_failed_can_be_claimed() -> None:
    """Pool case 43: it was withheld from claims only for the attempt, and a claim keeps it."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1))
        (name,) = names_of(members(world))
        world.plane.fail_next("delete", "sandboxes", 500, times=1000)
        await change_pool(world, {"replicas": 0})
        await world.advance(30.0)
        await world.create(claim())
        assert world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"] == name
        world.plane.faults.clear()
        await world.advance(600.0)
        assert world.find("sandboxes", name) is not None


@pytest.mark.pool_case(45)
async def test_a_surplus_goes_without_a_template_too() -> None:
    """Pool case 45: a template is needed to create, not to delete."""
    async with open_pools() as world:
        await fill(world, pool(replicas=3))
        await world.delete(TEMPLATES, "tpl")
        await change_pool(world, {"replicas": 1})
        await rest(world)
        assert len(members(world)) == 1


@pytest.mark.pool_case(53, 54)
async def test_a_member_that_a_claim_took_a_moment_ago_survives() -> None:
    """Pool case 53, 54: the delete carries the version it was decided on; 409 means not mine."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1))
        (one,) = members(world)
        name = one["metadata"]["name"]
        # Without a Sandbox so far: its pool is yet to come.
        theirs = world.plane.store.create(claim("theirs", pool="later"))
        await rest(world)
        world.forget_requests()

        def adopt() -> None:
            patch = {
                "metadata": {
                    "ownerReferences": [controlled_by(theirs)],
                    "labels": {"agents.x-k8s.io/warm-pool-sandbox": None},
                }
            }
            world.plane.store.patch(SANDBOXES, NS, name, patch)

        world.meanwhile("delete", "sandboxes", adopt)
        await change_pool(world, {"replicas": 0})
        await rest(world)
        assert world.get(name)["metadata"]["uid"] == one["metadata"]["uid"]
        assert "deletionTimestamp" not in world.get(name)["metadata"]
        assert [request.code for request in world.requests("delete", "sandboxes")] == [409]
        assert "replicas" not in pool_status(world)
        await change_pool(world, {"replicas": 2})
        await rest(world)
        assert len(members(world)) == 2


@pytest.mark.pool_case(53)
async def test_a_member_that_only_changed_goes_with_the_next_reconcile() -> None:
    """Pool case 53: the refused delete is decided anew on what is known then."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1))
        (name,) = names_of(members(world))

        def note() -> None:
            patch = {"metadata": {"annotations": {"note": "x"}}}
            world.plane.store.patch(SANDBOXES, NS, name, patch)

        world.meanwhile("delete", "sandboxes", note)
        await change_pool(world, {"replicas": 0})
        await rest(world)
        assert not members(world)
        assert [one.code for one in world.requests("delete", "sandboxes")] == [409, 200]


async def test_claims_and_a_scale_down_at_once_never_cost_a_claimed_sandbox() -> None:
    """Budget: whatever the order, each bound Sandbox is there and controlled by its claim."""
    async with open_pools() as world:
        await fill(world, pool(replicas=12))
        for number in range(8):
            world.plane.store.create(claim(f"c-{number}"))
            if number == 3:
                world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": 0}})
        await rest(world, 5.0)
        await run_all(world)
        bound = []
        for number in range(8):
            stored = world.plane.store.get(CLAIMS, NS, f"c-{number}")
            name = stored["status"]["sandbox"]["name"]
            (owner,) = world.get(name)["metadata"]["ownerReferences"]
            assert owner["uid"] == stored["metadata"]["uid"]
            assert "deletionTimestamp" not in world.get(name)["metadata"]
            bound.append(name)
        assert len(set(bound)) == 8
        assert not members(world)


@pytest.mark.pool_case(26, 51, 52)
async def test_a_member_that_takes_long_to_go_keeps_its_place() -> None:
    """Pool case 26, 51, 52: held by a finalizer it is not counted, not replaced, not hit twice."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        name = names_of(members(world))[0]
        await world.patch("sandboxes", name, {"metadata": {"finalizers": [HOLD]}})
        world.plane.store.delete(SANDBOXES, NS, name)
        await rest(world)
        assert pool_status(world)["replicas"] == 1
        assert world.writes()["create sandboxes"] == 0
        assert world.writes()["delete sandboxes"] == 0
        await world.patch("sandboxes", name, {"metadata": {"finalizers": None}})
        await rest(world)
        assert world.writes()["create sandboxes"] == 1
        assert len(members(world)) == 2


@pytest.mark.pool_case(51)
async def test_an_own_delete_that_takes_long_is_sent_once() -> None:
    """Pool case 51: the answer counts, not the event; after it is gone the pool can grow."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        for name in names_of(members(world)):
            await world.patch("sandboxes", name, {"metadata": {"finalizers": [HOLD]}})
        await change_pool(world, {"replicas": 1})
        await rest(world)
        (gone,) = world.requests("delete", "sandboxes")
        assert pool_status(world)["replicas"] == 1
        await world.advance(600.0)
        assert len(world.requests("delete", "sandboxes")) == 1
        await change_pool(world, {"replicas": 2})
        await rest(world)
        assert world.writes()["create sandboxes"] == 0
        await world.patch("sandboxes", gone.name, {"metadata": {"finalizers": None}})
        await rest(world)
        assert world.writes()["create sandboxes"] == 1


async def under_way(world: World) -> None:
    """Wait until a request is on its way, and for all that can happen meanwhile."""
    await world.until(lambda: world.controller.activity().in_flight)
    for _ in range(300):
        await anyio.lowlevel.checkpoint()
    assert world.controller.activity().in_flight


@pytest.mark.pool_case(44)
async def test_while_creates_are_under_way_nothing_is_too_much() -> None:
    """Pool case 44: the pool shrinks before the server has answered: then all that came goes."""
    async with open_pools(placed()) as world:
        await rest(world)
        world.forget_requests()
        world.plane.delay("create", "sandboxes", 5.0)
        world.plane.store.create(pool(replicas=4))
        await under_way(world)
        world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": 0}})
        await under_way(world)
        assert not world.requests("delete", "sandboxes")
        world.plane.delay("create", "sandboxes", 0.0)
        await world.clock.advance(5.0)
        await rest(world)
        assert not members(world)
        writes = world.writes()
        assert writes["create sandboxes"] == writes["delete sandboxes"] > 0
        assert {one.code for one in world.requests("delete", "sandboxes")} == {200}


@pytest.mark.pool_case(50)
async def test_a_delete_whose_event_comes_before_its_answer_is_done() -> None:
    """Pool case 50: gone while the DELETE is on its way: 404, no error, and nothing is blocked."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1))
        (name,) = names_of(members(world))
        world.plane.delay("delete", "sandboxes", 5.0)
        world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": 0}})
        await under_way(world)
        world.plane.store.delete(SANDBOXES, NS, name, grace_s=0)
        world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": 1}})
        await under_way(world)
        world.plane.delay("delete", "sandboxes", 0.0)
        await world.clock.advance(5.0)
        await rest(world)
        assert [one.code for one in world.requests("delete", "sandboxes")] == [404]
        assert world.writes()["create sandboxes"] == 1
        assert len(members(world)) == 1
        assert world.controller.activity().errors["sandboxwarmpool"] == 0


async def test_a_member_that_lost_a_label_and_is_too_much_goes_at_once() -> None:
    """Its DELETE is guarded by the version that the labelling has made: no conflict."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1))
        (name,) = names_of(members(world))
        world.plane.store.patch(SANDBOXES, NS, name, {"metadata": {"labels": {LAUNCH_TYPE: None}}})
        await change_pool(world, {"replicas": 0})
        await rest(world)
        assert not members(world)
        assert world.writes()["patch sandboxes"] == 1
        assert [one.code for one in world.requests("delete", "sandboxes")] == [200]

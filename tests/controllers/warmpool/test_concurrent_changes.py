"""What happens at the same time: own creations, crashes, refusals, pools that go."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.request import Target
from tests.support.builders import claim, placed, pool
from tests.support.clock import FakeClock
from tests.support.extensions import (
    change_pool,
    fill,
    ids,
    members,
    names_of,
    open_pools,
    pool_status,
    rest,
    run_all,
    start,
)
from tests.support.names import CLAIMS, POD_NAME, POOLS, SANDBOXES, WARM_POOL
from tests.support.world import NS

HOLD: dict[str, Any] = {"metadata": {"finalizers": ["example.com/hold"]}}
RELEASE: dict[str, Any] = {"metadata": {"finalizers": None}}
# What a server answers to a create in a namespace that is being deleted.
ENDING: dict[str, Any] = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "Forbidden",
    "code": 403,
    "message": "namespace ns is being terminated",
    "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
}


@pytest.mark.pool_case(46, 47)
async def test_own_creations_count_before_the_watch_shows_them() -> None:
    """Pool case 46, 47: while the watch is down reconciles go on, and not one creates too much."""
    async with open_pools(placed()) as world:
        await rest(world)
        world.plane.store.create(pool(replicas=5))
        await world.until(lambda: world.requests("create", "sandboxes"))
        world.plane.drop_watches()
        world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": 6}})
        await world.recover()
        await rest(world)
        assert len(world.requests("create", "sandboxes")) == 6
        assert len(members(world)) == 6


@pytest.mark.parametrize("events_are_late", [False, True])
async def test_counts_that_meet_another_spec_are_put_right(
    events_are_late: bool,  # noqa: FBT001
) -> None:
    """The pool is scaled to nothing while its first counts are on their way: in the end it has 0.

    What the watch shows of the new spec, before or after the response, has no counts yet.
    """
    async with open_pools(placed()) as world:
        await rest(world)
        held = world.plane.hold("patch", "sandboxwarmpools/status", answers=False, times=1)
        await world.create(pool(replicas=2))
        assert held.waiting
        events = world.plane.hold_events("sandboxwarmpools") if events_are_late else None
        world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": 0}})
        await world.settle()
        held.release()
        await world.settle()
        if events is not None:
            events.release(1)
            await world.advance(2.0)
            events.release()
        await rest(world)
        assert not members(world)
        assert pool_status(world).keys() == {"selector", "observedGeneration"}


@pytest.mark.pool_case(55)
async def test_a_member_that_is_claimed_while_the_watch_is_down_blocks_nothing() -> None:
    """Pool case 55: adopted before any event showed it; its place is filled again."""
    async with open_pools(placed()) as world:
        await world.create(pool(replicas=1))
        world.plane.drop_watches()
        (one,) = members(world)
        start(world, one["metadata"]["name"])
        world.plane.store.create(claim())
        await world.recover()
        await rest(world, 5.0)
        await run_all(world)
        assert world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        assert len(members(world)) == 1
        assert pool_status(world)["readyReplicas"] == 1


@pytest.mark.pool_case(49)
async def test_a_member_deleted_while_the_watch_is_down_is_replaced() -> None:
    """Pool case 49: no event told of it; the list that follows does."""
    async with open_pools() as world:
        await fill(world, pool(replicas=3))
        await world.cut_watches()
        world.plane.store.delete(SANDBOXES, NS, names_of(members(world))[0], grace_s=0)
        world.plane.compact()
        await world.recover()
        await rest(world)
        assert len(members(world)) == 3
        assert world.writes()["create sandboxes"] == 1


@pytest.mark.pool_case(56)
async def test_a_crash_in_the_middle_of_a_fill_costs_no_member_too_many() -> None:
    """Pool case 56: the next process creates exactly what is missing."""
    clock = FakeClock()
    async with ControlPlane(LocalSettings(), clock=clock) as plane:
        async with open_pools(placed(), plane=plane, clock=clock) as world:

            def crash(_: Target) -> bool:
                if len(plane.store.list(SANDBOXES, NS)) >= 9:
                    world.kill()
                return False

            plane.fail_next("create", "sandboxes", 500, match=crash)
            await world.create(pool(replicas=20))
        made = len(plane.store.list(SANDBOXES, NS))
        assert 9 <= made < 20
        plane.faults.clear()
        plane.audit.reset()
        async with open_pools(plane=plane, clock=clock) as world:
            await rest(world)
            assert len(members(world)) == 20
            assert len(world.requests("create", "sandboxes")) == 20 - made
            assert world.writes()["delete sandboxes"] == 0


@pytest.mark.pool_case(57)
async def test_two_controllers_at_once_settle_on_what_is_wanted() -> None:
    """Pool case 57: whatever both created too much is deleted again."""
    clock = FakeClock()
    async with (
        ControlPlane(LocalSettings(), clock=clock) as plane,
        open_pools(placed(), plane=plane, clock=clock) as one,
        open_pools(plane=plane, clock=clock) as other,
    ):
        plane.store.create(pool(replicas=10))
        for _ in range(3):
            await rest(one)
            await rest(other)
        await run_all(one)
        await rest(other)
        assert len(members(one)) == 10
        plane.audit.reset()
        await rest(one, 60.0)
        await rest(other, 60.0)
        assert not other.writes()


@pytest.mark.pool_case(58)
async def test_a_pool_made_again_while_the_old_members_go_begins_anew() -> None:
    """Pool case 58: the old ones are not counted and block nothing."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        old = ids(members(world))
        for name in names_of(members(world)):
            world.plane.store.patch(SANDBOXES, NS, name, HOLD)
        world.plane.store.delete(POOLS, NS, "pool")
        world.plane.store.create(pool(replicas=3))
        await rest(world)
        assert len(members(world)) == 5
        assert len(ids(members(world)) - old) == 3
        assert pool_status(world)["replicas"] == 3
        for one in members(world):
            if one["metadata"]["uid"] in old:
                world.plane.store.patch(SANDBOXES, NS, one["metadata"]["name"], RELEASE)
        await rest(world)
        assert len(members(world)) == 3


@pytest.mark.pool_case(59)
async def test_in_a_namespace_that_ends_creates_are_rare() -> None:
    """Pool case 59: one try in half a minute, not a storm of them."""
    async with open_pools(placed()) as world:
        world.plane.fail_next("create", "sandboxes", 403, times=1000, body=ENDING)
        await world.create(pool(replicas=50))
        await world.advance(300.0)
        assert len(world.requests("create", "sandboxes")) <= 11
        assert pool_status(world)["observedGeneration"] == 1
        world.plane.faults.clear()
        await world.advance(31.0)
        assert len(members(world)) == 50


@pytest.mark.pool_case(60)
async def test_a_busy_server_is_given_the_time_it_asks_for() -> None:
    """Pool case 60: 429 with Retry-After; then exactly what is missing is created."""
    async with open_pools(placed()) as world:
        world.plane.fail_next("create", "sandboxes", 429, retry_after=7)
        await world.create(pool(replicas=3))
        await world.advance(6.5)
        assert len(world.requests("create", "sandboxes")) == 1
        await world.advance(1.0)
        assert len(members(world)) == 3
        assert len(world.requests("create", "sandboxes")) == 4


@pytest.mark.pool_case(102)
async def test_a_deleted_pool_leaves_its_members_to_garbage_collection() -> None:
    """Pool case 102: no request of ours; who was claimed survives."""
    async with open_pools() as world:
        await fill(world, pool(replicas=3))
        await world.create(claim())
        await rest(world)
        await run_all(world)
        bound = world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        world.plane.store.delete(SANDBOXES, NS, names_of(members(world))[0])
        await world.settle()
        world.forget_requests()
        world.plane.store.delete(POOLS, NS, "pool")
        await rest(world)
        assert not members(world)
        assert world.find("sandboxes", bound) is not None
        assert not world.asked()


@pytest.mark.pool_case(104)
async def test_a_pool_that_is_being_deleted_creates_nothing() -> None:
    """Pool case 104: foreground deletion; members go one by one, and none comes."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        names = names_of(members(world))
        for name in names:
            world.plane.store.patch(SANDBOXES, NS, name, HOLD)
        world.plane.store.delete(POOLS, NS, "pool", policy="Foreground")
        await rest(world)
        assert world.find(POOLS, "pool") is not None
        world.forget_requests()
        for name in names:
            world.plane.store.patch(SANDBOXES, NS, name, RELEASE)
            await rest(world)
        assert world.find(POOLS, "pool") is None
        assert not world.requests("create", "sandboxes")
        assert not world.requests("patch", "sandboxwarmpools")


async def test_a_steady_stream_of_claims_does_not_starve_the_pool() -> None:
    """Refilling stands back for claims, and within two seconds gets its turn all the same."""
    async with open_pools() as world:
        await fill(world, pool(replicas=4))
        for number in range(12):
            world.plane.store.create(claim(f"c-{number}"))
            await world.advance(0.5)
            await run_all(world)
        await rest(world, 5.0)
        await run_all(world)
        await change_pool(world, {"replicas": 4})
        assert len(members(world)) == 4
        assert pool_status(world)["readyReplicas"] == 4


async def test_what_a_claim_has_to_look_up_is_still_news_to_everybody_else() -> None:
    """A claim reads pool and template itself while the watch is late; both are then cared for."""
    async with open_pools() as world:
        await rest(world)
        await world.cut_watches()
        world.plane.store.create(placed())
        world.plane.store.create(pool(replicas=2))
        for resource in ("sandboxtemplates", "sandboxwarmpools"):
            world.plane.fail_next("watch", resource, 503, times=4)
            world.plane.fail_next("list", resource, 503, times=4)
        world.plane.store.create(claim())
        await world.recover()
        await rest(world, 5.0)
        assert world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        assert len(members(world)) == 2
        assert world.find("networkpolicies.networking.k8s.io", "tpl-network-policy") is not None


async def test_members_that_go_with_their_namespace_are_not_replaced_one_by_one() -> None:
    """Each member's end wakes the pool; a refused create is tried again after half a minute."""
    async with open_pools(placed()) as world:
        await fill(world, pool(replicas=12))
        world.plane.fail_next("create", "sandboxes", 403, times=1000, body=ENDING)
        for name in names_of(members(world)):
            world.plane.store.delete(SANDBOXES, NS, name, grace_s=0)
            await world.advance(1.0)
        assert len(world.requests("create", "sandboxes")) == 1
        await world.advance(60.0)
        assert 2 <= len(world.requests("create", "sandboxes")) <= 4
        world.plane.faults.clear()
        await world.advance(31.0)
        assert len(members(world)) == 12


@pytest.mark.parametrize("resource", ["sandboxes/status", "sandboxes"])
async def test_a_member_taken_away_behind_a_write_of_ours_is_replaced(resource: str) -> None:
    """A user takes it from its pool while its status or its annotation is on its way.

    The response shows that, so its event is stale; the pool is told all the same.
    """
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        await run_all(world)
        await rest(world)
        name = names_of(members(world))[0]
        held = world.plane.hold("patch", resource, answers=False, times=1)
        if resource == "sandboxes":
            await world.patch(SANDBOXES, name, {"metadata": {"annotations": {POD_NAME: "other"}}})
        else:
            await world.run_pod(name, ready=False)
        await world.advance(3.0)
        assert held.waiting
        taken = {"ownerReferences": None, "labels": {WARM_POOL: None}}
        world.plane.store.patch(SANDBOXES, NS, name, {"metadata": taken})
        await world.settle()
        held.release()
        await world.advance(3.0)
        assert len(members(world)) == 2
        assert name not in names_of(members(world))

"""Members that do not become Ready: waited for, held, or replaced."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.builders import placed, pool, template
from tests.support.clock import EPOCH, FakeClock
from tests.support.extensions import (
    change_pool,
    fill,
    ids,
    members,
    names_of,
    open_claims,
    open_pools,
    pool_events,
    pool_status,
    rest,
    run_all,
    start,
)
from tests.support.suspension import suspend
from tests.support.world import NS, World, pod_conditions, write_pod_status

Json = dict[str, Any]
GRACE_S = 300.0


async def unready(world: World, replicas: int = 1) -> list[str]:
    """Create a pool whose members have Pods that do not become Ready; return the names."""
    await world.create(placed())
    await world.create(pool(replicas=replicas))
    await rest(world)
    world.forget_requests()
    return names_of(members(world))


async def scheduling(world: World, name: str, reason: str | None) -> None:
    """Have the scheduler say why a Pod has no place, or (``None``) that it has one."""
    found = {"type": "PodScheduled", "status": "True" if reason is None else "False"}
    if reason is not None:
        found["reason"] = reason
    write_pod_status(world.plane, name, {"phase": "Pending", "conditions": [found]})
    await rest(world)


async def waiting(world: World, reason: str = "Unschedulable", replicas: int = 1) -> list[str]:
    """Create a pool whose members find no place; return the names."""
    await world.create(template())
    await world.create(pool(replicas=replicas))
    await rest(world)
    names = names_of(members(world))
    for name in names:
        await scheduling(world, name, reason)
    world.forget_requests()
    return names


@pytest.mark.pool_case(61, 62, 71)
async def test_a_member_that_outlives_its_grace_unready_is_replaced() -> None:
    """Pool case 61, 62, 71: kept and counted until then; the next reconcile comes by itself."""
    async with open_pools() as world:
        (name,) = await unready(world)
        await world.advance(GRACE_S - 10.0)
        assert names_of(members(world)) == [name]
        assert pool_status(world)["replicas"] == 1
        # The reconcile is due 2 s after the end of grace, spread by up to a half.
        await world.advance(1.5 * (GRACE_S + 2.0) - GRACE_S + 20.0)
        (new,) = names_of(members(world))
        assert new != name
        assert world.writes()["delete sandboxes"] == 1
        assert world.writes()["create sandboxes"] == 1
        assert pool_status(world)["replicas"] == 1


@pytest.mark.pool_case(61)
async def test_a_stuck_member_is_replaced_only_once_it_is_gone() -> None:
    """Pool case 61: while it terminates its place is taken."""
    async with open_pools() as world:
        (name,) = await unready(world)
        await world.patch("sandboxes", name, {"metadata": {"finalizers": ["example.com/hold"]}})
        await world.advance(600.0)
        assert world.writes()["delete sandboxes"] == 1
        assert world.writes()["create sandboxes"] == 0
        await world.patch("sandboxes", name, {"metadata": {"finalizers": None}})
        await rest(world)
        assert world.writes()["create sandboxes"] == 1


@pytest.mark.pool_case(63)
async def test_the_earliest_grace_decides_when_the_pool_is_reconciled() -> None:
    """Pool case 63: of two young members the elder one's end is met."""
    async with open_pools() as world:
        (elder,) = await unready(world)
        await world.advance(200.0)
        await change_pool(world, {"replicas": 2})
        await rest(world)
        # Looked at between the end of the elder's grace and before that of the younger.
        await world.advance(170.0)
        left = names_of(members(world))
        assert elder not in left
        assert len(left) == 2


@pytest.mark.pool_case(65, 66, 68, 70)
@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulingGated"])
async def test_a_member_without_a_place_is_held_and_told_of_once(reason: str) -> None:
    """Pool case 65, 66, 68, 70: one Warning, a reconcile a minute, one Normal once it is Ready."""
    async with open_pools() as world:
        (name,) = await waiting(world, reason)
        await world.advance(1000.0)
        assert names_of(members(world)) == [name]
        assert pool_status(world)["replicas"] == 1
        (event,) = pool_events(world)
        assert event[:2] == ("Warning", "WarmPoolNotProgressing")
        assert event[2] == (
            "1/1 sandboxes are unschedulable past the 5m0s readiness grace period; holding them"
            " instead of replacing (replacements would be equally unschedulable)"
        )
        assert not world.writes()
        await world.run_pod(name)
        await rest(world)
        assert [one[:2] for one in pool_events(world)] == [
            ("Warning", "WarmPoolNotProgressing"),
            ("Normal", "WarmPoolProgressing"),
        ]
        (posted, _) = [one for one in world.events() if one["regarding"]["kind"] != "Sandbox"]
        assert posted["reportingController"] == "sandboxwarmpool-controller"
        assert posted["action"] == "Reconciling"


async def test_a_large_pool_without_room_is_held() -> None:
    """However many members find no place: none is replaced for what was not published in time."""
    found = {"reason": "Unschedulable", "message": "0/3 nodes are available"}
    conditions = [pod_conditions(ready=False, scheduled=False)[0] | found]
    status = {"phase": "Pending", "conditions": conditions}
    # Were they told in turns, the last would wait for longer than this grace.
    async with open_pools(
        sandbox_status_window=2.0, sandbox_warm_pool_readiness_grace_period=6.0
    ) as world:
        store = world.plane.store
        await world.create(template())
        await world.create(pool(replicas=160))
        for _ in range(10):
            await world.advance(0.5)
            for pod in store.list("pods", NS):
                if not pod.get("status", {}).get("conditions"):
                    write_pod_status(world.plane, pod["metadata"]["name"], status)
        before = ids(members(world))
        assert len(before) == 160
        await world.advance(60.0)
        assert ids(members(world)) == before
        assert [event[1] for event in pool_events(world)] == ["WarmPoolNotProgressing"]


@pytest.mark.pool_case(65)
async def test_a_held_member_that_got_a_place_and_hangs_is_replaced() -> None:
    """Pool case 65: it has its grace from when it got a node, however long it waited for one."""
    async with open_pools() as world:
        (name,) = await waiting(world)
        await world.advance(600.0)
        await scheduling(world, name, None)
        await world.advance(GRACE_S - 60.0)
        assert names_of(members(world)) == [name]
        await world.advance(1.5 * GRACE_S)
        assert names_of(members(world)) != [name]
        assert len(members(world)) == 1


@pytest.mark.pool_case(69)
@pytest.mark.parametrize(("own_s", "told"), [(None, "10m0s"), (900, "15m0s")])
async def test_grace_and_recheck_are_as_configured(own_s: int | None, told: str) -> None:
    """Pool case 69: ten minutes of grace, or what the pool says; and so say the words."""
    async with open_pools(
        sandbox_warm_pool_readiness_grace_period=600.0,
        sandbox_warm_pool_unschedulable_recheck_interval=30.0,
    ) as world:
        (name,) = await waiting(world)
        if own_s is not None:
            await change_pool(world, {"readinessGracePeriodSeconds": own_s})
        await world.advance(360.0)
        assert not pool_events(world)
        assert names_of(members(world)) == [name]
        await world.advance(1200.0)
        (event,) = pool_events(world)
        assert told in event[2]


async def test_the_grace_of_a_pool_wins_over_the_setting_in_either_direction() -> None:
    """A shorter one replaces earlier, a longer one later; without it the setting holds again."""
    async with open_pools() as world:
        (first,) = await unready(world)
        await change_pool(world, {"readinessGracePeriodSeconds": 30})
        assert names_of(members(world)) == [first]
        await world.advance(60.0)
        (second,) = names_of(members(world))
        assert second != first
        await change_pool(world, {"readinessGracePeriodSeconds": 2 * int(GRACE_S)})
        await world.advance(1.5 * GRACE_S)
        assert names_of(members(world)) == [second]
        await change_pool(world, {"readinessGracePeriodSeconds": None})
        await rest(world)
        assert names_of(members(world)) != [second]


async def test_an_edit_of_the_grace_makes_no_member_stale() -> None:
    """Members are compared with their template; of the pool only that it is theirs matters."""
    async with open_pools() as world:
        await fill(world, pool(replicas=3, strategy="Recreate"))
        before = names_of(members(world))
        world.forget_requests()
        await change_pool(world, {"readinessGracePeriodSeconds": 45})
        await world.advance(600.0)
        assert names_of(members(world)) == before
        assert not world.requests("create", "sandboxes")
        assert not world.requests("delete", "sandboxes")


@pytest.mark.pool_case(72)
async def test_a_stuck_member_that_cannot_be_deleted_still_counts() -> None:
    """Pool case 72: 500 on its delete: no replacement before it goes, and it goes in the end."""
    async with open_pools() as world:
        (name,) = await unready(world)
        world.plane.fail_next("delete", "sandboxes", 500, times=12)
        while not world.writes()["delete sandboxes"]:
            await world.advance(1.0)
        await world.advance(5.0)
        assert world.writes()["create sandboxes"] == 0
        assert names_of(members(world)) == [name]
        await world.advance(120.0)
        assert world.writes()["create sandboxes"] == 1
        assert len(members(world)) == 1


@pytest.mark.pool_case(73)
async def test_an_old_member_that_turns_unready_has_its_grace_from_then() -> None:
    """Pool case 73: a kubelet that stops for a moment empties no pool."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        await world.advance(3600.0)
        before = names_of(members(world))
        for _ in range(2):
            for name in before:
                start(world, name, ready=False)
            await world.advance(40.0)
            assert names_of(members(world)) == before
            await run_all(world)
        start(world, before[0], ready=False)
        await world.advance(1.6 * GRACE_S)
        assert before[0] not in names_of(members(world))
        assert before[1] in names_of(members(world))


async def test_the_loss_of_readiness_is_remembered_over_a_restart() -> None:
    """The status says since when: a new process neither forgets it nor begins anew."""
    clock = FakeClock()
    async with open_pools(clock=clock) as world:
        await fill(world, pool(replicas=1))
        await world.advance(3600.0)
        (name,) = names_of(members(world))
        start(world, name, ready=False)
        await world.advance(200.0)
        world.controller.stop()
        await world.settle()
        async with open_pools(plane=world.plane, clock=clock) as second:
            await second.advance(60.0)
            assert names_of(members(second)) == [name]
            await second.advance(GRACE_S)
            assert names_of(members(second)) != [name]


@pytest.mark.pool_case(74)
async def test_a_suspended_member_is_replaced_past_its_grace() -> None:
    """Pool case 74: it is not Ready, whoever suspended it."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1))
        (name,) = names_of(members(world))
        await world.advance(GRACE_S + 10.0)
        await suspend(world, name)
        await world.delete("pods", name)
        await world.advance(1.6 * GRACE_S)
        assert name not in names_of(members(world))
        assert len(members(world)) == 1


async def test_a_member_that_is_ready_when_its_delete_arrives_stays() -> None:
    """The delete of a stuck member carries the version at which it was stuck."""
    async with open_pools() as world:
        (name,) = await unready(world)

        def recover() -> None:
            ready = [{"type": "Ready", "status": "True", "reason": "DependenciesReady"}]
            stored = world.get(name)["status"]["conditions"]
            kept = [one for one in stored if one["type"] != "Ready"]
            at = stored[0]["lastTransitionTime"]
            conditions = [*kept, {**ready[0], "lastTransitionTime": at, "message": ""}]
            world.plane.store.patch(
                "sandboxes.agents.x-k8s.io",
                NS,
                name,
                {"status": {"conditions": conditions}},
                subresource="status",
            )
            start(world, name)

        world.meanwhile("delete", "sandboxes", recover)
        await world.advance(600.0)
        assert names_of(members(world)) == [name]
        assert pool_status(world)["readyReplicas"] == 1


@pytest.mark.parametrize("ahead_s", [-600.0, 0.0, 600.0])
async def test_young_members_outlive_the_start_of_a_controller_with_another_clock(
    ahead_s: float,
) -> None:
    """Ages count by the clock of the server, which dates its answers."""
    clock = FakeClock(EPOCH + timedelta(seconds=ahead_s))
    async with open_claims("m1", "m2", ready=False, clock=clock) as world:
        await world.advance(30.0)
        assert names_of(members(world)) == ["m1", "m2"]

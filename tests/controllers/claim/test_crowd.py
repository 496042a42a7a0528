"""Claims in line: what can wait stands back until the last is served, and nothing else does."""

from __future__ import annotations

import pytest

from tests.support import stored
from tests.support.builders import claim
from tests.support.crowd import (
    CROWD,
    MEMBERS,
    VERBS,
    Json,
    crowded,
    furnish,
    number_ready,
    seconds_until,
)
from tests.support.extensions import BIND, bound_name, is_ready, members, open_pools, pool_status
from tests.support.names import POOLS, SANDBOXES
from tests.support.world import (
    NS,
    World,
    condition,
    pod_conditions,
    running_status,
    write_pod_status,
)

# For how long work stands back for single claims.
SHORT_S = 2.0


def ends(world: World, pod: str) -> bool:
    """Tell whether a Pod is gone or being deleted."""
    found = world.plane.store.find("pods", NS, pod)
    return found is None or "deletionTimestamp" in found["metadata"]


def is_expired(world: World, name: str) -> bool:
    """Tell whether a Sandbox says that its time is over."""
    return bool(condition(world.get(name), "Ready")["reason"] == "SandboxExpired")


async def test_a_crowd_is_served_before_anything_is_done_about_its_sandboxes() -> None:
    """Annotations, refill and pool status follow, whatever time the crowd takes."""
    async with crowded() as world:
        took_s = await seconds_until(world, lambda: number_ready(world) == CROWD)
        assert took_s > 2 * SHORT_S
        during = world.writes()
        behind = sum(during.values()) - sum(during[what] for what in BIND)
        assert during["patch sandboxes"] == CROWD
        assert behind <= 0.2 * CROWD
        await seconds_until(
            world, lambda: len(world.plane.store.list(SANDBOXES)) == MEMBERS + CROWD
        )
        assert world.writes()["patch pods"] == CROWD


async def test_what_ends_a_connection_is_told_at_once_in_a_crowd() -> None:
    """A Sandbox whose status is not true any more does not stand back for claims.

    The row of a Pod on a lost node still says ready; who wrote the status says it is not. Whoever
    connects to an old address finds nothing, or another's Pod.
    """
    lost = {"conditions": pod_conditions(ready=False)}
    moved_to = ["10.9.9.9"]
    moved = {"podIP": moved_to[0], "podIPs": [{"ip": ip} for ip in moved_to]}
    async with crowded() as world:
        await seconds_until(world, lambda: all(is_ready(world, f"c-{n}") for n in range(3)))
        names = [bound_name(world, f"c-{n}") for n in range(3)]
        write_pod_status(world.plane, names[0], running_status(ready=False))
        writes = ((lost, "kube-controller-manager"), (moved, "kubelet"))
        for name, (status, by) in zip(names[1:], writes, strict=True):
            world.plane.store.patch(
                "pods", NS, name, {"status": status}, subresource="status", manager=by
            )

        def are_told() -> bool:
            *dead, last = (world.get(name) for name in names)
            is_moved = last["status"].get("podIPs") == moved_to
            return is_moved and not any(map(stored.is_ready, dead))

        await seconds_until(world, are_told)
        assert number_ready(world) < CROWD - 1


async def test_a_claim_that_waits_for_its_pod_does_not_wait_for_the_crowd() -> None:
    """One that asks for labels is Ready once its Pod has them, which is nothing that can wait."""
    labels = {"additionalPodMetadata": {"labels": {"sandbox.users.io/team": "blue"}}}
    async with crowded(**labels) as world:
        await seconds_until(world, lambda: is_ready(world, "c-0"))
        assert number_ready(world) < CROWD - 1


async def test_a_sandbox_that_its_user_suspends_does_not_wait_for_the_crowd() -> None:
    """Somebody waits for what was asked for last, however long the crowd takes."""
    async with crowded() as world:
        await seconds_until(world, lambda: is_ready(world, "c-0"))
        used = bound_name(world, "c-0")
        world.plane.store.patch(SANDBOXES, NS, used, {"spec": {"operatingMode": "Suspended"}})
        await seconds_until(world, lambda: ends(world, used))
        assert number_ready(world) < CROWD - 1


async def test_a_sandbox_that_expires_does_not_wait_for_the_crowd() -> None:
    """Its end was set before, and its time comes while others are served."""
    async with crowded(member={"shutdownTime": "2026-01-02T03:04:11Z"}) as world:
        assert not is_ready(world, "c-0")
        await seconds_until(world, lambda: is_expired(world, "m-0"))
        assert bound_name(world, "c-0") == "m-0"
        assert number_ready(world) < CROWD - 1


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_sandbox_that_loses_its_service_does_not_wait_for_the_crowd(
    *, is_deleted: bool
) -> None:
    """Nor one whose Service leads elsewhere: its name must lead to its Pod again."""
    async with crowded(member={"service": True}) as world:
        await seconds_until(world, lambda: is_ready(world, "c-0"))
        assert bound_name(world, "c-0") == "m-0"
        if is_deleted:
            world.plane.store.delete("services", NS, "m-0")
        else:
            elsewhere = {"spec": {"selector": {"a": "b"}}}
            world.plane.store.patch("services", NS, "m-0", elsewhere)
        mended = "create services" if is_deleted else "patch services"
        await seconds_until(world, lambda: world.writes()[mended] == 1)
        # What is left to do for the others comes later.
        assert world.writes()["patch sandboxes/status"] <= 1


async def test_a_pool_that_its_user_changes_does_not_wait_for_the_crowd() -> None:
    """It begins to grow, though it has a member for each claim as it is."""
    async with crowded() as world:
        await seconds_until(world, lambda: is_ready(world, "c-0"))
        world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": MEMBERS + 3}})

        await seconds_until(world, lambda: len(world.plane.store.list(SANDBOXES)) > MEMBERS)
        assert number_ready(world) < CROWD - 1


async def test_two_seconds_after_a_crowd_the_pool_tells_how_many_members_are_left() -> None:
    """Law: a reader of readyReplicas never takes an emptied pool for a full one; few patches do."""
    async with open_pools(prepare=lambda plane: furnish(plane, {})) as world:
        for number in range(MEMBERS):
            write_pod_status(world.plane, f"m-{number}", running_status())
        await world.advance(3.0)
        assert pool_status(world)["readyReplicas"] == MEMBERS
        world.forget_requests()
        for verb in VERBS:
            world.plane.delay(verb, "*", 0.05)
        for number in range(CROWD):
            world.plane.store.create(claim(f"c-{number}"))
        while number_ready(world) < CROWD:
            await world.moments(40)
            await world.clock.advance(0.02)
        ended_s = world.clock.monotonic()
        while world.clock.monotonic() < ended_s + 2.0:
            await world.moments(40)
            await world.clock.advance(0.02)
        ready = [one for one in members(world) if is_sandbox_ready(one)]
        assert pool_status(world).get("readyReplicas", 0) - len(ready) <= 15
        assert world.writes()["patch sandboxwarmpools/status"] <= 6
        for verb in VERBS:
            world.plane.delay(verb, "*", 0.0)


def is_sandbox_ready(stored: Json) -> bool:
    """Tell whether a Sandbox is Ready."""
    return "status" in stored and condition(stored, "Ready")["status"] == "True"

"""A ResourceQuota that is used up refuses with 403: told as it is, and done once there is room."""

from __future__ import annotations

import pytest

from tests.support.builders import claim, placed, pool
from tests.support.extensions import bound_name, members, open_pools, ready_of
from tests.support.volumes import WHOLE
from tests.support.world import World, condition, open_world, sandbox

# How often the quota refuses before somebody raises it.
TIMES = 4


def use_up(world: World, plural: str) -> str:
    """Refuse creates of a kind, as the admission plugin of the server does; return its words."""
    message = (
        f'{plural} "x" is forbidden: exceeded quota: tenant, requested: {plural}=1, '
        f"used: {plural}=9, limited: {plural}=9"
    )
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": "Forbidden",
        "details": {"name": "x", "kind": plural},
        "code": 403,
    }
    world.plane.fail_next("create", plural, 403, TIMES, body=body)
    return message


@pytest.mark.parametrize("plural", ["pods", "services", "persistentvolumeclaims"])
async def test_a_child_that_a_quota_refuses_comes_once_there_is_room(plural: str) -> None:
    """Ready says what the quota says; pauses grow, and no edit is needed."""
    async with open_world() as world:
        message = use_up(world, plural)
        await world.create(sandbox(spec=WHOLE))
        await world.advance(0.01)
        told = condition(world.get(), "Ready")
        assert (told["status"], told["reason"]) == ("False", "ReconcilerError")
        assert message in told["message"]
        await world.advance(30.0)
        assert len(world.requests("create", plural)) == TIMES + 1
        await world.run_pod()
        assert condition(world.get(), "Ready")["status"] == "True"


async def test_members_that_a_quota_refuses_come_once_there_is_room() -> None:
    """A quota on Sandboxes: the pool is filled later, by as many as it wants."""
    async with open_pools(placed()) as world:
        use_up(world, "sandboxes")
        await world.create(pool(replicas=2))
        await world.advance(60.0)
        assert len(members(world)) == 2


async def test_a_cold_claim_that_a_quota_refuses_is_told_and_served_once_there_is_room() -> None:
    """Its Ready has the words of the quota until its Sandbox is there."""
    async with open_pools(placed(), pool(replicas=0)) as world:
        message = use_up(world, "sandboxes")
        await world.create(claim())
        assert ready_of(world)[:2] == ("False", "ReconcilerError")
        assert message in ready_of(world)[2]
        await world.advance(30.0)
        assert bound_name(world) == "c"

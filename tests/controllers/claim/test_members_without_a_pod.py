"""A member whose Pod is gone, ends or has ended makes no claim Ready."""

from __future__ import annotations

import pytest

from lean_sandbox.local.direct import StoredChange
from tests.support.builders import claim
from tests.support.extensions import (
    bound_name,
    member_names,
    open_claims,
    owner_of,
    ready_of,
    run_members,
)
from tests.support.names import CLAIMS
from tests.support.world import NS, World, condition, pod_conditions


def readiness_told(world: World) -> list[str]:
    """Return a list that grows by the status of Ready with each version of a claim."""
    told: list[str] = []

    def take(change: StoredChange) -> None:
        conditions = (change.after or {}).get("status", {}).get("conditions", ())
        told.extend(one["status"] for one in conditions if one["type"] == "Ready")

    world.plane.store.follow(take, (CLAIMS,))
    return told


async def test_members_whose_pods_went_while_nobody_looked_are_not_handed_out() -> None:
    """After a start, what the status of a member says may be of a Pod that is no more."""
    async with open_claims("m1", "m2") as world:
        plane = world.plane
        world.controller.stop()
        await world.settle()
        plane.store.delete("pods", NS, "m1", grace_s=0)
        plane.store.create(claim())
        async with open_claims(plane=plane, clock=world.clock, ready=False) as second:
            assert bound_name(second) == "m2"
            assert ready_of(second)[0] == "True"
            assert "m1" in member_names(second)


@pytest.mark.parametrize("grace_s", [0, 30])
async def test_no_claim_is_ready_with_a_pod_that_is_gone_or_going(grace_s: int) -> None:
    """It waits for what is on its way up, as if its pool had never been ready."""
    async with open_claims("m1") as world:
        plane = world.plane
        world.controller.stop()
        await world.settle()
        plane.store.delete("pods", NS, "m1", grace_s=grace_s)
        plane.store.create(claim())
        told = readiness_told(world)
        async with open_claims(plane=plane, clock=world.clock, ready=False) as second:
            await second.advance(1.0)
            assert "True" not in told
            assert "False" in told


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_a_member_whose_pod_has_ended_is_not_handed_out(
    phase: str,
    is_told: bool,  # noqa: FBT001
) -> None:
    """Also before its status says so: the claim would be told of that end, for good."""
    async with open_claims("m1") as world:
        # The pool would replace it at once.
        world.plane.fail_next("delete", "sandboxes", 500, times=1000)
        held = world.plane.hold("patch", "sandboxes/status", answers=False)
        if is_told:
            held.release()
        await world.pod_status("m1", phase=phase, conditions=pod_conditions(ready=False))
        await world.advance(3.0)
        assert (condition(world.get("m1"), "Ready")["reason"] == f"Pod{phase}") is is_told
        await world.create(claim())
        held.release()
        await world.advance(10.0)
        assert bound_name(world) == "c"
        assert owner_of(world, "m1") == "SandboxWarmPool/pool"


async def test_a_member_whose_pod_is_going_is_not_handed_out() -> None:
    """Also before its status says so."""
    async with open_claims("m1", "m2") as world:
        held = world.plane.hold("patch", "sandboxes/status")
        await world.delete("pods", "m1", grace_s=30)
        await world.create(claim())
        assert bound_name(world) == "m2"
        held.release()


async def test_a_claim_that_has_its_sandbox_is_not_ready_with_a_pod_that_is_gone() -> None:
    """Its Sandbox, whose status is of before, is reconciled first."""
    async with open_claims("m1") as world:
        world.plane.fail_next("patch", "sandboxclaims/status", 500, times=1000)
        await world.create(claim())
        plane = world.plane
        world.controller.stop()
        await world.settle()
        plane.faults.clear()
        plane.store.delete("pods", NS, "m1", grace_s=0)
        told = readiness_told(world)
        async with open_claims(plane=plane, clock=world.clock, ready=False) as second:
            await second.advance(1.0)
            assert "True" not in told
            await run_members(second, "m1")
            await second.advance(2.0)
            assert (bound_name(second), ready_of(second)[0]) == ("m1", "True")

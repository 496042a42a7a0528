"""The machine slept, or its wall clock is set: claims expire by the server's time."""

from __future__ import annotations

import pytest

from tests.support.builders import claim
from tests.support.expiry import at, ends
from tests.support.extensions import bound_name, get_claim, open_claims, ready_of
from tests.support.names import CLAIMS
from tests.support.world import World, pod_conditions

HOUR_S = 3600.0


def sleep(world: World, seconds: float) -> None:
    """Let the time of day go on, here and at the server, while the timers stand still."""
    for clock in (world.clock, world.server_clock):
        clock.set_wall(seconds)


def reason(world: World) -> str:
    """Return the reason of the claim's Ready, "gone" if the claim is deleted or being deleted."""
    held = world.find(CLAIMS, "c")
    is_gone = held is None or "deletionTimestamp" in held["metadata"]
    return "gone" if is_gone else ready_of(world)[1]


@pytest.mark.parametrize(
    ("policy", "end"),
    [("Retain", "ClaimExpired"), ("Delete", "gone"), ("DeleteForeground", "gone")],
)
async def test_a_machine_that_slept_ends_a_claim_within_a_minute(policy: str, end: str) -> None:
    """Its shutdownTime has come by the new time, and nothing else wakes it."""
    async with open_claims("m1") as world:
        await world.create(ends(2 * HOUR_S, policy))
        await world.advance(90.0)
        assert ready_of(world)[0] == "True"
        sleep(world, 3 * HOUR_S)
        await world.advance(61.0)
        assert reason(world) == end
        await world.advance(1.0)
        await world.delete("pods", "m1")
        assert world.find("sandboxes", "m1") is None


async def test_a_time_to_live_ends_within_a_minute_after_the_machine_slept() -> None:
    """It is counted from the moment at which the Pod had ended."""
    async with open_claims("m1") as world:
        await world.create(claim(lifecycle={"ttlSecondsAfterFinished": 7200}))
        await world.pod_status("m1", phase="Succeeded", conditions=pod_conditions(ready=False))
        await world.advance(90.0)
        assert ready_of(world)[1] == "PodSucceeded"
        sleep(world, 3 * HOUR_S)
        await world.advance(61.0)
        assert reason(world) == "ClaimExpired"


async def test_a_claim_that_was_reconciled_while_the_clock_was_wrong_ends_at_its_time() -> None:
    """The server's clock was right."""
    async with open_claims("m1", one_time=True) as world:
        await world.create(ends(HOUR_S / 4))
        world.clock.set_wall(-HOUR_S / 4)
        await world.patch(
            CLAIMS, "c", {"spec": {"additionalPodMetadata": {"annotations": {"a.io/b": "c"}}}}
        )
        await world.advance(5.0)
        world.clock.set_wall(HOUR_S / 4)
        left_s = HOUR_S / 4 - world.clock.monotonic()
        await world.advance(left_s - 0.5)
        assert ready_of(world)[0] == "True"
        await world.advance(60.5)
        assert reason(world) == "ClaimExpired"


async def test_a_clock_that_is_set_back_ends_no_claim_late() -> None:
    """Only the server's clock counts."""
    async with open_claims("m1", one_time=True) as world:
        await world.create(ends(HOUR_S / 4))
        world.clock.set_wall(-HOUR_S)
        await world.advance(HOUR_S / 4 - 30.0)
        assert ready_of(world)[0] == "True"
        assert get_claim(world)["spec"]["lifecycle"]["shutdownTime"] == at(HOUR_S / 4)
        assert bound_name(world) == "m1"
        await world.advance(60.0)
        assert reason(world) == "ClaimExpired"

"""Work that a claim's Pod has finished is not done again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim
from tests.support.extensions import bound_name, get_claim, member_names, open_claims, ready_of
from tests.support.names import CLAIMS, SANDBOXES
from tests.support.world import condition, write_pod_status

Json = dict[str, Any]
ENDS = pytest.mark.parametrize(
    ("phase", "reason"), [("Succeeded", "PodSucceeded"), ("Failed", "PodFailed")]
)


@ENDS
@pytest.mark.parametrize("members", [("m1", "m2"), ()])
async def test_a_finished_claim_whose_sandbox_is_deleted_gets_no_other(
    phase: str, reason: str, members: tuple[str, ...]
) -> None:
    """It names none, goes on to say how the work ended, and takes no member of its pool."""
    async with open_claims(*members) as world:
        await world.create(claim())
        name = bound_name(world)
        if not members:
            await world.run_pod(name)
        write_pod_status(world.plane, name, {"phase": phase})
        await world.advance(3.0)
        finished = condition(get_claim(world), "Finished")
        assert (finished["status"], finished["reason"]) == ("True", reason)
        await world.delete("sandboxes", name)
        for _ in range(3):
            await world.advance(60.0)
            assert bound_name(world) == ""
            assert condition(get_claim(world), "Finished") == finished
            assert ready_of(world)[:2] == ("False", reason)
        wanted = len(members)
        assert len(member_names(world)) == wanted
        assert len(world.plane.store.list(SANDBOXES)) == wanted


@ENDS
async def test_the_next_process_does_not_do_it_either(phase: str, reason: str) -> None:
    """What the claim says is all that it needs to know."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        write_pod_status(world.plane, "m1", {"phase": phase})
        await world.advance(3.0)
        world.controller.stop()
        await world.moments(100)
        world.plane.store.delete(SANDBOXES, "ns", "m1", grace_s=0)
        async with open_claims(plane=world.plane, clock=world.clock, ready=False) as second:
            await second.advance(60.0)
            assert bound_name(second) == ""
            assert ready_of(second)[:2] == ("False", reason)
            assert condition(get_claim(second), "Finished")["status"] == "True"


@ENDS
async def test_its_time_to_live_counts_from_the_end_of_the_work(phase: str, reason: str) -> None:
    """The deletion of the Sandbox in between changes nothing."""
    lifecycle = {"ttlSecondsAfterFinished": 600, "shutdownPolicy": "Delete"}
    async with open_claims("m1", "m2", one_time=True) as world:
        await world.create(claim(lifecycle=lifecycle))
        write_pod_status(world.plane, "m1", {"phase": phase})
        await world.advance(300.0)
        await world.delete("sandboxes", "m1")
        await world.advance(200.0)
        assert ready_of(world)[1] == reason
        await world.advance(200.0)
        assert world.find(CLAIMS, "c") is None


@pytest.mark.parametrize(
    ("edit", "mended"),
    [
        ({"additionalPodMetadata": {"labels": {"plain": "v"}}}, {"additionalPodMetadata": None}),
        ({"lifecycle": {"shutdownTime": "2030-01-01T00:00:00x5Z"}}, {"lifecycle": None}),
    ],
    ids=["metadata", "time"],
)
async def test_an_edit_that_makes_no_sense_does_not_have_it_done_again(
    edit: Json, mended: Json
) -> None:
    """The claim says what is wrong and goes on to say that the work has ended, then that alone."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        write_pod_status(world.plane, "m1", {"phase": "Succeeded"})
        await world.advance(3.0)
        finished = condition(get_claim(world), "Finished")
        await world.delete("sandboxes", "m1")
        await world.advance(3.0)
        await world.patch(CLAIMS, "c", {"spec": edit})
        await world.advance(60.0)
        assert ready_of(world)[1] in ("InvalidMetadata", "ReconcilerError")
        assert condition(get_claim(world), "Finished") == finished
        await world.patch(CLAIMS, "c", {"spec": mended})
        await world.advance(60.0)
        assert ready_of(world)[:2] == ("False", "PodSucceeded")
        assert bound_name(world) == ""

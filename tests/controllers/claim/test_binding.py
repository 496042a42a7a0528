"""What happens between two requests of a binding, and what a restart finds."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.http.faults import Loss
from tests.support.builders import claim
from tests.support.extensions import (
    bound_name,
    events_of,
    failed,
    get_claim,
    member_names,
    open_claims,
    owner_of,
    ready_of,
)
from tests.support.names import ANNOTATION, CLAIM_UID, CLAIMS, LAUNCH_TYPE, SANDBOXES, WARM_POOL
from tests.support.world import NS, World, controlled_by

Json = dict[str, Any]


def adoptions(world: World, name: str) -> int:
    """Return how often a member was patched."""
    return len([one for one in world.requests("patch", "sandboxes") if one.name == name])


def give(world: World, name: str, owner: Json) -> None:
    """Hand a Sandbox to another owner, as an adopter does: owner and labels in one patch."""
    marks = {"agents.x-k8s.io/sandbox-template-hash": None, WARM_POOL: None}
    labels = {**marks, CLAIM_UID: owner["metadata"]["uid"], LAUNCH_TYPE: "warm"}
    metadata = {"ownerReferences": [controlled_by(owner)], "labels": labels}
    world.plane.store.patch(SANDBOXES, NS, name, {"metadata": metadata})


@pytest.mark.claim_case(84)
async def test_a_member_another_claim_got_first_is_left_to_it() -> None:
    """Claim case 84: two controllers adopt m1: the second patch is refused, and takes m2."""
    async with open_claims("m1", "m2") as world:
        other = world.plane.store.create(claim("other", pool="elsewhere"))
        await world.settle()
        world.meanwhile("patch", "sandboxes", lambda: give(world, "m1", other))
        await world.create(claim())
        assert bound_name(world) == "m2"
        assert owner_of(world, "m1") == "SandboxClaim/other"
        assert owner_of(world, "m2") == "SandboxClaim/c"
        assert bound_name(world, "other") == "m1"


@pytest.mark.claim_case(80)
async def test_endless_conflicts_end_the_reconcile_and_not_the_member() -> None:
    """Claim case 80: AdoptionConflict, without the API's own words; the next reconcile succeeds."""
    async with open_claims("m1") as world:
        world.plane.fail_next("patch", "sandboxes", 409, times=5)
        await world.create(claim())
        assert ready_of(world)[1] == "AdoptionConflict"
        assert ready_of(world)[2] == (
            "adoption write conflict: completing adoption of m1 for claim c"
            " (conflicting concurrent write); the next pass retries from a converged view"
        )
        await world.advance(1.0)
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "True"


async def test_a_member_relabelled_before_the_patch_is_still_taken() -> None:
    """Law: a patch refused because the member changed is made anew; the member is not lost."""
    gone = {"metadata": {"labels": {"agents.x-k8s.io/sandbox-pod-template-hash": None}}}
    async with open_claims("m1", "m2") as world:
        world.meanwhile(
            "patch", "sandboxes", lambda: world.plane.store.patch(SANDBOXES, NS, "m1", gone)
        )
        await world.create(claim())
        assert bound_name(world) == "m1"
        assert "m2" in member_names(world)


@pytest.mark.claim_case(94)
async def test_a_patch_refused_for_what_it_says_passes_the_member_over() -> None:
    """Claim case 94: 422, by either guard: the claim is served by another Sandbox, at once."""
    async with open_claims("m1") as world:
        world.plane.fail_next("patch", "sandboxes", 422, times=2)
        await world.create(claim())
        assert owner_of(world, "m1") == "SandboxWarmPool/pool"
        assert bound_name(world) == "c"
        assert owner_of(world, "c") == "SandboxClaim/c"


async def test_a_server_error_frees_the_member_for_the_next_reconcile() -> None:
    """Law: nothing was adopted, one GET shows it, and the claim gets a member."""
    async with open_claims("m1", "m2") as world:
        world.plane.fail_next("patch", "sandboxes", 500)
        await world.create(claim())
        assert ready_of(world)[1] == "ReconcilerError"
        await world.advance(1.0)
        assert ready_of(world)[0] == "True"
        owners = [owner_of(world, name) for name in ("m1", "m2")]
        assert sorted(owners) == ["SandboxClaim/c", "SandboxWarmPool/pool"]


@pytest.mark.parametrize("are_events_late", [False, True])
@pytest.mark.parametrize("loss", [500, 504, Loss.RESET])
async def test_an_adoption_whose_answer_was_lost_is_found_again(
    loss: int | Loss,
    are_events_late: bool,  # noqa: FBT001
) -> None:
    """Law: after an error in place of an answer the claim keeps the member, and takes no second."""
    async with open_claims("m1", "m2") as world:
        held = world.plane.hold_events("sandboxes") if are_events_late else None
        world.plane.fail_next("patch", "sandboxes", loss, after=True)
        await world.create(claim())
        assert owner_of(world, "m1") == "SandboxClaim/c"
        await world.advance(1.0)
        if held is not None:
            held.release()
        await world.settle()
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "True"
        assert adoptions(world, "m2") == 0
        assert owner_of(world, "m2") == "SandboxWarmPool/pool"
        await world.advance(2.0)
        assert len(member_names(world)) == 2


@pytest.mark.claim_case(86)
async def test_a_restart_after_adoption_completes_the_binding() -> None:
    """Claim case 86: m1 is the claim's, its status is empty: one reconcile binds it."""
    async with open_claims("m1", "m2") as world:
        world.plane.fail_next("patch", "sandboxclaims/status", 500, times=1000)
        await world.create(claim())
        assert owner_of(world, "m1") == "SandboxClaim/c"
        assert not get_claim(world).get("status")
        plane = world.plane
        world.controller.stop()
        await world.settle()
        plane.faults.clear()
        async with open_claims(plane=plane, clock=world.clock, ready=False) as second:
            assert bound_name(second) == "m1"
            assert ready_of(second)[0] == "True"
            assert "m2" in member_names(second)
            await second.advance(3.0)
            held = get_claim(second)["metadata"]["annotations"]
            assert held[ANNOTATION] == "m1"


@pytest.mark.claim_case(117)
async def test_a_restart_after_the_status_stamps_the_time_as_unknown() -> None:
    """Claim case 117: the claim was Ready before this process began: nobody knows since when."""
    async with open_claims("m1") as world:
        plane = world.plane
        plane.fail_next("patch", "sandboxclaims", 500, times=9)
        await world.create(claim())
        world.controller.stop()
        plane.faults.clear()
        assert not get_claim(world)["metadata"].get("annotations")
        async with open_claims(plane=plane, clock=world.clock, ready=False) as second:
            await second.advance(12.0)
            held = get_claim(second)["metadata"]["annotations"]
            assert held["agents.x-k8s.io/claim-first-ready-at"] == "unknown"
            assert held[ANNOTATION] == "m1"


async def test_a_claim_deleted_while_it_is_bound_leaves_nothing_behind() -> None:
    """Law: the status finds no claim; the member it took goes with it, and is replaced."""
    async with open_claims("m1", "m2") as world:
        world.meanwhile(
            "patch", "sandboxes", lambda: world.plane.store.delete(CLAIMS, NS, "c", grace_s=0)
        )
        await world.create(claim())
        await world.advance(3.0)
        assert world.find(CLAIMS, "c") is None
        assert world.find("sandboxes", "m1") is None
        assert len(member_names(world)) == 2
        assert [one for one in failed(world) if not one.startswith("404")] == []


async def test_a_bound_sandbox_deleted_by_somebody_is_replaced() -> None:
    """Law: the claim gets another member and says so; the first-ready time stays (7.2).

    Each member has an Event of its own, and nobody looks for the one whose end was seen.
    """
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        await world.advance(3.0)
        stamped = get_claim(world)["metadata"]["annotations"]
        world.forget_requests()
        await world.delete("sandboxes", "m1")
        await world.advance(0.1)
        assert bound_name(world) == "m2"
        await world.advance(3.0)
        assert get_claim(world)["metadata"]["annotations"] == {**stamped, ANNOTATION: "m2"}
        told = sorted(note for _, _, note in events_of(world, "SandboxAdopted"))
        assert told == [f'Adopted warm pool Sandbox "{name}"' for name in ("m1", "m2")]
        assert world.requests("get", "sandboxes") == []
        assert world.whole.claims is not None
        assert not world.whole.claims._states


async def test_a_pool_scaled_to_nothing_in_a_burst_never_costs_a_claim_its_sandbox() -> None:
    """Law: each claim ends Ready or cold with a Sandbox of its own; no member stays."""
    names = tuple(f"m{number:02}" for number in range(10))
    async with open_claims(*names) as world:
        for number in range(5):
            world.plane.store.create(claim(f"c{number}"))
        world.plane.store.patch(
            "sandboxwarmpools.extensions.agents.x-k8s.io", NS, "pool", {"spec": {"replicas": 0}}
        )
        for number in range(5, 7):
            world.plane.store.create(claim(f"c{number}", pool="missing"))
        await world.settle()
        await world.advance(5.0)
        bound = {}
        for number in range(5):
            name = bound_name(world, f"c{number}")
            assert owner_of(world, name) == f"SandboxClaim/c{number}"
            bound[name] = number
        assert len(bound) == 5
        assert member_names(world) == []
        for number in range(5, 7):
            assert ready_of(world, f"c{number}")[1] == "WarmPoolNotFound"


async def test_a_deleted_claim_takes_no_other_member_when_its_sandbox_ends_first() -> None:
    """The end of the Sandbox may be seen before that of the claim, which is asked for then."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        assert bound_name(world) == "m1"
        held = world.plane.hold_events("sandboxclaims")
        world.forget_requests()
        world.plane.store.delete(CLAIMS, NS, "c")
        for _ in range(10):
            await world.moments(200)
            await world.clock.advance(0.1)
        assert world.find("sandboxes", "m1") is None
        held.release()
        await world.advance(3.0)
        assert owner_of(world, "m2") == "SandboxWarmPool/pool"
        assert adoptions(world, "m2") == 0


async def test_a_member_that_was_taken_over_and_never_named_is_deleted() -> None:
    """Law: a process that died between adoption and status leaves the claim one Sandbox."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        named = bound_name(world)
        other = "m1" if named == "m2" else "m2"
        give(world, other, get_claim(world))
        await world.advance(5.0)
        assert bound_name(world) == named
        assert world.find("sandboxes", other) is None
        assert ready_of(world)[0] == "True"


async def test_the_member_that_the_status_names_by_now_is_the_one_that_stays() -> None:
    """Law: whoever wrote the status last, what it names is kept, and nothing else is."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        named = bound_name(world)
        other = "m1" if named == "m2" else "m2"
        status = {"status": {"sandbox": {"name": other}}}
        world.meanwhile(
            "get",
            "sandboxclaims",
            lambda: world.plane.store.patch(CLAIMS, NS, "c", status, subresource="status"),
        )
        give(world, other, get_claim(world))
        await world.advance(30.0)
        assert bound_name(world) == other
        assert owner_of(world, other) == "SandboxClaim/c"
        assert world.find("sandboxes", named) is None
        assert ready_of(world)[0] == "True"

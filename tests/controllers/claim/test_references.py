"""A claim whose annotation or label names a Sandbox before it has one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim, pool
from tests.support.extensions import (
    add_member,
    bound_name,
    claim_reconciles,
    events_of,
    get_claim,
    member_names,
    open_claims,
    owner_of,
    run_members,
)
from tests.support.names import ANNOTATION, CLAIMS
from tests.support.world import condition


@pytest.mark.claim_case(85)
async def test_an_annotation_without_adoption_is_completed_even_without_an_address() -> None:
    """Claim case 85: another process wrote the annotation and died: m1 is taken, and no Event."""
    async with open_claims("m1", "m2", ready=False) as world:
        await world.create(claim(metadata={"annotations": {ANNOTATION: "m1"}}))
        assert bound_name(world) == "m1"
        assert owner_of(world, "m1") == "SandboxClaim/c"
        await world.advance(3.0)
        assert events_of(world) == []


async def test_a_member_that_an_annotation_names_is_replaced_in_its_pool() -> None:
    """The pool learns of it as of any other member that was taken, and so does its own controller.

    That acknowledges what the claim has changed of it.
    """
    async with open_claims("m1", "m2") as world:
        await world.create(claim(metadata={"annotations": {ANNOTATION: "m1"}}))
        await world.advance(5.0)
        assert owner_of(world, "m1") == "SandboxClaim/c"
        assert len(member_names(world)) == 2
        held = world.get("m1")
        assert condition(held, "Ready")["observedGeneration"] == held["metadata"]["generation"]


@pytest.mark.claim_case(84, 90)
@pytest.mark.parametrize("where", ["annotations", "labels"])
async def test_a_reference_to_another_claims_sandbox_is_removed(where: str) -> None:
    """Claim case 90: annotation or label of older days: the other owner stays, m2 is taken."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim("first"))
        assert bound_name(world, "first") == "m1"
        await world.create(claim(metadata={where: {ANNOTATION: "m1"}}))
        assert bound_name(world) == "m2"
        assert owner_of(world, "m1") == "SandboxClaim/first"
        await world.advance(3.0)
        held = get_claim(world)["metadata"]
        assert held["annotations"][ANNOTATION] == "m2"
        assert ANNOTATION not in held.get("labels", {})


@pytest.mark.claim_case(91)
async def test_a_reference_to_a_member_of_another_pool_is_removed() -> None:
    """Claim case 91: the member is not touched; the claim starts cold."""

    def more(plane: Any) -> None:
        plane.store.create(pool("other", 1))
        add_member(plane, "o1", pool="other")

    async with open_claims(prepare=more, ready=False) as world:
        await run_members(world, "o1")
        await world.create(claim(metadata={"annotations": {ANNOTATION: "o1"}}))
        assert bound_name(world) == "c"
        assert owner_of(world, "o1") == "SandboxWarmPool/other"
        await world.advance(3.0)
        assert ANNOTATION not in get_claim(world)["metadata"].get("annotations", {})


@pytest.mark.claim_case(92)
@pytest.mark.parametrize("where", ["annotations", "labels"])
@pytest.mark.parametrize("members", [("m1",), ()])
async def test_a_reference_to_nothing_is_removed(where: str, members: tuple[str, ...]) -> None:
    """Claim case 92: in the same reconcile the claim takes a member or starts cold.

    Of one that starts cold no annotation says that its Sandbox came from a pool.
    """
    async with open_claims(*members) as world:
        await world.create(claim(metadata={where: {ANNOTATION: "gone"}}))
        assert claim_reconciles(world) == 1
        assert bound_name(world) == ("m1" if members else "c")
        await run_members(world, bound_name(world))
        await world.advance(5.0)
        held = get_claim(world)["metadata"]
        assert held["annotations"].get(ANNOTATION) == ("m1" if members else None)
        assert ANNOTATION not in held.get("labels", {})


@pytest.mark.claim_case(93)
@pytest.mark.parametrize("noted", [None, "m1"])
async def test_a_label_of_older_days_becomes_the_annotation(noted: str | None) -> None:
    """Claim case 93: it names the claim's own Sandbox: annotation set, label removed, one patch."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        old = {"labels": {ANNOTATION: "m1"}, "annotations": {ANNOTATION: noted}}
        world.forget_requests()
        await world.patch(CLAIMS, "c", {"metadata": old})
        await world.advance(3.0)
        held = get_claim(world)["metadata"]
        assert held["annotations"][ANNOTATION] == "m1"
        assert ANNOTATION not in held.get("labels", {})
        assert len(world.requests("patch", "sandboxclaims")) == 1

"""A member that the server does not let a claim take over is passed over, not the claim refused."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.request import Target
from tests.support.builders import claim
from tests.support.extensions import (
    bound_name,
    events_of,
    member_names,
    open_claims,
    owner_of,
    ready_of,
    run_members,
)
from tests.support.names import ANNOTATION, CLAIMS, POOLS, TEMPLATES
from tests.support.refusals import denied_by_webhook
from tests.support.webhooks import add_webhook
from tests.support.world import NS, World

Json = dict[str, Any]
MEMBERS = ("m1", "m2", "m3", "m4", "m5")
# Policies answer with 403 and 422, webhooks with whatever code; no answer names a field.
REFUSALS = pytest.mark.parametrize("code", [400, 403, 404, 409, 422])
POLICIES = (403, 422)
NOTED: Json = {"additionalPodMetadata": {"annotations": {"example.com/note": "1"}}}


def refuse(world: World, code: int, *names: str) -> None:
    """Refuse every patch of these Sandboxes that is none of a status, from now on."""

    def is_one(target: Target) -> bool:
        return target.name in names

    body = None if code in POLICIES else denied_by_webhook(code)
    world.plane.fail_next("patch", "sandboxes", code, times=1000, match=is_one, body=body)


@REFUSALS
async def test_another_member_serves_the_claim(code: int) -> None:
    """At once, in the same reconcile, and the claim says nothing of it but an Event."""
    async with open_claims(*MEMBERS) as world:
        refuse(world, code, "m1", "m2")
        await world.create(claim())
        assert bound_name(world) == "m3"
        assert ready_of(world)[0] == "True"
        await world.advance(3.0)
        passed = events_of(world, "SandboxNotAdopted")
        assert {action for _, action, _ in passed} == {"Adoption"}
        assert sorted(note.split('"')[1] for _, _, note in passed) == ["m1", "m2"]
        # The pool replaces them, one after the other.
        left = [name for name in ("m1", "m2") if world.find("sandboxes", name) is not None]
        assert len(left) == 1
        assert owner_of(world, left[0]) == "SandboxWarmPool/pool"
        await world.advance(30.0)
        assert world.find("sandboxes", left[0]) is None
        assert len(member_names(world)) == len(MEMBERS)


@REFUSALS
async def test_a_claim_that_no_member_may_serve_gets_a_new_sandbox(code: int) -> None:
    """After three members it asks for one of its own: what is made now meets the policy."""
    async with open_claims(*MEMBERS) as world:
        refuse(world, code, *MEMBERS)
        await world.create(claim())
        refused = [one.name for one in world.requests("patch", "sandboxes") if one.code == code]
        assert len(set(refused)) == 3
        assert len(refused) <= 9
        await world.advance(1.0)
        # The pool is told at once.
        assert len(set(MEMBERS) - set(member_names(world))) == 1
        await run_members(world, "c")
        await world.advance(3.0)
        assert bound_name(world) == "c"
        assert ready_of(world)[0] == "True"


@REFUSALS
async def test_the_next_claims_do_not_try_the_same_members_again(code: int) -> None:
    """A member that was refused is handed out to nobody until it has changed."""
    async with open_claims(*MEMBERS) as world:
        refuse(world, code, "m1", "m2")
        await world.create(claim("a"))
        before = len(world.requests("patch", "sandboxes"))
        await world.create(claim("b"))
        assert bound_name(world, "b") == "m4"
        tried = {one.name for one in world.requests("patch", "sandboxes")[before:]}
        assert not tried & {"m1", "m2"}


@REFUSALS
async def test_a_member_that_an_annotation_names_is_passed_over_as_well(code: int) -> None:
    """Another process began to hand it over; the claim gets the next."""
    async with open_claims(*MEMBERS) as world:
        refuse(world, code, "m2")
        await world.create(claim(metadata={"annotations": {ANNOTATION: "m2"}}))
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "True"


async def test_a_stale_member_that_an_annotation_names_is_not_taken() -> None:
    """A claimant may write the annotation; which members fit the template is not for him to say."""
    strategy: Json = {"updateStrategy": {"type": "Recreate"}}
    async with open_claims("m1", "m2", pool_spec=strategy) as world:
        newer = {"spec": {"containers": [{"name": "main", "image": "newer"}]}}
        # The pool is kept from replacing its members.
        world.plane.fail_next("delete", "sandboxes", 500, times=1000)
        await world.patch(TEMPLATES, "tpl", {"spec": {"podTemplate": newer}})
        await world.create(claim(metadata={"annotations": {ANNOTATION: "m1"}}))
        assert bound_name(world) != "m1"
        assert owner_of(world, "m1") == "SandboxWarmPool/pool"


async def test_a_member_that_another_claim_is_about_to_get_is_not_taken_by_its_name() -> None:
    """It is handed out to one claim at a time, by whatever way."""
    async with open_claims("m1", "m2") as world:
        held = world.plane.hold("patch", "sandboxes", answers=False)
        world.plane.store.create(claim("first"))
        await world.until(lambda: world.plane.faults.waiting)
        world.plane.store.create(claim("second", metadata={"annotations": {ANNOTATION: "m1"}}))
        await world.moments(300)
        held.release()
        await world.settle()
        assert bound_name(world, "first") == "m1"
        assert bound_name(world, "second") == "m2"
        assert [one.code for one in world.requests("patch", "sandboxes")].count(422) == 0


async def test_a_member_that_a_claim_is_about_to_get_by_its_name_is_no_other_claims() -> None:
    """The other way round: the next claim gets the next member, without a refusal."""
    async with open_claims("m1", "m2") as world:
        held = world.plane.hold("patch", "sandboxes", answers=False)
        world.plane.store.create(claim("first", metadata={"annotations": {ANNOTATION: "m1"}}))
        await world.until(lambda: world.plane.faults.waiting)
        world.plane.store.create(claim("second"))
        await world.moments(300)
        held.release()
        await world.settle()
        assert bound_name(world, "first") == "m1"
        assert bound_name(world, "second") == "m2"
        assert {one.code for one in world.requests("patch", "sandboxes")} == {200}


async def test_a_member_that_its_pool_is_about_to_delete_is_no_claims() -> None:
    """The DELETE is under way: the claim starts cold, and nothing is patched in vain."""
    async with open_claims("m1") as world:
        held = world.plane.hold("delete", "sandboxes", answers=False)
        world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": 0}})
        await world.until(lambda: world.plane.faults.waiting)
        world.plane.store.create(claim())
        await world.moments(300)
        held.release()
        await world.settle()
        assert bound_name(world) == "c"
        assert world.find("sandboxes", "m1") is None
        assert "m1" not in {one.name for one in world.requests("patch", "sandboxes")}


async def test_a_member_that_is_not_handed_over_for_all_the_answer_says_is_passed_over() -> None:
    """A webhook lets no claim own a Sandbox of a pool: the claim is not told that it has one."""

    def strip(kind: Kind, one: Json) -> None:
        owners = one["metadata"].get("ownerReferences") or [{}]
        is_claims = kind.plural == "sandboxes" and owners[0].get("kind") == "SandboxClaim"
        if is_claims and one["metadata"]["name"] != "c":
            del one["metadata"]["ownerReferences"]

    async with open_claims("m1", "m2", prepare=lambda plane: add_webhook(plane, strip)) as world:
        await world.create(claim())
        await world.advance(1.0)
        assert bound_name(world) == "c"
        assert owner_of(world, "c") == "SandboxClaim/c"
        await world.advance(60.0)
        assert world.writes()["patch sandboxes"] < 40


def forbid_notes(plane: ControlPlane, code: int) -> None:
    """Let a policy refuse each Sandbox whose Pod would carry what the claim ``over`` asks for."""

    def check(kind: Kind, one: Json) -> None:
        if kind.plural == "sandboxes" and "example.com/note" in str(one["spec"]["podTemplate"]):
            said = "" if code in POLICIES else denied_by_webhook(code)["message"]
            raise StatusError(code, "", f"{said}: no notes")

    add_webhook(plane, check)


@REFUSALS
async def test_what_is_refused_to_one_claim_alone_is_not_held_against_the_members(
    code: int,
) -> None:
    """No member may serve it, nor a new Sandbox: the claim is at fault, and says so; none is lost.

    It goes on trying, ever less often, and others get members meanwhile; once mended it has one.
    """
    async with open_claims(*MEMBERS, prepare=lambda plane: forbid_notes(plane, code)) as world:
        await world.create(claim("over", **NOTED))
        await world.advance(300.0)
        assert ready_of(world, "over")[:2] == ("False", "ReconcilerError")
        assert "no notes" in ready_of(world, "over")[2]
        assert member_names(world) == list(MEMBERS)
        assert not events_of(world, "SandboxNotAdopted")
        assert world.writes()["patch sandboxes"] < 150
        for number in range(len(MEMBERS) - 1):
            await world.create(claim(f"good{number}"))
            assert bound_name(world, f"good{number}") in MEMBERS
        await world.patch(CLAIMS, "over", {"spec": {"additionalPodMetadata": None}})
        assert bound_name(world, "over") in MEMBERS
        assert ready_of(world, "over")[0] == "True"


async def test_a_new_sandbox_that_its_claim_may_not_own_is_deleted_and_told() -> None:
    """A webhook takes the owner away, so it would outlive the claim."""
    is_on = [True]

    def strip(kind: Kind, one: Json) -> None:
        if kind.plural == "sandboxes" and is_on:
            one["metadata"].pop("ownerReferences", None)

    async with open_claims(prepare=lambda plane: add_webhook(plane, strip)) as world:
        await world.create(claim())
        await world.advance(60.0)
        assert ready_of(world)[:2] == ("False", "ReconcilerError")
        assert 'sandbox "c" was accepted without the claim as its owner' in ready_of(world)[2]
        assert bound_name(world) == ""
        assert world.find("sandboxes", "c") is None
        assert not world.plane.store.list("pods", NS)
        assert world.writes()["create sandboxes"] <= 16
        assert not events_of(world, "SandboxProvisioned")
        is_on.clear()
        await world.advance(120.0)
        assert bound_name(world) == "c"
        assert owner_of(world, "c") == "SandboxClaim/c"
        await run_members(world, "c")
        assert world.whole.claims is not None
        assert not world.whole.claims._states

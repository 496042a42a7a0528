"""What somebody else writes while a claim is being bound: who was first keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.request import Target
from tests.support.builders import claim, template
from tests.support.extensions import (
    BIND,
    bound_name,
    claim_reconciles,
    failed_claim_reconciles,
    get_claim,
    member_names,
    open_claims,
    owner_of,
    ready_of,
    run_members,
    status_codes,
    writes_in_order,
)
from tests.support.names import ANNOTATION, CLAIMS, SANDBOXES
from tests.support.world import NS, World, condition, controlled_by

Json = dict[str, Any]


def bind_writes(world: World) -> list[str]:
    """Return the writes by which the controller binds claims, in order."""
    return [one for one in writes_in_order(world) if one in BIND]


def patches(world: World) -> list[int]:
    """Return the answers to the patches of Sandboxes that are none of a status."""
    return [one.code for one in world.requests("patch", "sandboxes") if not one.subresource]


@pytest.mark.claim_case(89)
async def test_a_first_binding_status_asks_only_that_there_is_none() -> None:
    """Claim case 89: labels and annotations that come first, our own as well, cost no conflict."""
    async with open_claims("m1", "m2") as world:

        def label() -> None:
            world.plane.store.patch(CLAIMS, NS, "c", {"metadata": {"labels": {"mine": "1"}}})

        world.meanwhile("patch", "sandboxclaims/status", label)
        await world.create(claim())
        assert status_codes(world) == [200]
        assert bound_name(world) == "m1"
        assert get_claim(world)["metadata"]["labels"] == {"mine": "1"}
        await world.create(claim("d"))
        assert status_codes(world) == [200, 200]


@pytest.mark.claim_case(89)
async def test_a_later_binding_status_carries_the_version_it_was_decided_on() -> None:
    """Claim case 89: over a status that says why the claim waits, a write before is a conflict."""
    async with open_claims(templates=()) as world:
        await world.create(claim())
        assert ready_of(world)[1] == "TemplateNotFound"
        world.forget_requests()

        def label() -> None:
            world.plane.store.patch(CLAIMS, NS, "c", {"metadata": {"labels": {"mine": "1"}}})

        world.meanwhile("patch", "sandboxclaims/status", label)
        await world.create(template(networkPolicyManagement="Unmanaged"))
        assert status_codes(world) == [409, 200]
        assert bound_name(world) == "c"


@pytest.mark.claim_case(75, 78, 79)
@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        (("sandboxes",), [BIND[0], *BIND]),
        (("sandboxclaims/status",), [*BIND, BIND[-1]]),
        (("sandboxes", "sandboxclaims/status"), [BIND[0], *BIND, BIND[-1]]),
    ],
)
async def test_a_conflict_is_resolved_within_the_reconcile(
    writes: tuple[str, ...], expected: list[str]
) -> None:
    """Claim case 78: of the member, 75: of the claim, 79: of both: a GET and one more patch each.

    There is no error, and no other member.
    """
    async with open_claims("m1", "m2") as world:
        for what in writes:
            world.plane.fail_next("patch", what, 409)
        await world.create(claim())
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "True"
        assert (claim_reconciles(world), failed_claim_reconciles(world)) == (1, 0)
        for what in ("sandboxes", "sandboxclaims"):
            asked = any(one.startswith(what) for one in writes)
            assert world.asked()[f"get {what}"] == asked
        assert bind_writes(world) == expected
        assert member_names(world) == ["m2"]


async def test_a_status_that_others_keep_overtaking_is_tried_five_times_at_once() -> None:
    """Then after a pause; the member stays the claim's."""
    async with open_claims("m1") as world:
        world.plane.fail_next("patch", "sandboxclaims/status", 409, times=6)
        await world.create(claim())
        assert world.writes()["patch sandboxclaims/status"] == 5
        assert failed_claim_reconciles(world) == 1
        await world.advance(0.1)
        assert world.writes()["patch sandboxclaims/status"] == 7
        assert bound_name(world) == "m1"


@pytest.mark.claim_case(77)
@pytest.mark.parametrize("write", ["sandboxes", "sandboxclaims/status"])
async def test_a_successor_gets_nothing_of_what_was_meant_for_its_predecessor(write: str) -> None:
    """Claim case 77: deleted and made again just before a write: refused, then bound anew."""
    async with open_claims("m1", "m2") as world:
        seen: list[Json] = []

        def re_create() -> None:
            world.plane.store.delete(CLAIMS, NS, "c", grace_s=0)
            seen.append(world.plane.store.create(claim()))

        world.meanwhile("patch", write, re_create)
        await world.create(claim())
        await world.advance(3.0)
        assert status_codes(world) == ([200] if write == "sandboxes" else [422, 200])
        uid = seen[0]["metadata"]["uid"]
        assert get_claim(world)["metadata"]["uid"] == uid
        assert bound_name(world) == "m2"
        assert world.get("m2")["metadata"]["ownerReferences"][0]["uid"] == uid
        assert get_claim(world)["metadata"]["annotations"][ANNOTATION] == "m2"
        assert world.find("sandboxes", "m1") is None


@pytest.mark.claim_case(95)
async def test_a_member_that_cannot_be_looked_at_is_free_again() -> None:
    """Claim case 95: 500 on the GET after a refused patch: an error; the next claim gets it."""
    async with open_claims("m1") as world:
        world.plane.fail_next("patch", "sandboxes", 409)
        world.plane.fail_next("get", "sandboxes", 500)
        await world.create(claim())
        assert ready_of(world)[1] == "ReconcilerError"
        assert failed_claim_reconciles(world) == 1
        await world.create(claim("d"))
        assert bound_name(world, "d") == "m1"
        await world.advance(1.0)
        assert bound_name(world) == "c"


@pytest.mark.claim_case(94)
async def test_a_member_that_the_server_refuses_to_an_annotation_is_dropped() -> None:
    """Claim case 94: the claim that it was assigned to starts cold, and names it no more."""
    async with open_claims("m1") as world:
        world.plane.fail_next("patch", "sandboxes", 422, times=2)
        await world.create(claim(metadata={"annotations": {ANNOTATION: "m1"}}))
        assert bound_name(world) == "c"
        assert owner_of(world, "m1") == "SandboxWarmPool/pool"
        await world.advance(3.0)
        assert ANNOTATION not in get_claim(world)["metadata"].get("annotations", {})


@pytest.mark.claim_case(82)
@pytest.mark.parametrize("fate", ["deleted", "lost to another owner"])
async def test_a_reference_that_cannot_be_removed_is_told_without_inner_words(fate: str) -> None:
    """Claim case 82: AdoptionConflict, the annotation stays; the next reconcile removes it."""
    async with open_claims("m1", "m2") as world:
        other = world.plane.store.create(claim("other", pool="elsewhere"))
        await world.settle()

        def lose() -> None:
            if fate == "deleted":
                world.plane.store.delete(SANDBOXES, NS, "m1", grace_s=0)
            else:
                owners = {"ownerReferences": [controlled_by(other)]}
                world.plane.store.patch(SANDBOXES, NS, "m1", {"metadata": owners})

        world.meanwhile("patch", "sandboxes", lose)
        world.plane.fail_next("patch", "sandboxclaims", 500)
        await world.create(claim(metadata={"annotations": {ANNOTATION: "m1"}}))
        assert ready_of(world) == (
            "False",
            "AdoptionConflict",
            (
                f"adoption write conflict: sandbox m1 {fate} and reference cleanup failed;"
                " the next pass retries from a converged view"
            ),
        )
        assert get_claim(world)["metadata"]["annotations"][ANNOTATION] == "m1"
        assert "m2" in member_names(world)
        await world.advance(3.0)
        assert bound_name(world) == "m2"
        assert get_claim(world)["metadata"]["annotations"][ANNOTATION] == "m2"


@pytest.mark.claim_case(92)
async def test_a_reference_to_nothing_that_cannot_be_removed_is_an_error() -> None:
    """Claim case 92: ReconcilerError says what failed; the next reconcile goes on."""
    async with open_claims("m1") as world:
        world.plane.fail_next("patch", "sandboxclaims", 500)
        await world.create(claim(metadata={"annotations": {ANNOTATION: "gone"}}))
        _, reason, message = ready_of(world)
        assert reason == "ReconcilerError"
        words = "failed to remove stale sandbox reference from claim metadata: "
        assert message.startswith(f"Error seen: {words}")
        await world.advance(1.0)
        assert bound_name(world) == "m1"


@pytest.mark.claim_case(87)
async def test_a_watch_that_lags_behind_leads_to_no_second_adoption() -> None:
    """Claim case 87: it shows the member as the pool's long after: no request comes of it."""
    async with open_claims("m1", "m2") as world:
        await world.cut_watches()
        for verb in ("watch", "list"):
            world.plane.fail_next(verb, "sandboxes", 503, times=4)
        # An event of the time before the adoption, which the watch delivers after it.
        note = {"metadata": {"annotations": {"note": "x"}, "labels": {"team": "blue"}}}
        world.plane.store.patch(SANDBOXES, NS, "m1", note)
        world.plane.store.create(claim())
        await world.recover()
        await world.advance(3.0)
        name = bound_name(world)
        assert status_codes(world) == [200]
        await world.patch(CLAIMS, "c", {"metadata": {"labels": {"touched": "1"}}})
        await world.advance(3.0)
        assert bound_name(world) == name
        patches = world.requests("patch", "sandboxes")
        assert [one.name for one in patches if not one.subresource] == [name]
        assert failed_claim_reconciles(world) == 0


@pytest.mark.parametrize("meanwhile", ["nothing", "a status", "a conflict"])
async def test_a_member_with_another_owner_before_its_pool_is_taken_all_the_same(
    meanwhile: str,
) -> None:
    """Whoever else is named as an owner, and wherever: the pool controls the member.

    The first patch finds another owner, the next one is guarded by the version. What meets it says
    nothing against the member.
    """
    async with open_claims("m1") as world:
        held = world.plane.store.get(SANDBOXES, NS, "m1")
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": NS}}
        other = world.plane.store.create(made)
        owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "x",
            "uid": other["metadata"]["uid"],
        }
        owners = {"ownerReferences": [owner, *held["metadata"]["ownerReferences"]]}
        world.plane.store.patch(SANDBOXES, NS, "m1", {"metadata": owners})
        await world.settle()
        world.forget_requests()

        def is_second(_: Target) -> bool:
            is_so = len(patches(world)) == 1
            if is_so and meanwhile == "a status":
                status = {"status": {"nodeName": "elsewhere"}}
                world.plane.store.patch(SANDBOXES, NS, "m1", status, subresource="status")
            return is_so and meanwhile == "a conflict"

        world.plane.fail_next("patch", "sandboxes", 409, match=is_second)
        await world.create(claim())
        assert bound_name(world) == "m1"
        assert owner_of(world, "m1") == "SandboxClaim/c"
        assert condition(get_claim(world), "Ready")["status"] == "True"
        assert len(patches(world)) == (2 if meanwhile == "nothing" else 3)


@pytest.mark.parametrize("eviction", [True, False])
async def test_a_status_written_just_before_the_binding_is_put_right(*, eviction: bool) -> None:
    """Law: nor is it believed where binding changes no spec, and so asks for no new status."""
    async with open_claims(replicas=1, enable_warm_pool_eviction=eviction) as world:
        (member,) = member_names(world)
        await run_members(world, member)
        await world.advance(3.0)
        right = world.get(member)["status"]

        def somebody() -> None:
            wrong = {"status": {"podIPs": ["192.0.2.1"], "nodeName": "elsewhere"}}
            world.plane.store.patch(SANDBOXES, NS, member, wrong, subresource="status")

        world.meanwhile("patch", "sandboxes", somebody)
        await world.create(claim())
        await world.advance(3.0)
        assert world.get(member)["metadata"]["generation"] == 1 + eviction
        for field in ("podIPs", "nodeName"):
            assert world.get(member)["status"].get(field) == right.get(field)
        assert get_claim(world)["status"]["sandbox"]["podIPs"] == right["podIPs"]

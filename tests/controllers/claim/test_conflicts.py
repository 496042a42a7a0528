"""What somebody else writes while a claim is being bound: who was first keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.http.faults import HeldEvents
from tests.faults.history import History
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
    writes_in_order,
)
from tests.support.names import ANNOTATION, CLAIMS, SANDBOXES, WARM_POOL
from tests.support.world import NS, World, condition, controlled_by

Json = dict[str, Any]


def status_codes(world: World) -> list[int]:
    """Return the answers to the status patches of claims."""
    return [
        one.code
        for one in world.requests("patch", "sandboxclaims")
        if one.what == "patch sandboxclaims/status"
    ]


def bind_writes(world: World) -> list[str]:
    """Return the writes by which the controller binds claims, in order."""
    return [one for one in writes_in_order(world) if one in BIND]


def bind_elsewhere(world: World, name: str) -> None:
    """Bind claim ``c`` to a Ready member, as another process does."""
    plane = world.plane
    held = get_claim(world)
    owners = {"ownerReferences": [controlled_by(held)], "labels": {WARM_POOL: None}}
    member = plane.store.patch(SANDBOXES, NS, name, {"metadata": owners})
    ready = {**condition(member, "Ready"), "observedGeneration": held["metadata"]["generation"]}
    sandbox = {"name": name, "podIPs": member["status"]["podIPs"]}
    status = {"conditions": [ready], "sandbox": sandbox}
    plane.store.patch(CLAIMS, NS, "c", {"status": status}, subresource="status")


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


@pytest.mark.claim_case(75)
async def test_a_conflict_on_the_claim_is_resolved_within_the_reconcile() -> None:
    """Claim case 75: one GET, one more patch, no error and no other member."""
    async with open_claims("m1", "m2") as world:
        world.plane.fail_next("patch", "sandboxclaims/status", 409)
        await world.create(claim())
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "True"
        assert (claim_reconciles(world), failed_claim_reconciles(world)) == (1, 0)
        assert world.asked()["get sandboxclaims"] == 1
        assert bind_writes(world) == [*BIND, BIND[-1]]
        assert member_names(world) == ["m2"]


@pytest.mark.claim_case(79)
async def test_conflicts_on_both_writes_are_resolved_within_the_reconcile() -> None:
    """Claim case 79: the member is patched twice, the claim too."""
    async with open_claims("m1", "m2") as world:
        world.plane.fail_next("patch", "sandboxes", 409)
        world.plane.fail_next("patch", "sandboxclaims/status", 409)
        await world.create(claim())
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "True"
        assert (claim_reconciles(world), failed_claim_reconciles(world)) == (1, 0)
        assert bind_writes(world) == [BIND[0], *BIND, BIND[-1]]


@pytest.mark.claim_case(76)
async def test_a_claim_that_somebody_else_has_bound_keeps_that_binding() -> None:
    """Claim case 76: nothing is overwritten, and the member taken in vain goes and is replaced."""
    async with open_claims("m1", "m2", "m3") as world:
        written: list[Json] = []

        def first() -> None:
            bind_elsewhere(world, "m2")
            written.append(get_claim(world)["status"])

        world.meanwhile("patch", "sandboxclaims/status", first)
        await world.create(claim())
        assert get_claim(world)["status"] == written[0]
        assert status_codes(world) == [422]
        assert owner_of(world, "m2") == "SandboxClaim/c"
        await world.advance(3.0)
        assert world.find("sandboxes", "m1") is None
        assert get_claim(world)["metadata"]["annotations"][ANNOTATION] == "m2"
        assert bound_name(world) == "m2"
        assert len(member_names(world)) == 3


@pytest.mark.claim_case(76)
async def test_a_binding_of_somebody_else_is_kept_while_its_sandbox_has_not_been_seen() -> None:
    """Claim case 76: the claim's event says it first; one GET of the Sandbox that it names."""
    async with open_claims("m1", "m2", "m3") as world:
        history = History(world.plane)

        def first() -> None:
            held.append(world.plane.hold_events("sandboxes"))
            bind_elsewhere(world, "m2")

        held: list[HeldEvents] = []
        # Its answer would tell that the member taken in vain is gone.
        others = world.plane.hold("patch", "sandboxes/status")
        world.meanwhile("patch", "sandboxclaims/status", first)
        await world.create(claim())
        annotations = {"annotations": {ANNOTATION: "m2"}}
        await world.patch(CLAIMS, "c", {"metadata": annotations})
        await world.advance(3.0)
        assert bound_name(world) == "m2"
        held[0].release()
        others.release()
        await world.advance(3.0)
        assert history.violations() == []
        assert bound_name(world) == "m2"
        assert world.find("sandboxes", "m1") is None
        assert len(member_names(world)) == 3


@pytest.mark.parametrize("code", [429, 503])
async def test_a_sandbox_that_a_busy_server_does_not_show_is_asked_for_when_it_says(
    code: int,
) -> None:
    """Retry-After is honoured, also where nothing but the claim's status names the Sandbox."""
    async with open_claims("m1", "m2") as world:
        held = world.plane.hold_events("sandboxes")
        await world.create(claim())
        await world.advance(3.0)
        world.forget_requests()
        world.plane.fail_next("get", "sandboxes", code, retry_after=7)
        bind_elsewhere(world, "m2")
        await world.settle()
        await world.advance(6.9)
        assert world.asked()["get sandboxes"] == 1
        assert bound_name(world) == "m2"
        await world.advance(0.2)
        assert world.asked()["get sandboxes"] > 1
        held.release()
        await world.advance(3.0)


@pytest.mark.claim_case(76)
async def test_a_status_that_names_what_the_claim_does_not_have_is_overwritten() -> None:
    """Claim case 76: only a Sandbox that the claim controls counts as a binding."""
    async with open_claims("m1", "m2") as world:
        wrong = {"status": {"sandbox": {"name": "m2"}}}
        world.meanwhile(
            "patch",
            "sandboxclaims/status",
            lambda: world.plane.store.patch(CLAIMS, NS, "c", wrong, subresource="status"),
        )
        await world.create(claim())
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "True"
        assert owner_of(world, "m2") == "SandboxWarmPool/pool"


@pytest.mark.claim_case(77)
async def test_a_successor_gets_nothing_of_what_was_meant_for_its_predecessor() -> None:
    """Claim case 77: deleted and made again just before the status: refused, then bound anew."""
    async with open_claims("m1", "m2") as world:
        seen: list[Json] = []

        def re_create() -> None:
            world.plane.store.delete(CLAIMS, NS, "c", grace_s=0)
            seen.append(world.plane.store.create(claim()))

        world.meanwhile("patch", "sandboxclaims/status", re_create)
        await world.create(claim())
        await world.advance(3.0)
        assert status_codes(world) == [422, 200]
        assert get_claim(world)["metadata"]["uid"] == seen[0]["metadata"]["uid"]
        assert bound_name(world) == "m2"
        assert get_claim(world)["metadata"]["annotations"][ANNOTATION] == "m2"
        assert world.find("sandboxes", "m1") is None


@pytest.mark.claim_case(88)
async def test_a_stale_view_of_a_claim_writes_nothing_again() -> None:
    """Claim case 88: another process told the same a moment ago: that stands, and no error.

    It is known from then on, although the answer to the annotations hides the event that tells it.
    """
    async with open_claims("m1", "m2") as world:
        told: list[Json] = []

        def first() -> None:
            bind_elsewhere(world, "m1")
            told.append(get_claim(world)["status"])

        world.meanwhile("patch", "sandboxclaims/status", first)
        await world.create(claim())
        assert status_codes(world) == [422]
        assert get_claim(world)["status"] == told[0]
        assert (bound_name(world), failed_claim_reconciles(world)) == ("m1", 0)
        assert owner_of(world, "m2") == "SandboxWarmPool/pool"
        await world.advance(3.0)
        world.forget_requests()
        await world.advance(100.0)
        assert not world.asked()


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


async def test_a_member_with_another_owner_before_its_pool_is_taken_all_the_same() -> None:
    """Whoever else is named as an owner, and wherever: the pool controls the member."""
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
        await world.create(claim())
        assert bound_name(world) == "m1"
        assert owner_of(world, "m1") == "SandboxClaim/c"
        assert condition(get_claim(world), "Ready")["status"] == "True"


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

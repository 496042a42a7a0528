"""A claim becomes Ready only when its Sandbox can be used: its Pod no longer looks free."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kinds import Kind
from tests.support.builders import claim, template
from tests.support.clock import FakeClock, on_clock
from tests.support.expiry import ends
from tests.support.extensions import (
    BIND,
    bound_name,
    events_of,
    get_claim,
    is_ready,
    member_names,
    open_claims,
    owner_of,
    ready_of,
    run_members,
    settings,
    writes_in_order,
)
from tests.support.names import CLAIM_UID, SAFE_TO_EVICT, SANDBOXES, WARM_POOL
from tests.support.webhooks import add_webhook
from tests.support.world import HASH_LABEL, NS, World, controlled_by, open_world

Json = dict[str, Any]
LABELS = {"sandbox.users.io/team": "blue"}
ASKED: Json = {"labels": LABELS, "annotations": {"example.com/note": "x"}}
WANTED = [{}, {"additionalPodMetadata": ASKED}]


def assert_usable(world: World, pod: str, name: str = "c") -> None:
    """Check that the Pod of a claim shows whose it is, and nothing by which it looks free."""
    metadata = world.pod(pod)["metadata"]
    assert WARM_POOL not in metadata["labels"]
    assert metadata["labels"][CLAIM_UID] == get_claim(world, name)["metadata"]["uid"]
    assert SAFE_TO_EVICT not in metadata.get("annotations", {})


@pytest.mark.parametrize("spec", WANTED)
async def test_the_pod_is_written_before_the_claim_is_ready(spec: Json) -> None:
    """A router knows it, no autoscaler takes it, and policies select it: when Ready is seen."""
    async with open_claims("m1") as world:
        held = world.plane.hold("patch", "pods", answers=False)
        world.plane.store.create(claim(**spec))
        await world.until(lambda: world.plane.faults.waiting)
        await world.advance(0.5)
        assert get_claim(world).get("status", {}) == {}
        held.release()
        await world.settle()
        assert is_ready(world)
        assert_usable(world, "m1")
        labels = world.pod("m1")["metadata"]["labels"]
        assert not spec or labels.items() >= LABELS.items()
        assert [one for one in writes_in_order(world) if one in BIND][:3] == BIND


async def test_what_a_claim_asks_for_costs_no_write_more_and_no_timer() -> None:
    """Labels and annotations go with the same three writes."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        plain = sorted(writes_in_order(world))
    async with open_claims("m1") as world:
        await world.create(claim(additionalPodMetadata=ASKED))
        assert is_ready(world)
        await world.advance(3.0)
        assert sorted(writes_in_order(world)) == plain


async def test_a_cold_claim_needs_no_write_to_its_pod() -> None:
    """The Pod was created as that of the claim."""
    async with open_claims(replicas=0) as world:
        await world.create(claim(additionalPodMetadata=ASKED))
        await world.run_pod("c")
        await world.advance(3.0)
        assert is_ready(world)
        assert_usable(world, "c")
        assert world.writes()["patch pods"] == 0


async def test_a_pod_that_already_is_as_asked_is_not_written_again() -> None:
    """Only the label of the pool has to go; the rest is there."""
    given = template(metadata={"labels": LABELS, "annotations": {"example.com/note": "x"}})
    async with open_claims("m1", templates=(given,), enable_warm_pool_eviction=False) as world:
        await world.create(claim(additionalPodMetadata=ASKED))
        assert is_ready(world)
        (patch,) = world.requests("patch", "pods")
        assert patch.code == 200
        assert world.pod("m1")["metadata"]["labels"].items() >= LABELS.items()
        await world.advance(60.0)
        assert world.writes()["patch pods"] == 1


@pytest.mark.parametrize("code", [429, 500])
@pytest.mark.parametrize("spec", WANTED)
async def test_a_pod_that_cannot_be_written_is_what_the_claim_says(code: int, spec: Json) -> None:
    """It names its Sandbox, is not Ready, and is as soon as the write is let through."""
    async with open_claims("m1") as world:
        world.plane.fail_next("patch", "pods", code, times=8)
        world.plane.store.create(claim(**spec))
        await world.settle()
        assert_told(world)
        await world.advance(30.0)
        assert is_ready(world)
        assert_usable(world, "m1")


def assert_told(world: World) -> None:
    """Check that the claim says that its Pod cannot be written, and keeps its Sandbox."""
    status, reason, message = ready_of(world)
    assert (status, reason) == ("False", "ReconcilerError")
    assert message.startswith('Error seen: failed to patch pod "m1": ')
    assert bound_name(world) == "m1"
    assert owner_of(world, "m1") == "SandboxClaim/c"


@pytest.mark.parametrize("code", [403, 422])
@pytest.mark.parametrize("spec", WANTED)
async def test_a_claim_whose_pod_the_server_does_not_let_be_written_gets_a_new_sandbox(
    code: int, spec: Json
) -> None:
    """A policy may be newer than the Pod. No client knew of the member; its pool makes another."""
    async with open_claims("m1", "m2", "m3") as world:
        world.plane.fail_next("patch", "pods", code, times=1000)
        await world.create(claim(**spec))
        await world.advance(0.1)
        assert bound_name(world) == "c"
        await world.run_pod("c")
        assert is_ready(world)
        assert_usable(world, "c")
        ((_, _, note),) = events_of(world, "SandboxNotAdopted")
        (gone,) = {"m1", "m2", "m3"} - set(member_names(world))
        assert note.startswith(
            f'Pool Sandbox "{gone}" is passed over: failed to patch pod "{gone}": '
        )
        assert world.find("sandboxes", gone) is None
        await world.advance(60.0)
        assert len(member_names(world)) == 3
        assert not events_of(world, "SandboxAdopted")
        assert len(world.requests("patch", "pods")) == 1
        assert world.writes()["delete sandboxes"] == 1
        # That it could have no member is forgotten: should it lose this Sandbox, it gets one.
        world.plane.faults.clear()
        await run_members(world, *member_names(world))
        await world.delete("sandboxes", "c")
        await world.advance(1.0)
        assert bound_name(world) != "c"
        assert is_ready(world)


@pytest.mark.parametrize("code", [403, 422])
async def test_a_claim_that_has_told_its_sandbox_keeps_it_whatever_is_refused(code: int) -> None:
    """It was bound before the member was ready, and says what holds it up."""
    async with open_claims("m1") as world:
        await world.run_pod("m1", ready=False)
        world.plane.fail_next("patch", "pods", code, times=1000)
        await world.create(claim())
        assert bound_name(world) == "m1"
        await world.run_pod("m1")
        await world.advance(60.0)
        assert ready_of(world)[:2] == ("False", "ReconcilerError")
        assert "failed to patch pod" in ready_of(world)[2]
        assert bound_name(world) == "m1"
        world.plane.faults.clear()
        await world.advance(120.0)
        assert is_ready(world)
        assert_usable(world, "m1")


@on_clock
async def test_a_pod_that_is_slow_to_be_written_is_what_the_claim_says(clock: FakeClock) -> None:
    """Once the request is given up, the claim says so, and goes on trying."""
    async with open_claims("m1", clock=clock) as world:
        world.plane.hold("patch", "pods", answers=False, times=2)
        world.plane.store.create(claim())
        await world.pass_time(16.0)
        assert ready_of(world)[:2] == ("False", "ReconcilerError")
        assert 'failed to patch pod "m1"' in ready_of(world)[2]
        await world.pass_time(16.0)
        await world.advance(20.0)
        assert is_ready(world)
        assert_usable(world, "m1")


async def test_a_write_that_is_under_way_may_make_the_pod_look_free_again() -> None:
    """Somebody stripped the Pod of a free member, which is being mended when a claim takes it."""
    async with open_claims("m1") as world:
        held = world.plane.hold("patch", "pods", answers=False)
        free: Json = {"labels": {WARM_POOL: None}, "annotations": {SAFE_TO_EVICT: None}}
        world.plane.store.patch("pods", NS, "m1", {"metadata": free})
        await world.until(lambda: held.waiting)
        world.plane.store.create(claim())
        await world.advance(0.5)
        assert owner_of(world, "m1") == "SandboxClaim/c"
        assert not is_ready(world)
        held.release()
        await world.advance(3.0)
        assert is_ready(world)
        assert_usable(world, "m1")


@pytest.mark.parametrize("by_another", [False, True])
async def test_a_pod_that_is_gone_is_replaced_before_the_claim_is_ready(
    *, by_another: bool
) -> None:
    """The claim says what its Sandbox says, and is Ready with the new Pod alone, whoever made it.

    The patch names the uid, so it never meets a Pod that nothing is known of.
    """
    async with open_claims("m1") as world:

        def end() -> None:
            old = world.plane.store.get("pods", NS, "m1")
            world.plane.store.delete("pods", NS, "m1", grace_s=0)
            if by_another:
                for gone in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
                    old["metadata"].pop(gone, None)
                old.pop("status")
                world.plane.store.create(old)

        world.meanwhile("patch", "pods", end)
        await world.create(claim())
        assert not is_ready(world)
        await world.advance(3.0)
        assert ready_of(world)[:2] == ("False", "DependenciesNotReady")
        assert bound_name(world) == "m1"
        await run_members(world, "m1")
        await world.advance(5.0)
        assert is_ready(world)
        assert_usable(world, "m1")


async def test_a_pod_that_begins_to_end_just_before_is_not_called_ready() -> None:
    """The answer to the write shows it before any event does."""
    async with open_claims("m1") as world:
        world.meanwhile(
            "patch", "pods", lambda: world.plane.store.delete("pods", NS, "m1", grace_s=30)
        )
        events = world.plane.hold_events("pods")
        world.plane.store.create(claim())
        await world.until(lambda: world.writes()["patch pods"])
        await world.moments(200)
        assert not is_ready(world)
        events.release()
        await world.settle()
        assert not is_ready(world)


@pytest.mark.parametrize("spec", WANTED)
async def test_a_binding_that_another_process_began_is_completed_in_the_same_order(
    spec: Json,
) -> None:
    """It ended after its first write: the next process frees the Pod, then says Ready."""

    def begin(plane: ControlPlane) -> None:
        made = plane.store.create(claim(**spec))
        labels = {WARM_POOL: None, CLAIM_UID: made["metadata"]["uid"]}
        owners = [controlled_by(made)]
        body: Json = {"metadata": {"labels": labels, "ownerReferences": owners}}
        body["spec"] = {"podTemplate": {"metadata": {"annotations": {SAFE_TO_EVICT: None}}}}
        plane.store.patch(SANDBOXES, NS, "m1", body)

    async with open_claims("m1", "m2") as first:
        first.controller.stop()
        begin(first.plane)
        async with open_world(settings(), plane=first.plane, clock=first.clock) as world:
            await world.advance(3.0)
            assert bound_name(world) == "m1"
            assert is_ready(world)
            assert_usable(world, "m1")
            # The Sandbox's own reconcile may free the Pod as well.
            order = [one for one in writes_in_order(world) if one in BIND[1:]]
            assert list(dict.fromkeys(order)) == BIND[1:]


async def test_a_ready_claim_that_gets_another_sandbox_waits_for_its_pod() -> None:
    """Ready goes on to be true of the Sandbox that is named."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        assert bound_name(world) == "m1"
        world.forget_requests()
        held = world.plane.hold("patch", "pods", answers=False)
        world.plane.store.delete(SANDBOXES, NS, "m1", grace_s=0)
        await world.moments(100)
        await world.clock.advance(0.2)
        await world.until(lambda: world.plane.faults.waiting)
        await world.moments(200)
        assert bound_name(world) == "m1" or not is_ready(world)
        held.release()
        await world.advance(3.0)
        assert bound_name(world) == "m2"
        assert is_ready(world)
        assert_usable(world, "m2")


async def test_ready_waits_until_the_watch_has_shown_the_pod() -> None:
    """Routers learn of it by watches of their own, which a busy server serves late."""
    async with open_claims("m1") as world:
        events = world.plane.hold_events("pods")
        world.plane.store.create(claim())
        await world.until(lambda: world.writes()["patch pods"])
        await world.moments(200)
        assert_pod_is_free_of_its_pool(world)
        assert not is_ready(world)
        events.release()
        await world.settle()
        assert is_ready(world)


async def test_a_watch_that_shows_nothing_holds_ready_up_for_a_second() -> None:
    """It may be broken, and the Pod is as it should be."""
    async with open_claims("m1") as world:
        events = world.plane.hold_events("pods")
        world.plane.store.create(claim())
        await world.until(lambda: world.writes()["patch pods"])
        await world.moments(200)
        await world.clock.advance(0.9)
        await world.moments(200)
        assert not is_ready(world)
        await world.clock.advance(0.2)
        await world.until(lambda: is_ready(world))
        events.release()
        await world.settle()
        assert_usable(world, "m1")


UNSEEN = 'no Pod of sandbox "{}" is seen to be ready'


def without_hash(kind: Kind, one: Json) -> None:
    """Take away the label by which a Pod is watched, as a policy on labels may."""
    if kind.plural == "pods":
        one["metadata"].get("labels", {}).pop(HASH_LABEL, None)


async def test_a_pod_that_no_watch_shows_is_asked_for_ever_less_often() -> None:
    """No router can find it either. The claim says what it waits for."""
    async with open_claims(prepare=lambda plane: add_webhook(plane, without_hash)) as world:
        await world.create(claim())
        await world.run_pod("c")
        await world.advance(900.0)
        assert ready_of(world) == ("False", "SandboxNotReady", UNSEEN.format("c"))
        assert world.asked()["get pods"] <= 100
        # Told once: what it waits for stays the same.
        assert world.writes()["patch sandboxclaims/status"] <= 3


async def test_a_claim_that_waits_for_its_pod_to_be_seen_ends_at_its_time() -> None:
    """No wait is longer than what is left of the claim."""
    async with open_claims(prepare=lambda plane: add_webhook(plane, without_hash)) as world:
        await world.create(ends(7.0))
        await world.run_pod("c")
        await world.advance(6.9 - world.clock.monotonic())
        assert ready_of(world)[1] == "SandboxNotReady"
        await world.advance(0.1)
        assert ready_of(world)[1] == "ClaimExpired"


async def test_a_claim_whose_member_has_a_pod_that_no_watch_shows_says_so_after_a_while() -> None:
    """A client waits a moment for nothing but Ready; one that waits for long learns why."""
    async with open_claims("m1") as world:
        add_webhook(world.plane, without_hash)
        await world.create(claim())
        await world.advance(1.0)
        assert not get_claim(world).get("status")
        await world.advance(60.0)
        assert ready_of(world) == ("False", "SandboxNotReady", UNSEEN.format("m1"))
        assert bound_name(world) == "m1"


def assert_pod_is_free_of_its_pool(world: World) -> None:
    """Check that the Pod was written."""
    assert WARM_POOL not in world.pod("m1")["metadata"]["labels"]

"""What happens to a claim, its pool or its Sandbox while something else is under way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lean_sandbox.local.kinds import Kind
from lean_sandbox.model.times import format_rfc3339
from tests.support.builders import claim, placed, pool, template
from tests.support.clock import EPOCH
from tests.support.extensions import bound_name, open_claims, open_pools, ready_of
from tests.support.names import ANNOTATION, CLAIM_UID, CLAIMS, REF_HASH, SANDBOXES
from tests.support.webhooks import add_webhook
from tests.support.world import NS, World, write_pod_status

Json = dict[str, Any]
HOLD: Json = {"finalizers": ["example.com/hold"]}


def at(seconds: float) -> str:
    """Return a moment after the epoch."""
    return format_rfc3339(EPOCH + timedelta(seconds=seconds), "milliseconds")


async def test_a_member_that_is_being_deleted_is_not_promised_to_a_client() -> None:
    """The member gets a deletionTimestamp (a finalizer holds it) just before the patch."""
    async with open_claims("m1", "m2") as world:
        store = world.plane.store
        store.patch(SANDBOXES, NS, "m1", {"metadata": HOLD})
        await world.settle()
        world.meanwhile("patch", "sandboxes", lambda: store.delete(SANDBOXES, NS, "m1"))
        await world.create(claim())
        promised = bound_name(world), ready_of(world)[0]
        assert "deletionTimestamp" in world.get("m1")["metadata"]
        store.patch(SANDBOXES, NS, "m1", {"metadata": {"finalizers": None}})
        await world.advance(3.0)
        assert bound_name(world) == "m2"
        assert promised == ("m2", "True")


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_a_refused_claim_that_expires_during_its_reconcile_ends(policy: str) -> None:
    """The moment passes while the whole claim is read; nothing else would bring it back."""
    async with open_claims() as world:
        now_s = world.clock.monotonic()
        end = {"shutdownTime": at(now_s + 0.5), "shutdownPolicy": policy}
        held = world.plane.hold("get", "sandboxclaims")
        world.plane.store.create(claim(env=[{"name": "A", "value": "1"}], lifecycle=end))
        await world.until(lambda: held.waiting)
        await world.clock.advance(1.0)
        held.release()
        await world.advance(600.0)
        if policy == "Delete":
            assert world.find(CLAIMS, "c") is None
        else:
            assert ready_of(world)[1] == "ClaimExpired"


async def test_the_end_of_a_claim_that_was_edited_is_told_once() -> None:
    """The watch does not show an edit of the claim yet when its time is over."""
    async with open_claims("m1") as world:
        await world.create(claim(lifecycle={"shutdownTime": at(20.0)}))
        assert bound_name(world) == "m1"
        await world.advance(5.0)
        held = world.plane.hold_events("sandboxclaims")
        world.plane.store.patch(
            CLAIMS, NS, "c", {"spec": {"lifecycle": {"shutdownPolicy": "Delete"}}}
        )
        world.forget_requests()
        while world.clock.monotonic() < 20.5:
            await world.moments(60)
            await world.clock.advance(0.01 if world.clock.monotonic() > 19.95 else 0.1)
        told = len(world.requests("patch", "sandboxclaims"))
        held.release()
        await world.settle()
        assert told <= 8, told


async def test_a_finished_claim_is_not_run_again() -> None:
    """The status of the Sandbox is unknown for a moment while the claim is retired."""
    async with open_claims("m1", templates=(placed(),)) as world:
        await world.create(claim(lifecycle={"ttlSecondsAfterFinished": 0}))
        assert bound_name(world) == "m1"
        await world.advance(3.0)
        held = world.plane.hold("get", "sandboxes")
        write_pod_status(world.plane, "m1", {"phase": "Succeeded"})
        for _ in range(40):
            await world.moments(300)
            if ready_of(world)[1] == "ClaimExpired":
                break
            await world.clock.advance(0.1)
        assert ready_of(world)[1] == "ClaimExpired"
        store = world.plane.store
        status = store.get(SANDBOXES, NS, "m1")["status"]
        for one in status["conditions"]:
            if one["type"] == "Ready":
                one["reason"] = "Other"
        store.patch(SANDBOXES, NS, "m1", {"status": status}, subresource="status", manager="other")
        await world.moments(500)
        await world.clock.advance(0.001)
        await world.moments(500)
        held.release()
        await world.advance(30.0)
        assert ready_of(world)[1] == "ClaimExpired"
        assert world.find(SANDBOXES, "c") is None


async def test_nothing_is_kept_of_a_claim_that_goes_while_its_patch_fails() -> None:
    """The claim goes while the patch of its adoption is under way, which then fails."""
    async with open_claims("m1") as world:
        store = world.plane.store
        world.plane.fail_next("patch", "sandboxes", 500, after=True)
        held = world.plane.hold("patch", "sandboxes")
        store.create(claim())
        await world.until(lambda: held.waiting)
        drop(world)
        await world.settle()
        held.release()
        await world.advance(60.0)
        assert world.whole.claims is not None
        assert world.find(CLAIMS, "c") is None
        assert not world.whole.claims._states


async def test_annotations_written_during_a_reconcile_take_nothing_from_it() -> None:
    """What it notes is remembered, though nothing was when the annotations had been written."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        assert world.whole.claims is not None
        states = world.whole.claims._states
        assert not states
        store = world.plane.store
        patches = world.plane.hold("patch", "sandboxclaims")
        store.patch(CLAIMS, NS, "c", {"metadata": {"annotations": {ANNOTATION: "another"}}})
        await world.until(lambda: patches.waiting)
        fetches = world.plane.hold("get", "sandboxes")
        store.patch(SANDBOXES, NS, "m1", {"metadata": {"labels": {REF_HASH: "another"}}})
        await world.until(lambda: fetches.waiting)
        (state,) = states.values()
        patches.release()
        await world.until(lambda: not state.pending)
        await world.moments(100)
        assert [one is state for one in states.values()] == [True]
        fetches.release()
        await world.settle()
        assert not states


def drop(world: World) -> bool:
    """Delete the claim."""
    world.plane.store.delete(CLAIMS, NS, "c", grace_s=0)
    return True


async def test_a_claim_edited_during_its_binding_keeps_its_sandbox() -> None:
    """The view with the edit is older than the status that binds, and so must not undo that."""
    async with open_pools(pool(replicas=0), claim()) as world:
        assert ready_of(world)[1] == "TemplateNotFound"
        held = world.plane.hold("create", "sandboxes")
        world.plane.store.create(template())
        await world.until(lambda: held.waiting)
        world.plane.hold_events("sandboxclaims")
        refused = {"spec": {"additionalPodMetadata": {"labels": {"plain": "x"}}}}
        world.plane.store.patch(CLAIMS, NS, "c", refused)
        held.release()
        await world.until(lambda: bound_name(world) == "c")
        await world.clock.advance(1.0)
        world.plane.faults.clear()
        await world.advance(3.0)
        assert (bound_name(world), ready_of(world)[1]) == ("c", "InvalidMetadata")


async def test_a_claim_whose_status_somebody_has_emptied_says_what_it_lacks() -> None:
    """An empty status is not one that was never written, nor one that names a Sandbox."""
    async with open_pools(pool(replicas=0)) as world:
        world.plane.store.create(claim())
        empty = {"status": {"sandbox": None}}
        world.plane.store.patch(CLAIMS, NS, "c", empty, subresource="status")
        await world.advance(1.0)
        assert ready_of(world)[1] == "TemplateNotFound"


async def test_what_a_webhook_adds_to_a_member_as_it_is_taken_over_holds() -> None:
    """The end that it sets in the patch of the adoption comes, though no patch of ours asked it."""
    async with open_claims("m1") as world:

        def end_soon(kind: Kind, obj: Json) -> None:
            if kind.plural == "sandboxes" and CLAIM_UID in obj["metadata"].get("labels", {}):
                obj["spec"] |= {"shutdownTime": at(world.clock.monotonic() + 5.0)}
                add.clear()

        add = [end_soon]
        add_webhook(world.plane, lambda kind, obj: add[0](kind, obj) if add else None)
        await world.create(claim())
        assert (bound_name(world), ready_of(world)[0]) == ("m1", "True")
        await world.advance(10.0)
        assert ready_of(world)[1] == "SandboxExpired"

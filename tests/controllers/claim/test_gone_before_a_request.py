"""What is gone, taken or there already when the request of a claim arrives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim
from tests.support.extensions import (
    bound_name,
    failed_claim_reconciles,
    open_claims,
    owner_of,
    ready_of,
    run_members,
)
from tests.support.names import CLAIM_UID, CLAIMS, SANDBOXES, TEMPLATE_HASH
from tests.support.world import NS, World, sandbox

Json = dict[str, Any]
RECREATE: Json = {"updateStrategy": {"type": "Recreate"}}


def delete(world: World, name: str) -> None:
    """Delete a Sandbox at once."""
    world.plane.store.delete(SANDBOXES, NS, name, grace_s=0)


async def test_a_member_that_goes_while_its_template_is_compared_is_passed_over() -> None:
    """It has no stamp, so the whole member is read; the claim gets the next one."""
    async with open_claims("m1", "m2", pool_spec=RECREATE) as world:
        for name in ("m1", "m2"):
            await world.patch("sandboxes", name, {"metadata": {"labels": {TEMPLATE_HASH: None}}})
        await world.advance(2.0)
        world.meanwhile("get", "sandboxes", lambda: delete(world, "m1"))
        await world.create(claim())
        assert bound_name(world) == "m2"
        assert ready_of(world)[0] == "True"
        assert not failed_claim_reconciles(world)


async def test_a_member_that_goes_after_it_was_refused_is_passed_over() -> None:
    """Whoever wrote to it before our patch deletes it before our look."""
    async with open_claims("m1", "m2") as world:
        world.plane.fail_next("patch", "sandboxes", 409)
        world.meanwhile("get", "sandboxes", lambda: delete(world, "m1"))
        await world.create(claim())
        assert bound_name(world) == "m2"
        assert ready_of(world)[0] == "True"
        assert not failed_claim_reconciles(world)


async def test_a_patch_that_is_refused_although_it_was_applied_has_taken_the_member() -> None:
    """As when a proxy sends it twice: a look shows the claim as owner, and nothing is repeated."""
    async with open_claims("m1", "m2") as world:
        world.plane.fail_next("patch", "sandboxes", 409, after=True)
        await world.create(claim())
        assert bound_name(world) == "m1"
        sent = [
            one for one in world.requests("patch", "sandboxes") if not one.what.endswith("status")
        ]
        assert [(one.name, one.code) for one in sent] == [("m1", 409)]
        assert owner_of(world, "m2") == "SandboxWarmPool/pool"


async def test_a_restored_sandbox_that_goes_before_it_is_looked_at_is_made_anew() -> None:
    """It has the claim's label and no owner; the claim gets one of its own in its place."""
    async with open_claims(replicas=0) as world:
        held = world.plane.hold_events("sandboxclaims")
        uid = str(world.plane.store.create(claim())["metadata"]["uid"])
        labelled = {"labels": {CLAIM_UID: uid}}
        restored = world.plane.store.create(sandbox("c", metadata=labelled))
        await world.moments(300)
        world.meanwhile("get", "sandboxes", lambda: delete(world, "c"))
        held.release()
        await world.settle()
        await world.advance(3.0)
        assert owner_of(world, "c") == "SandboxClaim/c"
        assert world.get("c")["metadata"]["uid"] != restored["metadata"]["uid"]
        assert bound_name(world) == "c"


async def test_a_sandbox_that_has_the_name_unseen_is_not_the_claims() -> None:
    """The create is refused, a look shows somebody else's: the claim says so, and leaves it."""
    async with open_claims(replicas=0) as world:
        held = world.plane.hold_events("sandboxes")
        world.plane.store.create(sandbox("c"))
        world.plane.store.create(claim())
        await world.until(lambda: world.requests("create", "sandboxes"))
        await world.moments(300)
        assert ready_of(world)[1] == "ReconcilerError"
        assert 'sandbox "c" is not controlled by claim "c"' in ready_of(world)[2]
        held.release()
        await world.advance(3.0)
        assert "ownerReferences" not in world.get("c")["metadata"]
        assert len(world.requests("create", "sandboxes")) == 1


async def test_a_sandbox_that_had_the_name_and_goes_is_replaced_soon() -> None:
    """The create is refused, and the look finds nothing: it is created a moment later."""
    async with open_claims(replicas=0) as world:
        held = world.plane.hold_events("sandboxes")
        theirs = world.plane.store.create(sandbox("c"))
        world.meanwhile("get", "sandboxes", lambda: delete(world, "c"))
        world.plane.store.create(claim())
        await world.until(lambda: world.requests("get", "sandboxes"))
        await world.moments(300)
        held.release()
        await world.advance(1.0)
        assert owner_of(world, "c") == "SandboxClaim/c"
        assert world.get("c")["metadata"]["uid"] != theirs["metadata"]["uid"]
        assert bound_name(world) == "c"


async def test_a_claim_that_goes_while_it_is_read_anew_is_let_go_of() -> None:
    """Its spec had become unreadable. Nothing is made for it, and nothing fails."""
    async with open_claims(replicas=0) as world:
        await world.create(claim(pool="missing"))
        held = world.plane.hold("get", "sandboxclaims", answers=False)
        world.plane.store.plant({**claim(), "spec": {"warmPoolRef": 7}})
        await world.until(lambda: held.waiting)
        world.plane.store.delete(CLAIMS, NS, "c", grace_s=0)
        held.release()
        await world.settle()
        await world.advance(60.0)
        assert not failed_claim_reconciles(world)
        assert not world.requests("create", "sandboxes")
        assert not world.controller.activity().cached["sandboxclaims"]


async def test_a_binding_that_others_always_overtake_is_tried_again_later() -> None:
    """Five conflicts in one reconcile end it; the next one completes what this one began."""
    async with open_claims("m1", "m2") as world:
        world.plane.fail_next("patch", "sandboxclaims/status", 409, times=5)
        world.plane.store.create(claim())
        await world.until(lambda: failed_claim_reconciles(world))
        assert len([1 for one in world.requests("patch", "sandboxclaims") if one.code == 409]) == 5
        assert bound_name(world) == ""
        await world.advance(10.0)
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "True"
        assert owner_of(world, "m2") == "SandboxWarmPool/pool"


async def test_a_pod_that_goes_while_the_sandboxs_own_write_is_under_way_is_not_promised() -> None:
    """The claim waits for that write; then there is no Pod that its client could use."""
    async with open_claims("m1") as world:
        store = world.plane.store
        held = world.plane.hold("patch", "pods")
        # The Sandbox's own reconcile begins to write to the Pod.
        other = {"spec": {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}}
        store.patch(SANDBOXES, NS, "m1", other)
        await world.until(lambda: held.waiting)
        store.create(claim())
        await world.until(lambda: owner_of(world, "m1") == "SandboxClaim/c")
        store.delete("pods", NS, "m1", grace_s=0)
        await world.moments(300)
        held.release()
        await world.settle()
        assert ready_of(world)[0] == "False"
        await run_members(world, "m1")
        await world.advance(5.0)
        assert ready_of(world)[0] == "True"


@pytest.mark.parametrize("number", [1, 2])
async def test_members_that_are_gone_when_they_are_taken_are_passed_over(number: int) -> None:
    """However many: the claim gets the first that is there, or one of its own."""
    names = ("m1", "m2", "m3")
    async with open_claims(*names, pool_spec={}) as world:
        gone = names[:number]
        world.plane.fail_next(
            "patch", "sandboxes", 404, times=10, match=lambda target: target.name in gone
        )
        await world.create(claim())
        assert bound_name(world) == names[number]
        assert ready_of(world)[0] == "True"

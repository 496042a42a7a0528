"""What is gone, taken or there already when the request of a claim arrives."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.request import Target
from tests.support.builders import claim
from tests.support.extensions import (
    add_member,
    bound_name,
    claim_reconciles,
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


FATES = pytest.mark.parametrize("is_made_anew", [False, True])


def delete(world: World, name: str, *, is_made_anew: bool = False) -> None:
    """Delete a Sandbox at once; another member may get its name."""
    world.plane.store.delete(SANDBOXES, NS, name, grace_s=0)
    if is_made_anew:
        add_member(world.plane, name)


@FATES
async def test_a_member_that_goes_while_its_template_is_compared_is_passed_over(
    *, is_made_anew: bool
) -> None:
    """It has no stamp, so the whole member is read; the claim gets the next one."""
    async with open_claims("m1", "m2", pool_spec=RECREATE) as world:
        # Their pool cannot compare them before.
        world.plane.fail_next("get", "sandboxes", 500, times=1000)
        for name in ("m1", "m2"):
            await world.patch("sandboxes", name, {"metadata": {"labels": {TEMPLATE_HASH: None}}})
        await world.advance(2.0)
        world.plane.faults.clear()
        world.meanwhile("get", "sandboxes", lambda: delete(world, "m1", is_made_anew=is_made_anew))
        await world.create(claim())
        assert bound_name(world) == "m2"
        assert ready_of(world)[0] == "True"
        assert not failed_claim_reconciles(world)
        assert not is_made_anew or owner_of(world, "m1") == "SandboxWarmPool/pool"


@FATES
async def test_a_member_that_goes_after_it_was_refused_is_passed_over(
    *, is_made_anew: bool
) -> None:
    """Whoever wrote to it before our patch deletes it before our look."""
    async with open_claims("m1", "m2") as world:
        world.plane.fail_next("patch", "sandboxes", 409)
        world.meanwhile("get", "sandboxes", lambda: delete(world, "m1", is_made_anew=is_made_anew))
        await world.create(claim())
        assert bound_name(world) == "m2"
        assert ready_of(world)[0] == "True"
        assert not failed_claim_reconciles(world)
        assert not is_made_anew or owner_of(world, "m1") == "SandboxWarmPool/pool"


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


@pytest.mark.parametrize("finalizers", [[], ["example.com/hold"]])
async def test_a_claim_that_goes_while_it_is_read_anew_is_let_go_of(finalizers: list[str]) -> None:
    """Its spec had become unreadable. Nothing is made for it, and nothing fails."""
    async with open_claims(replicas=0) as world:
        metadata = {"finalizers": finalizers}
        await world.create(claim(pool="missing", metadata=metadata))
        held = world.plane.hold("get", "sandboxclaims", answers=False)
        world.plane.store.plant({**claim(metadata=metadata), "spec": {"warmPoolRef": 7}})
        await world.until(lambda: held.waiting)
        if finalizers:
            mended = {"spec": {"warmPoolRef": {"name": "pool"}}}
            world.plane.store.patch(CLAIMS, NS, "c", mended)
        world.plane.store.delete(CLAIMS, NS, "c", grace_s=0)
        held.release()
        await world.settle()
        await world.advance(60.0)
        assert not failed_claim_reconciles(world)
        assert not world.requests("create", "sandboxes")
        assert world.controller.activity().cached["sandboxclaims"] == len(finalizers)


@pytest.mark.parametrize(("code", "tries"), [(409, 5), (422, 2)])
async def test_a_binding_that_is_always_refused_is_tried_again_later(code: int, tries: int) -> None:
    """Five conflicts in one reconcile end it; the next one completes what this one began.

    What is refused for its content is not sent again.
    """
    async with open_claims("m1", "m2") as world:
        world.plane.fail_next("patch", "sandboxclaims/status", code, times=tries)
        world.plane.store.create(claim())
        await world.until(lambda: failed_claim_reconciles(world) or bound_name(world))
        sent = [one for one in world.requests("patch", "sandboxclaims") if one.code == code]
        assert len(sent) == tries
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


@pytest.mark.claim_case(63, 81)
@pytest.mark.parametrize("number", [1, 2])
async def test_members_that_are_gone_when_they_are_taken_are_passed_over(number: int) -> None:
    """Claim case 81: each costs one write more; the next is taken in the same reconcile."""
    names = ("m1", "m2", "m3")
    async with open_claims(*names) as world:
        going = list(names[:number])

        def end(target: Target) -> bool:
            if target.name in going:
                going.remove(target.name)
                delete(world, target.name)
            return False

        world.plane.fail_next("patch", "sandboxes", 500, match=end)
        await world.create(claim())
        assert bound_name(world) == names[number]
        assert ready_of(world)[0] == "True"
        sent = [one.name for one in world.requests("patch", "sandboxes") if not one.subresource]
        assert sent == list(names[: number + 1])
        assert claim_reconciles(world) == 1

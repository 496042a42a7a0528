"""A claim that starts cold finds a Sandbox of its name: its own, or one of somebody else."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.request import Target
from tests.support.builders import claim, pool
from tests.support.extensions import (
    bound_name,
    claim_reconciles,
    get_claim,
    open_claims,
    owner_of,
    ready_of,
    run_members,
)
from tests.support.names import CLAIMS, LAUNCH_TYPE, REF_HASH
from tests.support.world import NS, controlled_by, sandbox

Json = dict[str, Any]


@pytest.mark.claim_case(8)
async def test_a_sandbox_of_the_claims_name_is_not_taken_from_nobody() -> None:
    """Claim case 8: ReconcilerError with the way out, and the Sandbox is left as it is.

    A name that its user frees is taken soon, however long that takes him.
    """
    async with open_claims(before=(sandbox("c"),)) as world:
        await world.create(claim())
        assert ready_of(world)[1] == "ReconcilerError"
        assert ready_of(world)[2] == (
            'Error seen: sandbox "c" is not controlled by claim "c". Please use a different'
            " claim name or delete the sandbox manually"
        )
        assert "ownerReferences" not in world.get("c")["metadata"]
        await world.advance(400.0)
        await world.delete("sandboxes", "c")
        await world.advance(10.0)
        assert owner_of(world, "c") == "SandboxClaim/c"


@pytest.mark.claim_case(9)
async def test_a_sandbox_that_is_the_claims_already_gets_its_missing_marks() -> None:
    """Claim case 9: bound; launch-type cold and the template's hash are added."""
    async with open_claims() as world:
        held = world.plane.store.create(claim(pool="later"))
        await world.settle()
        body = sandbox("c", metadata={"ownerReferences": [controlled_by(held)]})
        world.plane.store.create(body)
        await world.create(pool("later"))
        assert bound_name(world) == "c"
        labels = world.get("c")["metadata"]["labels"]
        assert labels[LAUNCH_TYPE] == "cold"
        assert REF_HASH in labels


@pytest.mark.claim_case(11)
async def test_a_create_that_collides_with_our_own_is_used_in_the_same_reconcile() -> None:
    """Claim case 11: AlreadyExists, a live GET shows the claim's own Sandbox: bound."""
    async with open_claims() as world:

        def somebody() -> None:
            owner = controlled_by(get_claim(world))
            world.plane.store.create(sandbox("c", metadata={"ownerReferences": [owner]}))

        world.meanwhile("create", "sandboxes", somebody)
        await world.create(claim())
        assert bound_name(world) == "c"
        assert claim_reconciles(world) <= 2


@pytest.mark.parametrize("code", [429, 503])
async def test_a_collision_is_looked_at_when_a_busy_server_says(code: int) -> None:
    """Retry-After is honoured where it is longer than the usual wait."""
    async with open_claims() as world:
        world.plane.fail_next("create", "sandboxes", 409, body=ALREADY_EXISTS)
        world.plane.fail_next("get", "sandboxes", code, retry_after=7)
        await world.create(claim())
        assert ready_of(world)[1] == "SandboxCreatePending"
        await world.advance(6.9)
        assert (len(world.requests("create", "sandboxes")), bound_name(world)) == (1, "")
        await world.advance(0.2)
        assert bound_name(world) == "c"


@pytest.mark.claim_case(11)
async def test_collisions_in_a_row_are_looked_at_ever_more_rarely() -> None:
    """Claim case 11: 200 ms, doubled each time up to five seconds; a successor begins anew."""
    async with open_claims() as world:
        for verb, code in (("create", 409), ("get", 500)):
            body = ALREADY_EXISTS if code == 409 else None
            world.plane.fail_next(verb, "sandboxes", code, times=1000, body=body)
        await world.create(claim())
        for wait_s in (0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0):
            tried = len(world.requests("create", "sandboxes"))
            await world.advance(wait_s - 0.01)
            assert len(world.requests("create", "sandboxes")) == tried
            await world.advance(0.01)
            assert len(world.requests("create", "sandboxes")) == tried + 1
        waits_for = "Sandbox already created; waiting for cache to converge"
        assert ready_of(world) == ("False", "SandboxCreatePending", waits_for)
        world.plane.store.delete(CLAIMS, NS, "c", grace_s=0)
        await world.create(claim())
        tried = len(world.requests("create", "sandboxes"))
        await world.advance(0.3)
        assert len(world.requests("create", "sandboxes")) == tried + 1


@pytest.mark.claim_case(12)
async def test_a_collision_says_nothing_where_a_sandbox_is_named_already() -> None:
    """Claim case 12: the whole status stays as it is, byte for byte, until the GET succeeds."""
    async with open_claims() as world:
        await world.create(claim())
        await run_members(world, "c")
        await world.advance(3.0)
        told = get_claim(world)["status"]
        assert ready_of(world)[0] == "True"
        world.plane.fail_next("create", "sandboxes", 409, times=2, body=ALREADY_EXISTS)

        def has_collided(_: Target) -> bool:
            return len(world.requests("create", "sandboxes")) > 1

        world.plane.fail_next("get", "sandboxes", 500, times=2, match=has_collided)
        await world.delete("sandboxes", "c")
        await world.advance(0.1)
        assert len(world.requests("create", "sandboxes")) == 2
        assert get_claim(world)["status"] == told
        await world.advance(2.0)
        assert ready_of(world)[0] == "False"
        assert owner_of(world, "c") == "SandboxClaim/c"


ALREADY_EXISTS: Json = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "AlreadyExists",
    "message": 'sandboxes.agents.x-k8s.io "c" already exists',
    "code": 409,
}

"""Refusals that look final and are not: what an admission policy refuses today it may let pass.

ValidatingAdmissionPolicies answer 422 unless they name another reason, webhooks without a code 400.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from lean_sandbox.model.times import format_rfc3339
from tests.support.builders import claim, placed, pool
from tests.support.clock import EPOCH
from tests.support.extensions import bound_name, members, open_claims, open_pools, ready_of
from tests.support.names import CLAIMS
from tests.support.world import condition, open_world, sandbox

LONG_S = 1200.0
SOON = format_rfc3339(EPOCH + timedelta(seconds=20.0))
refused_with = pytest.mark.parametrize("code", [400, 403, 422])


@refused_with
async def test_a_policy_that_is_refused_at_first_comes(code: int) -> None:
    """A refused NetworkPolicy is tried again; its pool is filled and its claim bound then."""
    async with open_pools() as world:
        world.plane.fail_next("create", "networkpolicies", code, times=3)
        await world.create(placed())
        await world.create(pool(replicas=2))
        await world.create(claim())
        await world.advance(LONG_S)
        assert len(world.requests("create", "networkpolicies")) == 4
        assert len(members(world)) == 2
        assert bound_name(world)


@refused_with
async def test_a_sandbox_whose_deletion_is_refused_at_first_goes(code: int) -> None:
    """A refused deletion of an expired Sandbox is tried again."""
    async with open_world() as world:
        spec = {"shutdownTime": SOON, "shutdownPolicy": "Delete"}
        await world.ready_sandbox(sandbox(spec=spec))
        world.plane.fail_next("delete", "sandboxes", code, times=2)
        await world.advance(LONG_S)
        assert world.find("sandboxes") is None


@refused_with
async def test_a_claim_whose_deletion_is_refused_at_first_goes(code: int) -> None:
    """A refused deletion of an expired claim is tried again."""
    async with open_claims("m1") as world:
        await world.create(claim(lifecycle={"shutdownTime": SOON, "shutdownPolicy": "Delete"}))
        world.plane.fail_next("delete", "sandboxclaims", code, times=2)
        await world.advance(LONG_S)
        assert world.find(CLAIMS, "c") is None


@refused_with
async def test_a_claim_whose_status_is_refused_at_first_expires(code: int) -> None:
    """A claim whose statuses are refused for a while is expired at its time all the same."""
    async with open_claims("m1") as world:
        await world.create(claim(lifecycle={"shutdownTime": SOON}))
        world.plane.fail_next("patch", "sandboxclaims/status", code, times=2)
        await world.advance(LONG_S)
        assert ready_of(world)[1] == "ClaimExpired"
        assert world.find("sandboxes", "m1") is None


@pytest.mark.parametrize("code", [400, 403])
async def test_a_status_that_is_refused_at_first_is_written(code: int) -> None:
    """A refused status is written later; a 422 is the schema's, and waits for an edit."""
    async with open_world() as world:
        await world.create(sandbox())
        world.plane.fail_next("patch", "sandboxes/status", code, times=2)
        await world.run_pod()
        await world.advance(LONG_S)
        assert condition(world.get(), "Ready")["status"] == "True"


async def test_an_answer_that_cannot_be_read_is_asked_for_again() -> None:
    """What stands in the way answers for the server, once: the Sandbox becomes Ready."""
    async with open_world() as world:
        world.plane.fail_next("get", "sandboxes", 200, times=2)
        await world.create(sandbox())
        await world.advance(1.0)
        await world.run_pod()
        await world.advance(LONG_S)
        assert condition(world.get(), "Ready")["status"] == "True"

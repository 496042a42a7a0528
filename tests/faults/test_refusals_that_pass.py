"""Refusals that look final and are not: what an admission policy refuses today it may let pass.

ValidatingAdmissionPolicies answer 422 unless they name another reason, webhooks without a code 400.
The server answers 422 as well to what breaks a rule of its kind, and names the field then.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lean_sandbox.model.times import format_rfc3339
from tests.support.builders import claim, placed, pool
from tests.support.clock import EPOCH
from tests.support.extensions import bound_name, members, open_claims, open_pools, ready_of
from tests.support.names import CLAIMS
from tests.support.refusals import BY_POLICY, BY_SCHEMA, BY_WEBHOOK, INVALID_BY_WEBHOOK, deny
from tests.support.volumes import WHOLE
from tests.support.world import condition, open_world, sandbox

Json = dict[str, Any]
LONG_S = 1200.0
SOON = format_rfc3339(EPOCH + timedelta(seconds=20.0))
passing = pytest.mark.parametrize(
    "answer",
    [
        pytest.param(BY_POLICY, id="policy"),
        pytest.param(BY_WEBHOOK, id="webhook"),
        pytest.param(INVALID_BY_WEBHOOK, id="invalid by webhook"),
    ],
)
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


@refused_with
async def test_a_status_that_is_refused_at_first_is_written(code: int) -> None:
    """A refused status is written later, unless the schema does not take it."""
    async with open_world() as world:
        await world.create(sandbox())
        world.plane.fail_next("patch", "sandboxes/status", code, times=2)
        await world.run_pod()
        await world.advance(LONG_S)
        assert condition(world.get(), "Ready")["status"] == "True"


@passing
@pytest.mark.parametrize("resource", ["pods", "services", "persistentvolumeclaims"])
async def test_a_child_that_a_policy_refuses_comes_once_the_policy_is_gone(
    resource: str, answer: Json
) -> None:
    """Refused with 422 for an hour: told as an error, tried ever less often, and then made."""
    async with open_world() as world:
        deny(world, f"create {resource}", answer)
        await world.create(sandbox(spec=WHOLE))
        await world.advance(3600.0)
        ready = condition(world.get(), "Ready")
        assert (ready["reason"], answer["message"] in ready["message"]) == ("ReconcilerError", True)
        assert 10 <= len(world.requests("create", resource)) <= 25
        world.plane.faults.clear()
        await world.advance(LONG_S)
        await world.run_pod()
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready; Service Exists"


@passing
@pytest.mark.parametrize("resource", ["pods", "services", "persistentvolumeclaims"])
async def test_a_repair_or_adoption_that_a_policy_refuses_is_done_once_the_policy_is_gone(
    resource: str, answer: Json
) -> None:
    """A child without its owner, of which every patch is refused with 422 for an hour."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec=WHOLE))
        name = "data-sb-1" if resource == "persistentvolumeclaims" else "sb-1"
        deny(world, f"patch {resource}", answer)
        await world.patch(resource, name, {"metadata": {"ownerReferences": []}})
        await world.advance(3600.0)
        ready = condition(world.get(), "Ready")
        assert (ready["reason"], answer["message"] in ready["message"]) == ("ReconcilerError", True)
        assert 10 <= len(world.requests("patch", resource)) <= 25
        world.plane.faults.clear()
        await world.advance(LONG_S)
        child = world.find(resource, name)
        assert child is not None
        assert child["metadata"]["ownerReferences"][0]["name"] == "sb-1"
        assert condition(world.get(), "Ready")["status"] == "True"


@passing
async def test_a_status_that_a_policy_refuses_is_written_once_the_policy_is_gone(
    answer: Json,
) -> None:
    """Refused with 422 for an hour: tried ever less often, then written."""
    async with open_world() as world:
        deny(world, "patch sandboxes/status", answer)
        await world.create(sandbox())
        await world.run_pod()
        await world.advance(3600.0)
        assert 10 <= len(world.requests("patch", "sandboxes")) <= 25
        world.plane.faults.clear()
        await world.advance(LONG_S)
        assert condition(world.get(), "Ready")["status"] == "True"


@passing
@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_while_a_policy_refuses_its_status_an_expired_sandbox_is_not_torn_down(
    policy: str, answer: Json
) -> None:
    """Nothing goes before it is said why; it goes once that may be said."""
    async with open_world() as world:
        spec = {"shutdownTime": SOON, "shutdownPolicy": policy}
        await world.ready_sandbox(sandbox(spec=spec))
        deny(world, "patch sandboxes/status", answer)
        await world.advance(600.0)
        assert "deletionTimestamp" not in world.pod()["metadata"]
        world.plane.faults.clear()
        await world.advance(LONG_S)
        if policy == "Delete":
            assert world.find("sandboxes") is None
        else:
            assert condition(world.get(), "Ready")["reason"] == "SandboxExpired"
            assert "deletionTimestamp" in world.pod()["metadata"]


async def test_what_the_schema_refuses_waits_for_an_edit() -> None:
    """A Pod that breaks a rule of its kind is shown as such and not tried again."""
    async with open_world() as world:
        deny(world, "create pods", BY_SCHEMA)
        await world.create(sandbox())
        await world.advance(3600.0)
        ready = condition(world.get(), "Ready")
        assert (ready["reason"], ready["message"]) == ("InvalidConfiguration", BY_SCHEMA["message"])
        assert len(world.requests("create", "pods")) == 1
        world.plane.faults.clear()
        await world.patch("sandboxes", "sb-1", {"spec": {"shutdownTime": "2100-01-01T00:00:00Z"}})
        assert world.find("pods") is not None


async def test_an_answer_that_cannot_be_read_is_asked_for_again() -> None:
    """What stands in the way answers for the server, once: the Sandbox becomes Ready."""
    async with open_world() as world:
        world.plane.fail_next("get", "sandboxes", 200, times=2)
        await world.create(sandbox())
        await world.advance(1.0)
        await world.run_pod()
        await world.advance(LONG_S)
        assert condition(world.get(), "Ready")["status"] == "True"

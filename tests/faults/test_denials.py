"""What admission denies is not the server's word: no code of it says that an object is gone.

A webhook chooses code, reason and details. A validator that looks for something else, and passes on
what it has got, denies with the 404 or the 409 of that. A ValidatingAdmissionPolicy has the choice
of three codes.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim
from tests.support.extensions import bound_name, open_claims
from tests.support.refusals import denied_by_policy, denied_by_webhook, deny
from tests.support.suspension import suspend
from tests.support.volumes import WHOLE
from tests.support.world import HASH_LABEL, condition, open_world, sandbox

Json = dict[str, Any]
LONG_S = 1200.0
each_denial = pytest.mark.parametrize(
    "denial",
    [
        denied_by_webhook(400),
        denied_by_webhook(401, "Unauthorized"),
        denied_by_webhook(404, "NotFound"),
        denied_by_webhook(404),
        denied_by_webhook(409, "AlreadyExists"),
        denied_by_webhook(409, "Conflict"),
        denied_by_webhook(410, "Expired"),
        denied_by_policy(403, "Forbidden"),
        denied_by_policy(413, "RequestEntityTooLarge"),
        denied_by_policy(422, "Invalid"),
    ],
    ids=lambda denial: f"{denial['code']} {denial['reason']} {denial['message'].split()[0]}",
)


@each_denial
async def test_a_sandbox_is_not_suspended_while_its_pod_may_not_be_deleted(denial: Json) -> None:
    """Suspended says so, and is True once the Pod is gone."""
    async with open_world() as world:
        await world.ready_sandbox()
        deny(world, "delete pods", denial)
        await suspend(world)
        await world.advance(60.0)
        assert "deletionTimestamp" not in world.pod()["metadata"]
        assert condition(world.get(), "Suspended")["status"] == "False"
        assert "not now" in condition(world.get(), "Ready")["message"]
        world.plane.faults.clear()
        await world.advance(LONG_S)
        await world.delete("pods", "sb-1")
        assert condition(world.get(), "Suspended")["status"] == "True"


@each_denial
@pytest.mark.parametrize("resource", ["pods", "services", "persistentvolumeclaims"])
async def test_a_child_comes_once_its_create_is_not_denied_any_more(
    resource: str, denial: Json
) -> None:
    """Until then it is tried at growing intervals, and the Sandbox says why it is not Ready."""
    async with open_world() as world:
        deny(world, f"create {resource}", denial)
        await world.create(sandbox(spec=WHOLE))
        await world.advance(60.0)
        assert world.asked()[f"create {resource}"] <= 16
        assert not world.asked()[f"get {resource}"] or resource == "pods"
        assert "not now" in condition(world.get(), "Ready")["message"]
        world.plane.faults.clear()
        await world.advance(LONG_S)
        await world.run_pod()
        assert world.is_ready()


@each_denial
async def test_a_pod_that_may_not_be_written_is_tried_at_growing_intervals(denial: Json) -> None:
    """It is there all the time, so nothing is made anew."""
    async with open_world() as world:
        await world.ready_sandbox()
        uid = world.pod()["metadata"]["uid"]
        deny(world, "patch pods", denial)
        template = {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}
        await world.patch("sandboxes", "sb-1", {"spec": template})
        await world.advance(60.0)
        assert world.asked()["patch pods"] <= 16
        assert "not now" in condition(world.get(), "Ready")["message"]
        world.plane.faults.clear()
        await world.advance(LONG_S)
        assert world.is_ready()
        assert world.pod()["metadata"]["labels"]["a"] == "b"
        assert world.pod()["metadata"]["labels"][HASH_LABEL]
        assert world.pod()["metadata"]["uid"] == uid
        assert world.asked()["create pods"] == 1


@each_denial
async def test_a_sandbox_that_may_not_be_written_is_not_forgotten(denial: Json) -> None:
    """Its status is written once that is not denied any more."""
    async with open_world() as world:
        deny(world, "patch sandboxes/status", denial)
        await world.create(sandbox())
        await world.advance(60.0)
        world.plane.faults.clear()
        await world.run_pod()
        await world.advance(LONG_S)
        assert world.is_ready()


@each_denial
async def test_a_member_that_may_not_be_taken_over_is_passed_over(denial: Json) -> None:
    """The claim is served by another one."""
    async with open_claims("m1", "m2") as world:
        deny(world, "patch sandboxes", denial, times=1)
        await world.create(claim())
        await world.advance(5.0)
        assert bound_name(world) == "m2"

"""What a claim passes on: troubles of its Sandbox to the client, edits of the client to the Pod."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim, template
from tests.support.extensions import (
    bound_name,
    failed_claim_reconciles,
    get_claim,
    open_claims,
    owner_of,
    ready_of,
    run_members,
)
from tests.support.names import CLAIMS, POD_NAME, SANDBOXES
from tests.support.suspension import resume, suspend
from tests.support.world import NS, condition

Json = dict[str, Any]
SNAPSHOT = "podsnapshot.gke.io/ps-name"
TERMINATING: Json = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "Forbidden",
    "code": 403,
    "message": "namespace ns is being terminated",
    "details": {"causes": [{"reason": "NamespaceTerminating", "message": "", "field": ""}]},
}


async def test_a_configuration_that_cannot_work_is_told_as_the_sandbox_tells_it() -> None:
    """Law (v1.0.4): InvalidConfiguration with the server's words, which ends a client's wait."""
    async with open_claims(templates=(template(service=True),)) as world:
        await world.create(claim("a.b"))
        await run_members(world, "a.b")
        await world.advance(3.0)
        theirs = condition(world.get("a.b"), "Ready")
        assert ready_of(world, "a.b") == ("False", "InvalidConfiguration", theirs["message"])
        # By then it says, too, since when it is known.
        await world.advance(40.0)
        world.forget_requests()
        await world.advance(600.0)
        assert not world.asked()


async def test_in_a_namespace_that_ends_a_claim_is_tried_every_half_minute() -> None:
    """Law (v1.0.3): no error, no status, no hot loop; if the end does not come it is served."""
    async with open_claims() as world:
        world.plane.fail_next("create", "sandboxes", 403, times=1000, body=TERMINATING)
        await world.create(claim())
        await world.advance(300.0)
        assert 2 <= len(world.requests("create", "sandboxes")) <= 11
        assert failed_claim_reconciles(world) == 0
        assert not get_claim(world).get("status")
        world.plane.faults.clear()
        await world.advance(31.0)
        assert owner_of(world, "c") == "SandboxClaim/c"


async def test_an_edit_of_the_claim_reaches_a_suspended_sandbox() -> None:
    """Law: set, changed and removed while there is no Pod; the mode is nobody's but the user's."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        await suspend(world, "m1")
        await world.delete("pods", "m1")
        await world.advance(3.0)
        assert ready_of(world)[1] == "SandboxSuspended"
        assert "podIPs" not in get_claim(world)["status"]["sandbox"]
        for value in ("one", "two", None):
            extra = {"additionalPodMetadata": {"annotations": {SNAPSHOT: value}}}
            await world.patch(CLAIMS, "c", {"spec": extra})
            held = world.get("m1")["spec"]
            found = held["podTemplate"].get("metadata", {}).get("annotations", {})
            assert found.get(SNAPSHOT) == value
            assert held["operatingMode"] == "Suspended"
        assert bound_name(world) == "m1"
        await resume(world, "m1")
        await run_members(world, "m1")
        await world.advance(3.0)
        assert ready_of(world)[0] == "True"


async def test_of_a_sandbox_on_its_way_out_a_claim_says_what_it_says() -> None:
    """Law: also once somebody else has written its status, which its own controller reads no more.

    A finalizer may keep it for long, and until it is gone it is the claim's.
    """
    async with open_claims() as world:
        await world.create(claim())
        await world.run_pod("c")
        await world.advance(3.0)
        await world.patch("sandboxes", "c", {"metadata": {"finalizers": ["example.com/hold"]}})
        await world.delete("sandboxes", "c")
        conditions = world.get("c")["status"]["conditions"]
        written = [{**one, "message": "as another controller has it"} for one in conditions]
        world.plane.store.patch(
            SANDBOXES, NS, "c", {"status": {"conditions": written}}, subresource="status"
        )
        await world.advance(3.0)
        assert ready_of(world) == ("True", "DependenciesReady", "as another controller has it")
        assert get_claim(world)["status"]["sandbox"]["podIPs"] == ["10.244.0.5"]


@pytest.mark.parametrize("is_status", [True, False])
async def test_what_is_written_of_a_bound_sandbox_is_looked_at(is_status: bool) -> None:  # noqa: FBT001
    """Nothing records who writes to it (binding has ended that), and no column shows addresses.

    One GET, and a status that is not so is put right; its claim is not told of it in between.
    """
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        address = get_claim(world)["status"]["sandbox"]["podIPs"]
        world.forget_requests()
        if is_status:
            told = {"status": {"podIPs": ["192.0.2.1"]}}
            await world.patch(SANDBOXES, "m1", told, subresource="status")
        else:
            await world.patch(SANDBOXES, "m1", {"metadata": {"labels": {"a": "b"}}})
        await world.advance(3.0)
        assert world.get("m1")["status"]["podIPs"] == address
        assert len(world.requests("get", "sandboxes")) == 1
        assert dict(world.writes()) == ({"patch sandboxes/status": 1} if is_status else {})


async def test_a_readiness_that_comes_back_while_its_loss_is_passed_on_is_told() -> None:
    """The claim is on its way to say that the Pod is not ready when it is again, as it was told."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        held = world.plane.hold("patch", "sandboxclaims/status", answers=False, times=1)
        await world.run_pod("m1", ready=False)
        await world.advance(1.0)
        assert held.waiting
        await world.run_pod("m1")
        await world.advance(1.0)
        assert condition(world.get("m1"), "Ready")["status"] == "True"
        held.release()
        await world.advance(1.0)
        assert ready_of(world)[0] == "True"


async def test_a_status_behind_an_annotation_of_a_bound_sandbox_is_put_right() -> None:
    """Somebody writes it just before an annotation that names no Pod is taken away."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        address = world.get("m1")["status"]["podIPs"]
        held = world.plane.hold("patch", "sandboxes", answers=False, times=1)
        await world.patch(SANDBOXES, "m1", {"metadata": {"annotations": {POD_NAME: "nothing"}}})
        await world.advance(1.0)
        assert held.waiting
        odd = {"status": {"podIPs": ["192.0.2.1"]}}
        world.plane.store.patch(SANDBOXES, NS, "m1", odd, subresource="status")
        await world.settle()
        held.release()
        await world.advance(3.0)
        assert world.get("m1")["status"]["podIPs"] == address


async def test_the_generation_of_which_a_sandbox_has_finished_is_passed_on() -> None:
    """An edit of the Sandbox changes nothing else of the condition, and wakes the claim."""
    async with open_claims() as world:
        await world.create(claim())
        await world.pod_status("c", phase="Succeeded")
        await world.advance(2.0)
        await world.patch("sandboxes", "c", {"spec": {"service": False}})
        await world.advance(3.0)
        theirs = condition(world.get("c"), "Finished")
        assert theirs["observedGeneration"] == world.get("c")["metadata"]["generation"]
        assert condition(get_claim(world), "Finished") == theirs

"""The end of a claim: told first, then carried out as its policy says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane
from tests.support.builders import claim, pool, template
from tests.support.clients import cluster_admin
from tests.support.clock import EPOCH, FakeClock
from tests.support.expiry import at, ends
from tests.support.extensions import (
    bound_name,
    events_of,
    failed_claim_reconciles,
    get_claim,
    open_claims,
    owner_of,
    ready_of,
    run_members,
    writes_in_order,
)
from tests.support.names import CLAIMS, SANDBOXES
from tests.support.world import CONTROLLER, NS, World, condition, pod_conditions, sandbox

Json = dict[str, Any]

EXPIRED = ("False", "ClaimExpired", "Claim expired. Sandbox cleanup initiated.")


async def finish(world: World, name: str) -> None:
    """Let the Pod of a Sandbox end well."""
    await world.pod_status(name, phase="Succeeded")
    await world.advance(2.0)


async def test_a_claim_whose_end_comes_while_its_status_is_written_ends() -> None:
    """It was not due before the write, and nothing but the reconcile knows of the end after it."""
    async with open_claims("m1") as world:
        held = world.plane.hold("patch", "sandboxclaims")
        world.plane.store.create(ends(10.0))
        await world.until(lambda: held.waiting)
        world.clock.leap(10.0)
        held.release()
        await world.advance(1.0)
        assert ready_of(world) == EXPIRED


@pytest.mark.claim_case(97, 98)
async def test_a_retained_claim_is_marked_before_its_sandbox_goes() -> None:
    """Claim case 97: status, then DELETE; 98: of the adopted Sandbox; the claim stays, unbound."""
    async with open_claims("m1") as world:
        await world.create(ends(10.0))
        assert bound_name(world) == "m1"
        await world.advance(5.0)
        world.forget_requests()
        await world.advance(5.0)
        writes = [one for one in writes_in_order(world) if "pool" not in one and "pods" not in one]
        assert writes.index("patch sandboxclaims/status") < writes.index("delete sandboxes")
        assert world.find("sandboxes", "m1") is None
        assert ready_of(world) == EXPIRED
        assert get_claim(world)["status"]["sandbox"] == {}
        assert events_of(world, "ClaimExpired") == [
            ("ClaimExpired", "Claim Expired", "Claim expired")
        ]
        world.forget_requests()
        await world.advance(60.0)
        assert not [one for one in world.asked() if "claims" in one]


async def test_the_sandbox_of_a_retained_claim_is_deleted_once() -> None:
    """However long it takes to go, and however often its claim is looked at."""
    async with open_claims("m1") as world:
        await world.patch("sandboxes", "m1", {"metadata": {"finalizers": ["example.com/wait"]}})
        await world.create(ends(10.0))
        await world.advance(12.0)
        for number in range(3):
            await world.patch(CLAIMS, "c", {"metadata": {"labels": {"turn": f"{number}"}}})
        assert bound_name(world) == "m1"
        assert len(world.requests("delete", "sandboxes")) == 1
        await world.patch("sandboxes", "m1", {"metadata": {"finalizers": None}})
        await world.advance(1.0)
        assert bound_name(world) == ""


@pytest.mark.claim_case(99)
async def test_a_sandbox_of_another_claim_outlives_the_expired_one() -> None:
    """Claim case 99: it is told that nothing was deleted, and nothing is named any more."""
    async with open_claims("m1") as world:
        await world.create(claim("other"))
        assert bound_name(world, "other") == "m1"
        expired = {"type": "Ready", "status": "False", "reason": "ClaimExpired", "message": ""}
        status = {
            "conditions": [{**expired, "lastTransitionTime": at(0.0)}],
            "sandbox": {"name": "m1", "podIPs": ["10.244.0.5"]},
        }
        world.plane.store.create(ends(0.0))
        world.plane.store.patch(CLAIMS, "ns", "c", {"status": status}, subresource="status")
        await world.advance(3.0)
        assert owner_of(world, "m1") == "SandboxClaim/other"
        assert ready_of(world) == (
            "False",
            "ClaimExpired",
            (
                'Claim expired. sandbox not owned by this claim: sandbox "m1" is not owned by claim'
                ' "c"; deletion skipped.'
            ),
        )
        assert get_claim(world)["status"]["sandbox"] == {}
        assert not world.requests("delete", "sandboxes")
        assert failed_claim_reconciles(world) == 0
        world.forget_requests()
        await world.advance(60.0)
        assert not [one for one in world.asked() if "claims" in one]


@pytest.mark.claim_case(99)
async def test_a_foreign_namesake_of_an_expired_claim_is_not_called_cleaned_up() -> None:
    """Claim case 99: it stays, and the claim says so."""
    async with open_claims(before=(sandbox("c"),)) as world:
        await world.create(ends(5.0))
        await world.advance(20.0)
        _, reason, message = ready_of(world)
        assert reason == "ClaimExpired"
        assert message.startswith("Claim expired. sandbox not owned by this claim: ")
        assert message.endswith("; deletion skipped.")
        assert world.find("sandboxes", "c") is not None


@pytest.mark.claim_case(99)
async def test_what_was_said_of_a_foreign_sandbox_is_said_by_the_next_process() -> None:
    """Claim case 99: status names none any more, and says until an edit what was skipped."""
    clock = FakeClock()
    async with ControlPlane(clock=clock) as plane:
        async with open_claims(plane=plane, clock=clock) as world:
            await world.create(sandbox("m1"))
            await world.create(ends(0.0))
            await world.advance(3.0)
            assert ready_of(world) == EXPIRED
            named = {"status": {"sandbox": {"name": "m1"}}}
            await world.patch(CLAIMS, "c", named, subresource="status")
            await world.advance(3.0)
            told = ready_of(world)
            assert told[2].endswith("; deletion skipped.")
            assert not bound_name(world)
        async with open_claims(plane=plane, clock=clock) as fresh:
            await fresh.advance(3.0)
            assert ready_of(fresh) == told
            await fresh.patch(CLAIMS, "c", {"spec": ends(1.0)["spec"]})
            await fresh.advance(3.0)
            assert ready_of(fresh) == EXPIRED
            claim_now = get_claim(fresh)
            generation = claim_now["metadata"]["generation"]
            assert condition(claim_now, "Ready")["observedGeneration"] == generation == 2


@pytest.mark.claim_case(100)
async def test_delete_takes_the_claim_itself() -> None:
    """Claim case 100: the status first, then one DELETE of the claim; the rest is collected."""
    async with open_claims("m1") as world:
        await world.create(ends(10.0, "Delete"))
        await world.advance(9.0)
        assert world.find(CLAIMS, "c") is None
        assert world.find("sandboxes", "m1") is None
        assert not world.requests("delete", "sandboxes")
        assert len(world.requests("delete", "sandboxclaims")) == 1
        assert ("ClaimExpired", "Deleting", "Deleting Claim (ShutdownPolicy=Delete)") in events_of(
            world
        )


@pytest.mark.claim_case(101)
async def test_delete_foreground_keeps_the_claim_until_its_sandbox_is_gone() -> None:
    """Claim case 101: the claim waits with a deletionTimestamp."""
    async with open_claims("m1") as world:
        await world.patch("sandboxes", "m1", {"metadata": {"finalizers": ["example.com/wait"]}})
        await world.create(ends(10.0, "DeleteForeground"))
        await world.advance(9.0)
        assert get_claim(world)["metadata"]["deletionTimestamp"]
        assert sorted(events_of(world, "ClaimExpired")) == [
            ("ClaimExpired", "Claim Expired", "Claim expired"),
            ("ClaimExpired", "Deleting", "Deleting Claim (ShutdownPolicy=DeleteForeground)"),
        ]
        await world.patch("sandboxes", "m1", {"metadata": {"finalizers": None}})
        await world.advance(5.0)
        assert world.find(CLAIMS, "c") is None


@pytest.mark.claim_case(102)
async def test_the_time_to_live_counts_from_the_end_of_the_pod() -> None:
    """Claim case 102: Finished is mirrored at once; 120 s later the claim expires."""
    async with open_claims("m1") as world:
        await world.create(claim(lifecycle={"ttlSecondsAfterFinished": 120}))
        await finish(world, "m1")
        finished = condition(get_claim(world), "Finished")
        assert (finished["status"], finished["reason"]) == ("True", "PodSucceeded")
        assert ready_of(world)[1] == "PodSucceeded"
        await world.advance(110.0)
        assert ready_of(world)[1] == "PodSucceeded"
        await world.advance(12.0)
        assert ready_of(world)[1] == "ClaimExpired"


@pytest.mark.claim_case(103)
async def test_no_time_to_live_ends_the_claim_with_its_pod() -> None:
    """Claim case 103: one write tells Finished and ClaimExpired; Finished outlives the Sandbox."""
    async with open_claims("m1") as world:
        await world.create(claim(lifecycle={"ttlSecondsAfterFinished": 0}))
        await world.advance(3.0)
        world.forget_requests()
        await finish(world, "m1")
        assert world.find("sandboxes", "m1") is None
        assert ready_of(world) == EXPIRED
        assert condition(get_claim(world), "Finished")["reason"] == "PodSucceeded"
        # One for both conditions, one when the Sandbox is gone.
        assert len(world.requests("patch", "sandboxclaims")) == 2


async def test_a_deleted_pod_does_not_end_its_claim() -> None:
    """A kubelet sets Failed on a Pod that is deleted: no time to live begins, a new Pod comes.

    The claim passes on that the Pod terminates.
    """
    async with open_claims("m1") as world:
        await world.create(claim(lifecycle={"ttlSecondsAfterFinished": 0}))
        await world.delete("pods", "m1", grace_s=30)
        assert ready_of(world) == ("False", "PodTerminating", "Pod is terminating")
        await world.pod_status("m1", phase="Failed", conditions=pod_conditions(ready=False))
        await world.advance(30.0)
        assert ready_of(world)[1] == "PodTerminating"
        await world.delete("pods", "m1")
        await run_members(world, "m1")
        assert ready_of(world)[0] == "True"
        assert bound_name(world) == "m1"
        types = [one["type"] for one in get_claim(world)["status"]["conditions"]]
        assert types == ["Ready"]


@pytest.mark.claim_case(104)
@pytest.mark.parametrize(("shutdown_s", "ttl_s"), [(20.0, 600), (600.0, 15)])
async def test_the_earlier_end_counts(shutdown_s: float, ttl_s: int) -> None:
    """Claim case 104: shutdownTime and time to live, in both directions."""
    async with open_claims("m1") as world:
        await world.create(ends(shutdown_s, ttlSecondsAfterFinished=ttl_s))
        await finish(world, "m1")
        assert ready_of(world)[1] == "PodSucceeded"
        await world.advance(20.0)
        assert ready_of(world)[1] == "ClaimExpired"


@pytest.mark.claim_case(105)
async def test_a_finished_claim_without_a_time_to_live_stays() -> None:
    """Claim case 105: nothing expires."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await finish(world, "m1")
        await world.advance(200.0)
        assert ready_of(world)[1] == "PodSucceeded"
        assert bound_name(world) == "m1"


@pytest.mark.claim_case(106, 107)
async def test_a_claim_born_expired_gets_nothing_unless_it_has_a_new_future() -> None:
    """Claim case 106: no Sandbox is made or taken; 107: expiry is not latched."""
    async with open_claims("m1") as world:
        await world.create(ends(0.0))
        await world.advance(1.0)
        assert ready_of(world) == EXPIRED
        assert world.find("sandboxes", "c") is None
        assert owner_of(world, "m1") == "SandboxWarmPool/pool"
        await world.patch(CLAIMS, "c", {"spec": {"lifecycle": {"shutdownTime": at(600.0)}}})
        assert bound_name(world) == "m1"
        assert ready_of(world)[0] == "True"


@pytest.mark.claim_case(108)
async def test_a_sandbox_that_expires_on_its_own_is_only_told() -> None:
    """Claim case 108: SandboxExpired with fixed words; the claim deletes nothing."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.patch("sandboxes", "m1", {"spec": {"shutdownTime": at(5.0)}})
        await world.advance(6.0)
        assert ready_of(world) == (
            "False",
            "SandboxExpired",
            "Underlying Sandbox resource has expired independently of the Claim.",
        )
        assert not world.requests("delete", "sandboxes")


@pytest.mark.claim_case(109)
async def test_a_claim_on_its_way_out_is_left_alone() -> None:
    """Claim case 109: no writes."""
    async with open_claims("m1") as world:
        body = claim(metadata={"finalizers": ["example.com/wait"]})
        await world.create(body)
        await world.advance(3.0)
        world.forget_requests()
        await world.delete(CLAIMS, "c")
        await run_members(world, "m1")
        await world.advance(3.0)
        assert not [one for one in world.asked() if "claims" in one]
        assert bound_name(world) == "m1"


@pytest.mark.parametrize("ahead_s", [-600.0, 600.0])
@pytest.mark.parametrize(
    "lifecycle", [{"shutdownTime": at(60.0)}, {"ttlSecondsAfterFinished": 50}], ids=["time", "ttl"]
)
async def test_with_a_clock_apart_from_the_servers_a_claim_ends_at_its_time(
    lifecycle: Json, ahead_s: float
) -> None:
    """With ten minutes too many or too few on the controller's clock, a minute is a minute."""
    clock = FakeClock(EPOCH + timedelta(seconds=ahead_s))
    async with ControlPlane(clock=clock.elsewhere(-ahead_s)) as plane:
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
        plane.store.create(cluster_admin(CONTROLLER))
        plane.store.create(template())
        plane.store.create(pool(replicas=0))
        async with open_claims(plane=plane, clock=clock) as world:
            await world.create(claim(lifecycle=lifecycle))
            await world.run_pod("c")
            await finish(world, "c")
            await world.advance(43.0)
            assert ready_of(world)[1] == "PodSucceeded"
            await world.advance(25.0)
            assert ready_of(world)[1] == "ClaimExpired"


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_an_end_postponed_just_before_it_comes_does_not_come(policy: str) -> None:
    """Its user moves the end before it comes; the watch tells of that half a second late."""
    async with open_claims("m1") as world:
        end = {"shutdownTime": at(20.0), "shutdownPolicy": policy}
        made = await world.create(claim(lifecycle=end))
        assert bound_name(world) == "m1"
        uid = world.get("m1")["metadata"]["uid"]
        await world.advance(10.0)
        held = world.plane.hold_events("sandboxclaims")
        world.plane.store.patch(
            CLAIMS, NS, "c", {"spec": {"lifecycle": {"shutdownTime": at(3600.0)}}}
        )
        while world.clock.monotonic() < 20.5:
            await world.moments(100)
            await world.clock.advance(0.1)
        held.release()
        await world.advance(5.0)
        stored = world.find(CLAIMS, "c")
        assert stored is not None
        assert stored["metadata"]["uid"] == made["metadata"]["uid"]
        alive = world.find(SANDBOXES, "m1")
        assert alive is not None
        assert alive["metadata"]["uid"] == uid
        assert "deletionTimestamp" not in alive["metadata"]

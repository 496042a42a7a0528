"""A status that was written without an answer: what is stored is doubted, not remembered as before.

Before the controller knows how its write ended everything turns back, so that what it would write
next is what it believes to be stored already.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lean_sandbox.controllers.warm import Counts
from lean_sandbox.local.http.faults import Loss
from lean_sandbox.model.times import format_rfc3339
from lean_sandbox.watch.kind import Key
from tests.support.builders import claim as claim_body
from tests.support.extensions import bound_name, get_claim, member_names, open_claims, run_members
from tests.support.names import POOLS, SANDBOXES
from tests.support.world import (
    NS,
    World,
    condition,
    open_world,
    running_status,
    sandbox,
    write_pod_status,
)

Json = dict[str, Any]
# A request without an answer is given up within this time, and everything repeated.
_LONG_S = 60.0
SUSPENDED: Json = {"operatingMode": "Suspended"}
LOSSES = pytest.mark.parametrize("loss", [Loss.SILENCE, Loss.RESET, 500, 504])


def set_pod(world: World, name: str, *, ready: bool, ip: str = "10.244.0.5") -> None:
    """Write what a kubelet writes."""
    write_pod_status(world.plane, name, running_status(ready=ready, ips=(ip,)))


def set_mode(world: World, mode: str) -> None:
    """Suspend or resume the Sandbox as a user does."""
    world.plane.store.patch(SANDBOXES, NS, "sb-1", {"spec": {"operatingMode": mode}})


async def turn_back(world: World, resource: str, loss: int | Loss, name: str, ip: str) -> None:
    """Lose the answer to a status, and let the Pod become what it was before it is known."""
    world.plane.fail_next("patch", f"{resource}/status", loss, after=True)
    written = len(world.requests("patch", resource))
    set_pod(world, name, ready=ip != "10.244.0.5", ip=ip)
    for _ in range(40):
        await world.moments(20)
        if len(world.requests("patch", resource)) > written:
            break
        await world.clock.advance(0.1)
    assert len(world.requests("patch", resource)) > written
    set_pod(world, name, ready=True)
    if world.plane.faults.waiting:
        await world.server_clock.advance(_LONG_S)
    await world.advance(_LONG_S)


@LOSSES
@pytest.mark.parametrize("ip", ["10.244.0.5", "10.244.0.6"])
async def test_a_sandbox_tells_what_its_pod_is(loss: int | Loss, ip: str) -> None:
    """Ready and address of the last state are stored, whatever an unanswered write had stored."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.advance(3.0)
        await turn_back(world, "sandboxes", loss, "sb-1", ip)
        assert condition(world.get(), "Ready")["status"] == "True"
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]


@LOSSES
@pytest.mark.parametrize("ip", ["10.244.0.5", "10.244.0.6"])
async def test_a_claim_tells_what_its_sandbox_is(loss: int | Loss, ip: str) -> None:
    """Ready is that of the Sandbox in the end."""
    async with open_claims("m1") as world:
        await world.create(claim_body())
        await world.advance(3.0)
        await run_members(world, *member_names(world))
        await world.advance(3.0)
        await turn_back(world, "sandboxclaims", loss, "m1", ip)
        assert condition(get_claim(world), "Ready")["status"] == "True"
        told = get_claim(world)["status"]["sandbox"]
        assert (told["name"], told["podIPs"]) == ("m1", ["10.244.0.5"])


@LOSSES
async def test_a_pool_tells_how_many_are_ready(loss: int | Loss) -> None:
    """The number of Ready members is right in the end."""
    async with open_claims("m1", "m2") as world:
        await turn_back(world, "sandboxwarmpools", loss, "m1", "10.244.0.5")
        status = world.plane.store.get(POOLS, NS, "pool")["status"]
        assert (status["replicas"], status.get("readyReplicas")) == (2, 2)


@LOSSES
async def test_a_member_is_not_handed_out_before_its_unanswered_status_is_read(
    loss: int | Loss,
) -> None:
    """The status may tell of its end: a claim would be given a Sandbox that has expired."""
    async with open_claims("m1") as world:
        at = format_rfc3339(world.clock.now() + timedelta(seconds=20.0))
        await world.patch("sandboxes", "m1", {"spec": {"shutdownTime": at}})
        await world.advance(19.0)
        events = world.plane.hold_events("sandboxes")
        gets = world.plane.hold("get", "sandboxes", answers=False)
        world.plane.fail_next("patch", "sandboxes/status", loss, after=True)
        while not gets.waiting:
            await world.clock.advance(0.1)
            await world.moments(20)
            if world.plane.faults.waiting and not gets.waiting:
                await world.server_clock.advance(_LONG_S)
        world.plane.store.create(claim_body())
        await world.moments(200)
        gets.release()
        events.release()
        await world.advance(10.0)
        assert bound_name(world) == "c"
        # Nobody got the member that had ended: its pool has replaced it.
        assert world.find("sandboxes", "m1") is None
        assert len(member_names(world)) == 1


@LOSSES
@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_member_whose_status_was_not_answered_stays_in_the_warm_queue(
    loss: int | Loss, *, carried_out: bool
) -> None:
    """Once its status is read it is handed out as before."""
    async with open_claims("m1") as world:
        await world.advance(3.0)
        world.plane.fail_next("patch", "sandboxes/status", loss, after=carried_out)
        set_pod(world, "m1", ready=True, ip="10.244.0.6")
        await world.moments(100)
        if world.plane.faults.waiting:
            await world.server_clock.advance(_LONG_S)
        await world.advance(_LONG_S)
        assert world.whole.claims is not None
        assert world.whole.claims.warm.counts(Key(NS, "pool")) == Counts(ready=1)
        await world.create(claim_body())
        await world.advance(1.0)
        assert bound_name(world) == "m1"
        assert condition(get_claim(world), "Ready")["status"] == "True"


@LOSSES
async def test_a_sandbox_is_not_suspended_while_a_pod_runs_whose_create_got_no_answer(
    loss: int | Loss,
) -> None:
    """That there was no Pod before the create says nothing once it was sent."""
    async with open_world() as world:
        await world.create(sandbox(spec=SUSPENDED))
        assert condition(world.get(), "Suspended")["status"] == "True"
        held = world.plane.hold_events("pods")
        world.plane.fail_next("create", "pods", loss, after=True)
        world.meanwhile("create", "pods", lambda: set_mode(world, "Suspended"))
        set_mode(world, "Running")
        await world.advance(1.0)
        if world.plane.faults.waiting:
            await world.server_clock.advance(_LONG_S)
        await world.advance(_LONG_S)
        pod = world.find("pods")
        is_over = pod is None or "deletionTimestamp" in pod["metadata"]
        assert is_over or condition(world.get(), "Suspended")["status"] == "False"
        held.release()
        await world.settle()
        assert world.find("pods") is None


@LOSSES
async def test_a_claim_whose_own_sandbox_was_made_without_an_answer_keeps_one(
    loss: int | Loss,
) -> None:
    """A member that became ready meanwhile is taken; the Sandbox of the claim's own name goes."""
    async with open_claims("m1", ready=False) as world:
        await world.bind("m1")
        world.meanwhile("create", "sandboxes", lambda: set_pod(world, "m1", ready=True))
        world.plane.fail_next("create", "sandboxes", loss, after=True)
        held = world.plane.hold_events("sandboxes")
        world.plane.store.create(claim_body())
        await world.advance(5.0)
        if world.plane.faults.waiting:
            await world.server_clock.advance(_LONG_S)
        await world.advance(_LONG_S)
        held.release()
        await world.advance(2 * _LONG_S)
        listed = world.plane.store.list(SANDBOXES, NS)
        owners = {one["metadata"]["name"]: one["metadata"]["ownerReferences"] for one in listed}
        owned = [name for name, (owner,) in owners.items() if owner["kind"] == "SandboxClaim"]
        assert owned == [bound_name(world)]

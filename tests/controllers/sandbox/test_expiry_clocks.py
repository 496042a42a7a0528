"""The moment at which a Sandbox ends, whatever clocks, sleeping machines and failures do to it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.http.faults import Loss
from lean_sandbox.local.kinds import Kind
from tests.support.clock import EPOCH, FakeClock
from tests.support.expiry import at, dying, reason
from tests.support.names import SANDBOXES
from tests.support.webhooks import add_webhook
from tests.support.world import NS, condition, open_world, pod_body, sandbox

Json = dict[str, Any]


@pytest.mark.case(146)
async def test_fraction_and_offset_of_the_time_are_honoured() -> None:
    """Case 146: 05:04:35.5+02:00 is 03:04:35.5Z, half a second after the half minute."""
    async with open_world() as world:
        body = sandbox(spec={"shutdownTime": "2026-01-02T05:04:35.5+02:00"})
        await world.ready_sandbox(body)
        await world.advance(30.4)
        assert reason(world) == "DependenciesReady"
        await world.advance(0.1)
        assert reason(world) == "SandboxExpired"


async def test_expiry_comes_in_time_while_reconciles_fail() -> None:
    """A Sandbox whose reconciles fail time and again expires at its time, not a backoff later.

    (Open point 10 of the behaviour table: the backoff grows to 1000 s.)
    """
    async with open_world() as world:
        owner = world.foreign_owner()
        world.plane.store.create(pod_body(owners=(owner,)))
        await world.create(dying(700.0))
        await world.advance(699.0)
        assert reason(world) == "ReconcilerError"
        await world.advance(2.0)
        assert reason(world) == "SandboxExpired"


async def test_a_machine_that_slept_does_not_delay_expiry_by_more_than_a_minute() -> None:
    """Its timers stood still while the time of day, here and at the server, went on."""
    async with open_world() as world:
        await world.ready_sandbox(dying(3600.0))
        for clock in (world.clock, world.server_clock):
            clock.set_wall(7200.0)
        await world.advance(61.0)
        assert reason(world) == "SandboxExpired"


async def test_a_server_that_is_away_when_a_machine_has_slept_is_asked_again() -> None:
    """A minute later, until it answers and so tells the time."""
    async with open_world() as world:
        await world.ready_sandbox(dying(3600.0))
        for clock in (world.clock, world.server_clock):
            clock.set_wall(7200.0)
        world.plane.fail_next("list", "sandboxes", Loss.RESET, times=4)
        await world.advance(61.0)
        assert reason(world) == "DependenciesReady"
        await world.advance(300.0)
        assert reason(world) == "SandboxExpired"


@pytest.mark.parametrize("ahead_s", [-7200.0, 7200.0])
async def test_a_wall_clock_that_is_set_neither_hastens_nor_delays_expiry(ahead_s: float) -> None:
    """The server's clock counts, and it was not set."""
    clock = FakeClock()
    async with (
        ControlPlane(clock=clock.elsewhere()) as plane,
        open_world(plane=plane, clock=clock) as world,
    ):
        await world.ready_sandbox(dying(3600.0))
        world.clock.set_wall(ahead_s)
        edit = {"spec": {"service": True}}
        await world.patch("sandboxes", "sb-1", edit)
        await world.advance(3590.0)
        assert condition(world.get(), "Ready")["status"] == "True"
        await world.advance(20.0)
        assert reason(world) == "SandboxExpired"


@pytest.mark.parametrize("ahead_s", [-600.0, 600.0])
async def test_with_a_clock_apart_from_the_servers_a_sandbox_ends_at_its_time(
    ahead_s: float,
) -> None:
    """With ten minutes too many or too few on the controller's clock, a minute is a minute."""
    clock = FakeClock(EPOCH + timedelta(seconds=ahead_s))
    async with (
        ControlPlane(clock=clock.elsewhere(-ahead_s)) as plane,
        open_world(plane=plane, clock=clock) as world,
    ):
        await world.ready_sandbox(dying(60.0))
        await world.advance(50.0)
        assert reason(world) == "DependenciesReady"
        await world.advance(20.0)
        assert reason(world) == "SandboxExpired"
        expired = condition(world.get(), "Ready")["lastTransitionTime"]
        assert at(59.0) <= expired <= at(61.0)


async def test_expiry_far_away_costs_no_request_until_it_comes() -> None:
    """Looks at the clock in between are the process's alone."""
    async with open_world() as world:
        await world.ready_sandbox(dying(7200.0))
        world.forget_requests()
        await world.advance(7100.0)
        assert world.writes() == {}
        assert not world.requests("get", "sandboxes") + world.requests("get", "pods")
        await world.advance(101.0)
        assert reason(world) == "SandboxExpired"


async def test_a_pod_that_is_never_as_wanted_does_not_put_off_the_end() -> None:
    """A webhook undoes each patch of the Pod: its retries, ever rarer, do not sleep through it."""
    async with open_world() as world:

        def force(kind: Kind, stored: Json) -> None:
            if kind.plural == "pods":
                stored["metadata"].setdefault("labels", {})["team"] = "forced"

        add_webhook(world.plane, force)
        template = {"metadata": {"labels": {"team": "blue"}}}
        await world.ready_sandbox(sandbox(template=template, spec={"shutdownTime": at(1500.0)}))
        await world.advance(1490.0)
        assert condition(world.get(), "Ready")["status"] == "True"
        await world.advance(20.0)
        assert reason(world) == "SandboxExpired"


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_an_end_postponed_just_before_it_comes_does_not_come(policy: str) -> None:
    """Its user moves the end before it comes; the watch tells of that half a second late.

    Nor is it told for a moment, which clients of a claim take as final.
    """
    async with open_world() as world:
        await world.ready_sandbox(dying(20.0, policy=policy))
        ready_since = condition(world.get(), "Ready")["lastTransitionTime"]
        await world.advance(5.0)
        held = world.plane.hold_events("sandboxes")
        world.plane.store.patch(SANDBOXES, NS, "sb-1", {"spec": {"shutdownTime": at(3600.0)}})
        while world.clock.monotonic() < 20.5:
            await world.moments(100)
            await world.clock.advance(0.1)
        held.release()
        await world.advance(5.0)
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["lastTransitionTime"]) == ("True", ready_since)


async def test_a_time_that_is_moved_during_the_teardown_keeps_the_sandbox() -> None:
    """Its user extends the Sandbox's life while its Pod is being deleted."""
    later = {"spec": {"shutdownTime": at(7200.0)}}
    async with open_world() as world:
        await world.ready_sandbox(dying(60.0, policy="Delete", service=True))
        uid = world.get()["metadata"]["uid"]
        store = world.plane.store
        held = world.plane.hold("delete", "services", answers=False)
        await world.advance(59.0)
        await world.clock.advance(1.0)
        await world.until(lambda: condition(world.get(), "Ready")["reason"] == "SandboxExpired")
        await world.moments(300)
        await world.clock.advance(0.002)
        await world.until(lambda: held.waiting)
        store.patch(SANDBOXES, NS, "sb-1", later)
        # Its watch has shown it long before the next request is sent.
        await world.moments(3000)
        held.release()
        await world.settle()
        await world.advance(5.0)
        found = world.find("sandboxes")
        assert found is not None
        assert found["metadata"]["uid"] == uid


async def test_the_mark_of_a_predecessor_is_not_written_over_and_over() -> None:
    """The watch lags: the old Sandbox expires when another has its name."""
    async with open_world() as world:
        await world.ready_sandbox(dying(60.0))
        await world.advance(59.0)
        held = world.plane.hold_events("sandboxes")
        store = world.plane.store
        store.delete(SANDBOXES, NS, "sb-1")
        store.create(sandbox())
        world.forget_requests()
        await world.advance(30.0)
        assert world.writes() == {"patch sandboxes/status": 1}
        held.release()
        await world.settle()

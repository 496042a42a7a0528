"""More work than the server answers: what goes first, what is shed, and how the rest is caught up.

Every request takes four seconds by the clock of the test, 32 are in flight, and 2,000 claims come
at once: eight answers a second for what takes some twelve thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lean_sandbox.kube import events
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.request import Target
from lean_sandbox.runtime.workers import ReconcileOutcome
from tests.metrics.scrape import scraping
from tests.support.builders import claim, pool
from tests.support.clock import FakeClock
from tests.support.extensions import bound_name, fill, settings
from tests.support.names import CLAIMS
from tests.support.world import CONTROLLER, NS, World, open_world, sandbox

MANY = 2000
MEMBERS = 100
SERVED = 400
SLOW_S = 4.0
QUICK_S = 0.05
WAITING_S = 180.0
# An eighth of the 32 slots is for other namespaces.
IN_FLIGHT = 28
VERBS = ("get", "create", "update", "patch", "delete")
BEHIND = ("create events", "patch sandboxclaims", "patch sandboxwarmpools/status")
CLAIMED = {"patch sandboxclaims/status", "patch sandboxes/status"}
STATUSES = {*CLAIMED, "patch sandboxwarmpools/status"}


def name(number: int) -> str:
    """Return the name of a claim."""
    return f"c-{number:04}"


class Witness:
    """Each request of the controller when the server begins to answer it, watches left out."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: list[tuple[float, str, str]] = []
        self.most_in_flight = 0
        # A fault that never happens, but is asked about each request.
        world.plane.fail_next("*", "*", 500, match=self._note)

    def _note(self, target: Target) -> bool:
        if target.verb in VERBS:
            what = f"{target.verb} {target.resource}"
            what += f"/{target.subresource}" if target.subresource else ""
            self.seen.append((self.world.clock.monotonic(), what, target.name))
            under_way = [
                one
                for one in self.world.plane.pending
                if one.user == CONTROLLER and one.verb in VERBS
            ]
            self.most_in_flight = max(self.most_in_flight, len(under_way))
        return False

    def asked(self, until_s: float) -> Counter[str]:
        """Return how often what was asked before a moment."""
        return Counter(what for at, what, _ in self.seen if at < until_s)


async def pass_slowly(world: World, seconds: float) -> None:
    """Let time pass while requests are never all answered."""
    step_s = SLOW_S / 8
    for _ in range(int(seconds / step_s)):
        await world.moments(40)
        await world.clock.advance(step_s)


def take(world: World, seconds: float) -> None:
    """Let every request take so long from now on, watches left out."""
    for verb in VERBS:
        world.plane.faults.delay(verb, "*", seconds)


@asynccontextmanager
async def overloaded() -> AsyncIterator[tuple[World, Witness]]:
    """Open a world with a full pool, make the server slow, and create the claims."""
    clock = FakeClock()
    async with (
        ControlPlane(LocalSettings(), clock=clock) as plane,
        open_world(settings(), plane=plane, clock=clock) as world,
    ):
        await fill(world, pool(replicas=MEMBERS))
        await world.advance(60.0)
        world.forget_requests()
        witness = Witness(world)
        take(world, SLOW_S)
        for number in range(MANY):
            plane.store.create(claim(name(number)))
        yield world, witness


async def test_an_overloaded_server_is_asked_for_what_clients_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In flight: 32. Claims first; what nobody waits for gets one request in 16; Events are shed.

    Then 1,600 claims are given up, the server is quick again, and the rest is done as fast as it
    answers: nothing twice, nothing for who has left.
    """
    monkeypatch.setattr(events, "_MOST_WAITING", 50)
    async with overloaded() as (world, witness):
        began = world.clock.monotonic()
        await pass_slowly(world, WAITING_S)
        # Refills and housekeeping stand back once they are due.
        assert set(witness.asked(began + 2 * SLOW_S)) == {"patch sandboxes"}
        during = witness.asked(world.clock.monotonic())
        assert sum(during[what] for what in BEHIND) <= sum(during.values()) / 16 + 1
        assert during["create events"] > 0
        later = during - witness.asked(began + WAITING_S / 2.0)
        assert later["create events"] < later["patch sandboxclaims"]
        shed = sum(
            value
            for labels, value in (await scraping(world)).find("lean_sandbox_events_recorded_total")
            if labels["outcome"] == "dropped"
        )
        assert shed > 100
        assert all(bound_name(world, name(number)) for number in range(MEMBERS))

        for number in range(SERVED, MANY):
            world.plane.store.delete(CLAIMS, NS, name(number))
        quick_at = world.clock.monotonic()
        take(world, QUICK_S)
        await pass_slowly(world, 60.0)
        assert witness.most_in_flight == IN_FLIGHT
        each_second = Counter(int(at) for at, *_ in witness.seen if at > quick_at + SLOW_S)
        assert max(each_second.values()) <= IN_FLIGHT / QUICK_S
        # The Pods, which nobody starts, are looked at ten times a second in all; Events go behind.
        assert each_second[int(world.clock.monotonic()) - 1] <= 20

        taken = [bound_name(world, name(number)) for number in range(SERVED)]
        assert all(taken)
        assert len(set(taken)) == SERVED
        made = SERVED - MEMBERS + MEMBERS
        assert len(world.plane.store.list("pods", NS)) == MEMBERS + made
        asked = witness.asked(world.clock.monotonic())
        assert (asked["create sandboxes"], asked["create pods"]) == (made, made)
        assert asked["patch sandboxes"] == MEMBERS
        # A cold claim names its Sandbox, and later says that it is not ready yet; so does this.
        repeats = Counter(one[1:] for one in witness.seen if one[1].startswith("patch") and one[2])
        assert {what for (what, _), count in repeats.items() if count > 1} <= STATUSES
        assert max(n for (what, _), n in repeats.items() if what in CLAIMED) <= 2
        assert not [one for *_, one in witness.seen if one.startswith("c-") and one >= name(SERVED)]
        assert not world.conflicts()
        take(world, 0.0)
        await world.settle()


async def test_a_reconcile_that_waits_for_its_turn_is_not_cut_off() -> None:
    """A GET and a POST of each of a hundred, 9 s each, outlast a minute; nothing is done twice."""
    clock = FakeClock()
    async with (
        ControlPlane(LocalSettings(), clock=clock) as plane,
        open_world(plane=plane, clock=clock) as world,
    ):
        take(world, 9.0)
        for number in range(100):
            world.plane.store.create(sandbox(f"sb-{number}"))
        for _ in range(100):
            await world.moments(40)
            await world.clock.advance(1.0)
        outcomes = world.whole.sandboxes.workers.outcomes
        assert outcomes[ReconcileOutcome.TIMEOUT] == 0
        assert len(world.plane.store.list("pods", NS)) == 100
        assert world.asked()["create pods"] == 100
        take(world, 0.0)
        # What is under way is still answered slowly.
        await world.clock.advance(9.0)
        await world.settle()

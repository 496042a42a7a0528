"""Controllers that die, start again, or run twice: the end is the same, and nothing is doubled.

The controller dies at every request of every flow, at three moments of each. By default each
request has one of them; with ``SANDBOX_TESTS_CRASHES=all`` (``.ci/tasks crashes``) all, and after
each the next process starts at once, a minute later, and after the user has done something else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum

import anyio
import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.http.faults import HeldRequests
from lean_sandbox.local.request import AuditEntry, Target
from tests.faults.flows import FLOWS, Flow, Run, begun
from tests.support.clock import FakeClock
from tests.support.extensions import settings
from tests.support.world import CONTROLLER, World, condition, open_world, sandbox
from tests.totals import CRASH_POINTS

ALL = os.environ.get("SANDBOX_TESTS_CRASHES") == "all"
# Every process begins with the same lists, and Events are told beside everything else: without
# ``ALL``, these flows stand for the others.
WITH_LISTS = ("cold", "claim-warm")
WITH_EVENTS = ("claim-warm",)


class Moment(Enum):
    """When the process dies, as seen from one of its requests."""

    BEFORE = 0
    """Before it is sent."""
    CARRIED_OUT = 1
    """After the server did it and before the answer comes."""
    ANSWERED = 2
    """After the answer came and before anything is made of it."""


class Gap(Enum):
    """What happens before the next process starts."""

    NOTHING = 0
    A_MINUTE = 1
    AN_ACT = 2


def counts(flow: str, verb: str, resource: str) -> bool:
    """Say whether a request of a flow is one to die at."""
    if verb == "list":
        return ALL or flow in WITH_LISTS
    if resource == "events":
        return flow in WITH_EVENTS
    return verb != "watch"


def chosen(verb: str, number: int, moment: Moment) -> list[Gap]:
    """Return after which gaps another process starts, for the death at one moment of a request.

    Whatever a list was good for is lost with the process: only what changes meanwhile matters.
    """
    if ALL:
        return [Gap.AN_ACT] if verb == "list" else list(Gap)
    return [Gap(number // 3 % 3)] if number % 3 == moment.value else []


async def undisturbed(flow: Flow, gap: Gap) -> tuple[list[str], list[AuditEntry]]:
    """Return how a flow ends when nothing goes wrong, and what was asked for on the way."""
    acts = (flow.act, flow.then) if gap is Gap.AN_ACT else (flow.act,)
    async with begun(flow) as (plane, clock):
        plane.audit.reset()
        run = Run(plane, clock, acts, is_timed=flow.is_timed)
        async with open_world(settings(), plane=plane, clock=clock) as world:
            end = await run.end(world)
            assert run.violations() == []
        return end, plane.audit.select(user=CONTROLLER)


class Death:
    """Kills a controller at one moment of its n-th request."""

    def __init__(self, flow: str, moment: Moment, number: int) -> None:
        """Wait for the request."""
        self.at = ""
        """The request that it died at."""
        self.world: World | None = None
        self._flow = flow
        self._moment = moment
        self._left = number
        self._holds: list[HeldRequests] = []

    def await_on(self, plane: ControlPlane) -> None:
        """Wait on the server: for the request, and then for what a dead process still has sent."""
        is_done = self._moment is Moment.CARRIED_OUT
        self._holds = [
            plane.hold("*", "*", answers=is_done, match=self._takes),
            plane.hold("*", "*", answers=False, match=lambda _: bool(self.at)),
        ]

    def observe(self, _world: World, record: RequestRecord) -> None:
        """Look at an answer that has just come."""
        if self._moment is Moment.ANSWERED:
            self._strikes(record.verb, record.resource.partition(".")[0])

    async def is_over(self, plane: ControlPlane) -> None:
        """Let the server notice that nobody waits for its answers any more."""
        for _ in range(1000):
            if not plane.pending:
                break
            await anyio.lowlevel.checkpoint()
        assert not plane.pending
        for held in self._holds:
            held.release()

    def _takes(self, target: Target) -> bool:
        if self._moment is Moment.ANSWERED:
            return False
        return self._strikes(target.verb, target.resource, target.name)

    def _strikes(self, verb: str, resource: str, name: str = "") -> bool:
        if self.at or not counts(self._flow, verb, resource):
            return False
        self._left -= 1
        if self._left:
            return False
        self.at = f"{verb} {resource} {name}".strip()
        assert self.world is not None
        self.world.kill()
        return True


async def start(world: World) -> None:
    """Let a controller list what there is and begin to work."""
    await world.until(world.controller.synced.is_set)
    await world.settle()


async def dies(
    name: str, moment: Moment, number: int, gap: Gap, plane: ControlPlane, clock: FakeClock
) -> tuple[str, list[str], list[str]]:
    """Run a flow with a death in it; return at which request, how it ended, what was broken."""
    flow = FLOWS[name]
    acts = (flow.act, flow.then) if gap is Gap.AN_ACT else (flow.act,)
    run = Run(plane, clock, acts, is_timed=flow.is_timed)
    death = Death(name, moment, number)
    death.await_on(plane)
    async with open_world(
        settings(), plane=plane, clock=clock, observer=death.observe, is_served=False
    ) as world:
        death.world = world
        await start(world)
        await run.end(world)
    await death.is_over(plane)
    if gap is Gap.A_MINUTE:
        run.pass_alone(60.0)
    elif gap is Gap.AN_ACT:
        run.act()
    async with open_world(settings(), plane=plane, clock=clock) as world:
        end = await run.end(world)
    return death.at, end, run.violations()


_UNDISTURBED: dict[tuple[str, bool], tuple[list[str], list[AuditEntry]]] = {}


async def expected(name: str, gap: Gap) -> tuple[list[str], list[AuditEntry]]:
    """Return how a flow has to end, told once for all its deaths."""
    key = name, gap is Gap.AN_ACT
    if key not in _UNDISTURBED:
        _UNDISTURBED[key] = await undisturbed(FLOWS[name], gap)
    return _UNDISTURBED[key]


@pytest.mark.parametrize("moment", list(Moment), ids=lambda moment: moment.name.lower())
@pytest.mark.parametrize("name", sorted(FLOWS))
async def test_a_controller_that_dies_at_any_request_leaves_work_that_another_ends(
    name: str, moment: Moment, record_property: Callable[[str, object], None]
) -> None:
    """All promises: the next process, which knows only what the server tells, ends the work.

    Every version that was ever stored is as promised, the end is that of a run without a death, up
    to generated names, and the safety net has caught nothing.
    """
    _, asked = await expected(name, Gap.NOTHING)
    requests = [entry for entry in asked if counts(name, entry.verb, entry.resource)]
    points = [
        (number, gap)
        for number, entry in enumerate(requests, 1)
        for gap in chosen(entry.verb, number, moment)
    ]
    for number, gap in points:
        wanted, _ = await expected(name, gap)
        async with begun(FLOWS[name]) as (plane, clock):
            at, end, broken = await dies(name, moment, number, gap, plane, clock)
        case = f"{name}: died at request {number} ({at}), {moment.name}, then {gap.name}"
        assert at, f"{case}: there was no such request"
        assert not broken, f"{case}: {broken}"
        assert end == wanted, "\n".join(
            [case, *set(end) - set(wanted), "not", *set(wanted) - set(end)]
        )
    record_property(CRASH_POINTS, len(points))


@pytest.mark.parametrize("name", sorted(FLOWS))
async def test_two_controllers_at_once_come_to_the_same_end(name: str) -> None:
    """Two by mistake: they get in each other's way, and still make and bind everything once."""
    wanted, _ = await expected(name, Gap.NOTHING)
    flow = FLOWS[name]
    async with begun(flow) as (plane, clock):
        run = Run(plane, clock, (flow.act,), is_timed=flow.is_timed)
        async with (
            open_world(settings(), plane=plane, clock=clock) as one,
            open_world(settings(), plane=plane, clock=clock) as two,
        ):
            await run.end(one)
            await two.settle()
            await one.advance(120.0)
            await two.settle()
            assert await run.end(one) == wanted
            assert run.violations() == []
            # They come to rest: neither answers the other's writes for ever.
            plane.audit.reset()
            await one.advance(600.0)
            await two.settle()
            assert sum(one.writes().values()) == 0


async def test_stopped_it_ends_the_reconciles_that_run_and_begins_no_more() -> None:
    """SIGTERM: the reconcile in the middle of its requests is finished, its status is written."""
    settings = Settings(sandbox_status_window=0.0)
    async with ControlPlane(clock=FakeClock()) as plane, open_world(settings, plane=plane) as world:
        stopping: list[str] = []

        def stop() -> None:
            stopping.append("now")
            plane.store.create(sandbox("late"))
            world.controller.stop()

        world.meanwhile("create", "pods", stop)
        plane.store.create(sandbox())
        await world.until(lambda: "status" in world.get())
        assert stopping
        assert condition(world.get(), "Ready")["reason"] == "DependenciesNotReady"
        for _ in range(200):
            await anyio.lowlevel.checkpoint()
        assert world.find("pods", "late") is None
        # What was not begun is the next controller's.
        async with open_world(plane=plane) as after:
            assert after.find("pods", "late") is not None


async def test_a_reconcile_that_does_not_end_in_its_grace_is_cut_off() -> None:
    """SIGTERM with a request that gets no answer: the controller ends when the grace is over."""
    settings = Settings(sandbox_status_window=0.0)
    async with open_world(settings) as world:
        world.plane.delay("create", "pods", 1e9)
        world.plane.store.create(sandbox())
        await world.until(lambda: world.controller.activity().in_flight)
        world.controller.stop()
        await world.clock.advance(19.0)
        assert world.controller.activity().in_flight
        await world.clock.advance(2.0)
        await world.until(lambda: not world.controller.activity().in_flight)
        assert [report.outcome.value for report in world.reports] == ["cancelled"]

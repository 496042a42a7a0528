"""Definitions that are missing or of another version: named, waited for, and taken up."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from lean_sandbox.config.options import Settings
from lean_sandbox.local.controlplane import ControlPlane
from tests.model.crds.definitions import definitions
from tests.support.builders import placed, pool
from tests.support.clock import FakeClock
from tests.support.names import SANDBOXES
from tests.support.world import CONTROLLER, NS, World, condition, open_world, sandbox

Json = dict[str, Any]
CRDS = "customresourcedefinitions.apiextensions.k8s.io"
BY_NAME: dict[str, Json] = {one["metadata"]["name"]: one for one in definitions().values()}
ALL = sorted(BY_NAME)
CURE = "lean-sandbox crds | kubectl apply --server-side -f -"
# The longest pause between two lists of a kind, with the time that their answers take.
SOON_S = 6.0


def settings() -> Settings:
    """Return settings with which all four kinds are needed."""
    return Settings(extensions=True, sandbox_status_window=1.0, sandbox_status_step_window=0.0)


def plane_with(*names: str, clock: FakeClock) -> ControlPlane:
    """Return a server that serves only some of the kinds."""
    return ControlPlane(clock=clock, crds=[BY_NAME[name] for name in names])


def apply(plane: ControlPlane, *names: str) -> None:
    """Apply definitions, as a person does who was told to."""
    for name in names:
        plane.store.create(copy.deepcopy(BY_NAME[name]))


def of_version(name: str, version: str) -> Json:
    """Return a definition that serves and stores another version only."""
    definition = copy.deepcopy(BY_NAME[name])
    definition["spec"]["versions"][0]["name"] = version
    return definition


def lists_of(world: World, name: str) -> int:
    """Return how often the controller has asked for a list or watch of a kind."""
    return sum(
        f"/{name.partition('.')[0]}" in entry.path
        for entry in world.plane.audit.select(user=CONTROLLER)
    )


async def serves_sandboxes(world: World, name: str = "sb-1") -> None:
    """Take a Sandbox to Ready."""
    await world.create(sandbox(name))
    await world.run_pod(name)
    await world.advance(2.0)
    assert condition(world.get(name), "Ready")["status"] == "True"


@pytest.mark.parametrize("missing", [[name] for name in ALL] + [ALL])
async def test_the_controller_waits_for_definitions_says_which_and_starts_with_them(
    missing: list[str],
) -> None:
    """Each missing kind is named with the command that brings it; then all begins by itself."""
    clock = FakeClock()
    served = [name for name in ALL if name not in missing]
    async with (
        plane_with(*served, clock=clock) as plane,
        open_world(settings(), plane=plane, is_served=False) as world,
    ):
        await world.pass_time(60.0)
        assert not world.controller.synced.is_set()
        told = world.controller.problems
        assert {one.partition(".")[0] for one in missing} == set(told)
        for name in missing:
            problem = told[name.partition(".")[0]]
            assert f"the CustomResourceDefinition {name} is missing" in problem
            assert CURE in problem
            assert problem in (world.controller.not_ready or "")
        apply(plane, *missing)
        await world.pass_time(SOON_S)
        assert world.controller.synced.is_set()
        assert world.controller.not_ready is None
        await serves_sandboxes(world)
        await world.advance(6.0)
        assert world.controller.problems == {}


async def test_a_missing_definition_is_looked_for_every_few_seconds_and_no_more() -> None:
    """At rest, looking for it costs a list and nothing else, at most every 2.5 s."""
    async with (
        plane_with(clock=FakeClock()) as plane,
        open_world(plane=plane, is_served=False) as world,
    ):
        await world.pass_time(60.0)
        world.forget_requests()
        await world.pass_time(100.0)
        asked = plane.audit.counts(CONTROLLER)
        # Half of the jitter: 3.75 s from one list to the next.
        assert 26 <= lists_of(world, SANDBOXES) <= 27
        assert asked.total() == lists_of(world, SANDBOXES)


@pytest.mark.parametrize("name", ALL)
async def test_a_definition_of_another_version_is_named_with_the_one_that_is_needed(
    name: str,
) -> None:
    """Where only v1alpha1 is served, the problem says what is needed, and how to get there."""
    clock = FakeClock()
    others = [one for one in ALL if one != name]
    async with plane_with(*others, clock=clock) as plane:
        plane.store.create(of_version(name, "v1alpha1"))
        async with open_world(settings(), plane=plane, is_served=False) as world:
            await world.pass_time(2.0)
            problem = world.controller.problems[name.partition(".")[0]]
            assert f"the CustomResourceDefinition {name} is missing, or serves other" in problem
            assert "versions than v1beta1" in problem
            assert CURE in problem
            assert "status.storedVersions" in problem
            plane.store.delete(CRDS, "", name)
            await plane.settled()
            apply(plane, name)
            await world.pass_time(SOON_S)
            await serves_sandboxes(world)


async def test_a_definition_deleted_and_recreated_under_the_controller_is_taken_up() -> None:
    """The rest goes on meanwhile; what was made of the kind is gone, and new ones are served."""
    async with open_world(settings()) as world:
        await world.ready_sandbox()
        await world.create(placed())
        await world.create(pool(replicas=1))
        world.plane.store.delete(CRDS, "", SANDBOXES)
        await world.plane.settled()
        await world.pass_time(30.0)
        problem = world.controller.problems["sandboxes"]
        assert f"the CustomResourceDefinition {SANDBOXES} is missing" in problem
        assert set(world.controller.problems) == {"sandboxes"}
        assert world.controller.activity().cached["sandboxes"] == 0
        apply(world.plane, SANDBOXES)
        await world.pass_time(SOON_S)
        await serves_sandboxes(world, "sb-2")
        await world.advance(60.0)
        # The pool has made its member anew.
        names = {one["metadata"]["name"] for one in world.plane.store.list(SANDBOXES, NS)}
        assert "sb-2" in names
        assert len(names) == 2
        assert world.controller.problems == {}


async def test_pools_wait_for_their_definition_while_sandboxes_go_on() -> None:
    """Without the kind of the pools nothing else stands still, once everything had begun."""
    name = "sandboxwarmpools.extensions.agents.x-k8s.io"
    async with open_world(settings()) as world:
        world.plane.store.delete(CRDS, "", name)
        await world.plane.settled()
        await world.pass_time(30.0)
        world.plane.store.create(sandbox("sb-3"))
        await world.pass_time(1.0)
        assert world.find("pods", "sb-3") is not None
        assert set(world.controller.problems) == {"sandboxwarmpools"}


async def test_a_problem_that_lasts_is_told_once_a_minute_with_the_next_attempt() -> None:
    """Whoever looks into the log sees that the watch is tried again, and when."""
    with capture_logs() as logs:
        async with (
            plane_with(clock=FakeClock()) as plane,
            open_world(plane=plane, is_served=False) as world,
        ):
            seen: list[float] = []
            for at in range(170):
                await world.pass_time(1.0)
                told = [line for line in logs if line["event"] == "watch_interrupted"]
                seen += [float(at)] * (len(told) - len(seen))
    told = [line for line in logs if line["event"] == "watch_interrupted"]
    assert {line["kind"] for line in told} == {"sandboxes"}
    assert len(told) == 3
    assert all(0.0 < line["next_s"] <= 5.0 for line in told)
    # Each is told with the first attempt that fails after a minute.
    assert all(60.0 <= later - earlier <= 65.0 for earlier, later in pairwise(seen))

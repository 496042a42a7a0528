"""Where many launches outlast the window, their steps are told in turns and looked at in turns."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.sandbox.throttle import StatusThrottle
from lean_sandbox.watch.kind import Key
from tests.support.world import (
    NS,
    World,
    condition,
    open_world,
    pod_conditions,
    running_status,
    sandbox,
    write_pod_status,
)

AT_ONCE = 100
PER_S = 5.0
COUNT = 150


@given(
    starts=st.lists(st.floats(0.0, 30.0), min_size=1, max_size=200),
    window_s=st.floats(0.1, 10.0),
)
def test_no_more_steps_are_told_than_there_are_turns(starts: list[float], window_s: float) -> None:
    """In any stretch of time at most a hundred are told and five a second more; all at last."""
    launches = StatusThrottle(window_s, 30.0)
    waiting = [(at, Key("ns", f"sb-{n}")) for n, at in enumerate(starts)]
    heapq.heapify(waiting)
    told: list[float] = []
    while waiting:
        now, key = heapq.heappop(waiting)
        left_s = launches.hold_step(key, now)
        if left_s > 0.0:
            heapq.heappush(waiting, (now + left_s, key))
        else:
            told.append(now)
            launches.settled(key)
    assert len(told) == len(starts)
    for first, begin in enumerate(told):
        for last in range(first, len(told)):
            assert last - first <= AT_ONCE + PER_S * (told[last] - begin) + 1e-6


def test_the_first_window_grows_with_the_launches_that_have_told_nothing_yet() -> None:
    """By little for each of the first hundred others, then by more; what has ended is none."""
    launches = StatusThrottle(2.0, 30.0)
    keys = [Key("ns", f"sb-{n}") for n in range(300)]
    windows_s = [launches.hold_step(key, 0.0) for key in keys]
    assert windows_s[:2] == pytest.approx([2.0, 2.005])
    assert windows_s[100:102] == pytest.approx([2.5, 2.55])
    assert windows_s[-1] == pytest.approx(2.5 + 199 * 0.05)
    # Another namespace counts as if each had as many launches as it has itself.
    assert launches.hold_step(Key("other", "one"), 0.0) == pytest.approx(2.005)
    launches.settled(Key("other", "one"))
    for key in keys[:150]:
        launches.published(key, 0.0, facts=frozenset())
    for key in keys[:200]:
        launches.settled(key)
    assert launches.hold_step(keys[-1], 0.0) == pytest.approx(2.0 + 99 * 0.005)


@given(own=st.integers(1, 100))
def test_steps_that_are_published_lengthen_no_window_of_their_namespace(own: int) -> None:
    """Beside another's burst, only launches that have published nothing yet count as its own."""
    launches = StatusThrottle(2.0, 30.0)
    for number in range(300):
        launches.hold_step(Key("busy", f"sb-{number}"), 0.0)
    for number in range(own):
        launches.hold_step(Key("ns", f"sb-{number}"), 0.0)
        launches.published(Key("ns", f"sb-{number}"), 0.0, facts=frozenset())
    assert launches.hold_step(Key("ns", "one"), 0.0) == pytest.approx(2.005)


@given(before=st.integers(0, 300))
def test_what_the_scheduler_found_waits_for_no_turn(before: int) -> None:
    """However many steps wait, news is told when its window has passed, and read then."""
    launches = StatusThrottle(2.0, 30.0)
    keys = [Key("ns", f"sb-{n}") for n in range(before)]
    for key in keys:
        launches.hold_step(key, 0.0)
    for key in keys:
        launches.hold_step(key, 100.0)
    one = Key("ns", "one")
    assert launches.hold_step(one, 0.0, is_news=True) > 0.0
    assert launches.hold_step(one, 100.0, is_news=True) == 0.0
    assert launches.hold_fetch(one, 100.0) == 0.0


def test_the_launches_of_a_tenant_delay_no_step_of_another() -> None:
    """Alone in its namespace one has the window and the turn of one that is alone."""
    launches = StatusThrottle(2.0, 30.0)
    for number in range(1000):
        launches.hold_step(Key("busy", f"sb-{number}"), 0.0)
    for number in range(1000):
        launches.hold_step(Key("busy", f"sb-{number}"), 100.0)
    one = Key("quiet", "one")
    assert launches.hold_step(one, 100.0) < 2.1
    assert launches.hold_step(one, 102.1) == 0.0


def test_the_launches_of_many_tenants_make_each_window_longer() -> None:
    """A launch in each of many namespaces waits for the server as long as so many in one."""
    together = StatusThrottle(2.0, 30.0)
    apart = StatusThrottle(2.0, 30.0)
    for number in range(300):
        together.hold_step(Key("ns", f"sb-{number}"), 0.0)
        apart.hold_step(Key(f"ns-{number}", "sb"), 0.0)
    assert apart.hold_step(Key("ns-0", "sb"), 0.0) == together.hold_step(Key("ns", "sb-0"), 0.0)


async def test_many_slow_launches_are_told_and_looked_at_in_turns() -> None:
    """A hundred at once, five a second after that, a GET and a status each; readiness at once."""
    names = [f"sb-{number}" for number in range(COUNT)]
    async with open_world(Settings(sandbox_status_window=1.0)) as world:
        for name in names:
            await world.create(sandbox(name))
        for name in names:
            await world.run_pod(name, ready=False)
        window_s = 1.0 + 0.005 * AT_ONCE + 0.05 * (COUNT - 1 - AT_ONCE)
        world.forget_requests()
        await world.advance(window_s + 1.0)
        asked = world.asked()
        assert asked["patch sandboxes/status"] == asked["get pods"]
        assert AT_ONCE <= asked["get pods"] <= AT_ONCE + PER_S + 1
        last = next(name for name in reversed(names) if "status" not in world.get(name))
        await world.run_pod(last)
        assert condition(world.get(last), "Ready")["status"] == "True"
        await world.advance(COUNT / PER_S)
        assert all("status" in world.get(name) for name in names)
        assert world.asked()["get pods"] <= COUNT + 1
        assert world.asked()["patch sandboxes/status"] == COUNT


async def until_told(world: World, name: str) -> float:
    """Return after how many seconds a new Sandbox has a status."""
    began_s = world.clock.monotonic()
    await world.create(sandbox(name, pod_spec=PLACED))
    while not world.get(name).get("status", {}).get("conditions"):
        assert world.clock.monotonic() - began_s < 60.0
        await world.advance(1.0)
    return world.clock.monotonic() - began_s


PLACED = {"nodeName": "node-1"}


async def launched(world: World, launches: int) -> None:
    """Have that many Sandboxes with Pods that only wait."""
    for number in range(launches):
        world.plane.store.create(sandbox(f"sb-{number}", pod_spec=PLACED))
    await world.settle()


@pytest.mark.parametrize("launches", [20, 300])
async def test_turns_of_launches_that_are_over_are_waited_for_by_nobody(launches: int) -> None:
    """A crowd that outlasted its window is Ready: one more launch has its status soon."""
    async with open_world(Settings(sandbox_status_window=1.0)) as world:
        await launched(world, launches)
        await world.advance(32.0)
        for number in range(launches):
            write_pod_status(world.plane, f"sb-{number}", running_status())
        await world.advance(10.0)
        assert await until_told(world, "late") <= 3.0


@pytest.mark.parametrize("launches", [20, 300])
async def test_launches_that_hang_make_no_window_longer(launches: int) -> None:
    """Their first statuses were published long ago: one more launch has its own soon."""
    async with open_world(Settings(sandbox_status_window=1.0)) as world:
        await launched(world, launches)
        await world.advance(900.0)
        assert await until_told(world, "late") <= 3.0


@pytest.mark.parametrize("manager", ["kubelet", "kube-scheduler"])
async def test_what_the_scheduler_finds_later_is_told_within_the_window(manager: str) -> None:
    """Whoever writes it: after a status that knew nothing of it comes one that does."""
    async with open_world(Settings(sandbox_status_window=2.0)) as world:
        await world.create(sandbox())
        await world.advance(3.0)
        assert condition(world.get(), "PodScheduled")["status"] == "Unknown"
        (found, *_) = pod_conditions(ready=False, scheduled=False)
        found |= {"reason": "Unschedulable", "message": "0/3 nodes are available"}
        world.plane.store.patch(
            "pods",
            NS,
            "sb-1",
            {"status": {"conditions": [found]}},
            subresource="status",
            manager=manager,
        )
        await world.advance(3.0)
        assert condition(world.get(), "PodScheduled")["reason"] == "Unschedulable"

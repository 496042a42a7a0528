"""What companions decide while the watch is behind, or shows another object of the name."""

from __future__ import annotations

from lean_sandbox.metrics.families import COMPANION_REPORTS
from lean_sandbox.metrics.registry import Exposition
from tests.companions.rolling import NEW, images, make_ready, open_rolling
from tests.companions.support import PREFIX
from tests.support.builders import claim, placed, pool
from tests.support.clock import FakeClock
from tests.support.extensions import run_all, settings
from tests.support.names import POOLS, TEMPLATES
from tests.support.world import NS, World, open_world, sandbox


def size(world: World) -> int:
    """Return how many free members the pool is told to have."""
    wanted: int = world.plane.store.get(POOLS, NS, "pool")["spec"]["replicas"]
    return wanted


async def test_a_size_of_ours_that_the_watch_is_yet_to_show_is_nobody_elses() -> None:
    """Claims that come meanwhile are counted, and the next size does not wait for a minute."""
    body = pool(replicas=2)
    body["metadata"]["annotations"] = {PREFIX + "min-replicas": "2", PREFIX + "max-replicas": "20"}
    given = settings(companions=("autosize",))
    made = (placed(), body)
    async with open_world(given, one_time=True, clock=FakeClock(), before=made) as world:
        await world.advance(2.0)
        await run_all(world)
        held = world.plane.hold_events("sandboxwarmpools")
        for name in "abc":
            world.plane.store.create(claim(name))
        await world.advance(3.0)
        before = size(world)
        assert before >= 3
        for name in "defgh":
            world.plane.store.create(claim(name))
        await world.advance(3.0)
        held.release()
        await world.advance(12.0)
        assert size(world) == 9


async def test_a_template_that_was_made_anew_makes_members_old() -> None:
    """It has the name of the one before, and its generation, but another uid."""
    async with open_rolling("4") as world:
        world.plane.store.delete(TEMPLATES, NS, "tpl")
        world.plane.store.create(placed(image=NEW))
        for _ in range(4):
            await world.advance(5.0)
            await make_ready(world)
        assert images(world) == [NEW] * 4


async def test_each_report_is_counted_for_its_companion_alone() -> None:
    """However many companions there are."""
    given = settings(companions=("idle", "recreate", "autosize", "rollout"))
    async with open_world(given, one_time=True, clock=FakeClock()) as world:
        await world.ready_sandbox(sandbox())
        wrong = {"agents.x-k8s.io/idle-timeout-seconds": "x"}
        wrong["agents.x-k8s.io/pod-failure-policy"] = "x"
        await world.patch("sandboxes", "sb-1", {"metadata": {"annotations": wrong}})
        await world.advance(5.0)
        found = Exposition()
        world.whole.collect(found)
        _, series = found.families[COMPANION_REPORTS.name]
        counted = [(labels, float(str(number))) for labels, number in series]
        assert sorted(counted) == [
            (("idle", "InvalidAnnotation"), 1.0),
            (("recreate", "InvalidAnnotation"), 1.0),
        ]

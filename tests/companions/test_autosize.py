"""autosize: pools get as many free members as their claims need, within their bounds."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from lean_sandbox.companions.sizing import BEFORE_DOWN_S, BEFORE_OVERRULING_S, RECENT_S
from lean_sandbox.local.kinds import Kind
from tests.companions.support import PREFIX, annotate, counts, reports, warned_of
from tests.support.backup import Backup
from tests.support.builders import claim, placed, pool
from tests.support.clock import FakeClock
from tests.support.extensions import open_claims, run_all, settings
from tests.support.names import CLAIMS, POOLS
from tests.support.webhooks import add_webhook
from tests.support.world import NS, World, open_world

Json = dict[str, Any]
MIN = PREFIX + "min-replicas"
MAX = PREFIX + "max-replicas"
SCALE = "patch sandboxwarmpools/scale"


@asynccontextmanager
async def open_sized(
    wishes: dict[str, str] | None = None, *, replicas: int = 2, before: tuple[Json, ...] = ()
) -> AsyncIterator[World]:
    """Open a world with a pool that names bounds, all of whose members are Ready."""
    body = pool(replicas=replicas)
    body["metadata"]["annotations"] = {MIN: "2", MAX: "20"} if wishes is None else wishes
    given_ = settings(companions=("autosize",))
    made = (placed(), body, *before)
    async with open_world(given_, one_time=True, clock=FakeClock(), before=made) as world:
        await world.advance(2.0)
        await run_all(world)
        world.forget_requests()
        yield world


def size(world: World, name: str = "pool") -> int:
    """Return how many free members a pool is told to have."""
    wanted: int = world.plane.store.get(POOLS, NS, name)["spec"]["replicas"]
    return wanted


async def ask(world: World, *names: str, **spec: Any) -> None:
    """Make claims at once."""
    for name in names:
        world.plane.store.create(claim(name, **spec))
    await world.advance(0.1)


def autoscaler(target: str = "pool", kind: str = "SandboxWarmPool") -> Json:
    """Return a HorizontalPodAutoscaler."""
    ref = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": kind, "name": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "scaler", "namespace": NS},
        "spec": {"scaleTargetRef": ref, "minReplicas": 1, "maxReplicas": 9},
    }


async def test_a_pool_grows_with_the_first_claims_that_are_more_than_it_has() -> None:
    """By the event, not at a later reconcile; the Event says why."""
    async with open_sized() as world:
        await ask(world, "a", "b", "c")
        assert size(world) > 2
        await world.advance(2.0)
        assert size(world) == 4
        told = [note for _, reason, note in reports(world) if reason == "PoolResized"]
        assert "Resized from 2 to" in told[0]


async def test_a_crowd_costs_few_requests() -> None:
    """Many claims at once: the first change comes at once, the next one a second later."""
    async with open_sized({MAX: "200"}) as world:
        await ask(world, *(f"c-{number}" for number in range(10)))
        await ask(world, *(f"d-{number}" for number in range(10)))
        await world.advance(30.0)
        assert size(world) > 20
        assert 1 < world.writes()[SCALE] <= 4


async def test_no_pool_gets_more_than_its_bound() -> None:
    """However many claims come."""
    async with open_sized({MAX: "5"}) as world:
        await ask(world, *(f"c-{number}" for number in range(8)))
        await world.advance(120.0)
        assert size(world) == 5


async def test_a_pool_shrinks_slowly_once_no_claims_come() -> None:
    """Not within the minutes that count as recent, then by a quarter a minute, to its bound."""
    async with open_sized({MIN: "1", MAX: "100"}) as world:
        await world.advance(RECENT_S)
        await ask(world, *(f"c-{number}" for number in range(9)))
        await run_all(world)
        await world.advance(60.0)
        grown = size(world)
        assert grown > 9
        await world.advance(RECENT_S - 120.0)
        assert size(world) == grown
        sizes = [grown]
        for _ in range(10):
            await world.advance(BEFORE_DOWN_S)
            sizes.append(size(world))
        assert sizes[-1] == 1
        assert all(after >= math.floor(one * 0.75) - 1 for one, after in pairwise(sizes))


async def test_what_came_in_a_burst_is_expected_an_hour_later() -> None:
    """The members are there before the claims, and go again when none come."""
    async with open_sized({MIN: "1", MAX: "100"}) as world:
        await ask(world, *(f"c-{number}" for number in range(5)))
        await run_all(world)
        await world.advance(3000.0)
        assert size(world) == 1
        await world.advance(540.0)
        assert size(world) > 5
        await world.advance(900.0)
        assert size(world) == 1


async def test_nothing_is_asked_or_written_while_no_claims_come() -> None:
    """A pool that has its size is at rest, also after the time in which none shrinks."""
    async with open_sized() as world:
        await world.advance(RECENT_S + 120.0)
        assert not world.asked(events=True)
        assert not reports(world)


@pytest.mark.parametrize("wishes", [{}, {MAX: "20"}])
async def test_nothing_is_done_unasked(wishes: dict[str, str]) -> None:
    """A pool that names no bounds, or none any more, stays as it is."""
    async with open_sized(wishes) as world:
        await annotate(world, POOLS, "pool", max_replicas=None)
        await ask(world, "a", "b", "c")
        await world.advance(70.0)
        assert size(world) == 2
        assert SCALE not in world.writes()


async def test_a_pool_that_cannot_be_read_keeps_its_size() -> None:
    """It may be right, whatever its bounds say."""
    async with open_sized({}, replicas=6) as world:
        held = world.plane.store.get(POOLS, NS, "pool")
        held["metadata"]["annotations"] = {MIN: "4", MAX: "9"}
        held["spec"]["updateStrategy"] = "Recreate"
        world.plane.store.plant(held)
        await world.advance(60.0)
        assert size(world) == 6


async def test_claims_of_other_pools_do_not_count() -> None:
    """Nor those that no member will do for."""
    async with open_sized() as world:
        await ask(world, "a", "b", "c", pool="other")
        await ask(world, "d", "e", "f", env=[{"name": "A", "value": "b"}])
        await world.advance(60.0)
        assert size(world) == 2


async def test_a_pool_that_begins_to_ask_counts_the_claims_that_it_has() -> None:
    """They need not come again; and those that have ended are counted as well."""
    async with open_sized({}) as world:
        await ask(world, "a", "b", "c", "d")
        await world.advance(60.0)
        await annotate(world, POOLS, "pool", max_replicas="20")
        await world.advance(1.0)
        assert size(world) == 5
        world.plane.store.delete(CLAIMS, NS, "a")
        await ask(world, "e", "f")
        await world.advance(2.0)
        assert size(world) > 5


async def test_a_size_of_ours_that_the_watch_is_yet_to_show_is_nobody_elses() -> None:
    """Claims that come meanwhile are counted, and the next size does not wait for a minute."""
    async with open_sized() as world:
        held = world.plane.hold_events("sandboxwarmpools")
        await ask(world, *"abc")
        await world.advance(3.0)
        assert size(world) >= 3
        await ask(world, *"defgh")
        await world.advance(3.0)
        held.release()
        await world.advance(12.0)
        assert size(world) == 9


async def test_a_pool_that_is_gone_is_forgotten_and_a_new_one_of_the_name_is_another() -> None:
    """What has been learned of it does not count for the next."""
    async with open_sized() as world:
        await ask(world, *"abc")
        await world.advance(5.0)
        assert size(world) == 4
        await world.delete(POOLS, "pool")
        for name in "abc":
            world.plane.store.delete(CLAIMS, NS, name)
        await world.advance(5.0)
        await world.create(pool(replicas=2))
        await annotate(world, POOLS, "pool", min_replicas="2", max_replicas="20")
        await world.advance(5.0)
        assert size(world) == 2


async def test_a_claim_that_is_made_anew_while_the_watch_is_down_counts() -> None:
    """It has the name of the one before, but wants another member."""
    async with open_sized() as world:
        await ask(world, "a")
        await world.cut_watches()
        world.plane.store.delete(CLAIMS, NS, "a")
        for name in "abc":
            world.plane.store.create(claim(name))
        world.plane.compact()
        await world.recover()
        await world.advance(15.0)
        assert size(world) == 5


async def test_a_pool_is_sized_after_its_store_was_restored() -> None:
    """The version that the last resize has made is not seen again; a minute later nobody waits."""
    async with open_sized() as world:
        backup = Backup(world.plane)
        await ask(world, "a", "b", "c")
        await world.advance(2.0)
        assert size(world) == 4
        backup.restore(world.plane)
        await world.recover()
        await world.advance(3 * BEFORE_OVERRULING_S)
        assert size(world) == 4


async def test_a_pool_below_its_least_size_is_raised_at_once() -> None:
    """And one above its largest is lowered at once."""
    async with open_sized({MIN: "4", MAX: "9"}) as world:
        assert size(world) == 4
    async with open_sized({MAX: "3"}, replicas=8) as world:
        assert size(world) == 3


async def test_an_autoscaler_that_names_the_pool_is_left_to_it() -> None:
    """The Event names it, once; when it has gone, the pool is sized again."""
    async with open_sized(before=(autoscaler(),)) as world:
        await ask(world, "a", "b", "c")
        await world.advance(70.0)
        assert size(world) == 2
        ((kind, reason, note),) = reports(world)
        assert (kind, reason) == ("SandboxWarmPool", "AutosizeStandsBack")
        assert '"scaler"' in note
        await world.delete("horizontalpodautoscalers.autoscaling", "scaler")
        await world.advance(1.0)
        assert size(world) == 4


@pytest.mark.parametrize(
    "other", [autoscaler("other"), autoscaler(kind="Deployment")], ids=["other pool", "other kind"]
)
async def test_autoscalers_of_others_do_not_matter(other: Json) -> None:
    """Of another pool, or of a Deployment with the name of this one."""
    async with open_sized(before=(other,)) as world:
        await ask(world, "a", "b", "c")
        await world.advance(2.0)
        assert size(world) == 4


async def test_what_somebody_else_sets_lasts_for_a_minute() -> None:
    """So that two who do not agree make no loop."""
    async with open_sized({MIN: "3", MAX: "20"}) as world:
        for number in range(10):
            world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": number % 2}})
            await world.advance(1.0)
        assert SCALE not in world.writes()
        await world.advance(BEFORE_OVERRULING_S)
        assert size(world) == 3
        assert world.writes()[SCALE] == 1


async def test_a_size_that_somebody_writes_before_the_patch_is_not_overwritten() -> None:
    """The write names the version that it was decided on."""
    async with open_sized() as world:

        def scale() -> None:
            world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": 7}})

        world.meanwhile("patch", "sandboxwarmpools/scale", scale)
        await ask(world, "a", "b", "c")
        await world.advance(30.0)
        assert size(world) == 7


async def test_a_size_that_a_policy_makes_another_is_told_as_such() -> None:
    """It is not said to be the size of the pool."""
    async with open_sized() as world:

        def keep_small(kind: Kind, obj: Json) -> None:
            if kind.plural == "sandboxwarmpools":
                obj["spec"]["replicas"] = 2

        add_webhook(world.plane, keep_small)
        await ask(world, "a", "b", "c")
        await world.advance(30.0)
        assert size(world) == 2
        assert world.writes()[SCALE] == 1
        ((_, reason, note),) = reports(world)
        assert reason == "ResizeRefused"
        assert "a policy or webhook makes it 2" in note


async def test_a_refusal_is_told_and_tried_again_a_minute_later() -> None:
    """The Event says what the server says; claims that come meanwhile make no more requests."""
    async with open_sized() as world:
        world.plane.fail_next("patch", "sandboxwarmpools/scale", 403)
        for number in range(6):
            await ask(world, f"c-{number}")
            await world.advance(1.0)
        assert size(world) == 2
        assert world.writes()[SCALE] == 1
        ((kind, reason, note),) = reports(world)
        assert (kind, reason) == ("SandboxWarmPool", "ResizeRefused")
        assert warned_of(world) == [reason]
        assert "Not resized to" in note
        await world.advance(3 * BEFORE_OVERRULING_S)
        assert size(world) == 7
        assert counts(world, "autosize")["PoolResized"] == 1


@pytest.mark.parametrize(
    ("wishes", "named", "fix"),
    [
        ({MAX: "many"}, MAX, "whole number from 1"),
        ({MAX: "0"}, MAX, "whole number from 1"),
        ({MAX: "-1"}, MAX, "whole number from 1"),
        ({MIN: "1.5", MAX: "5"}, MIN, "whole number from 0"),
        ({MIN: "6", MAX: "5"}, MIN, "is more than"),
        ({MIN: "2"}, MIN, "has no effect without"),
    ],
)
async def test_a_wrong_value_is_told_once_and_does_nothing(
    wishes: dict[str, str], named: str, fix: str
) -> None:
    """The Event names the annotation and what it may be; the pool stays until that is mended."""
    async with open_sized(wishes) as world:
        await ask(world, "a", "b", "c")
        await world.advance(120.0)
        assert size(world) == 2
        ((kind, reason, note),) = reports(world)
        assert (kind, reason) == ("SandboxWarmPool", "InvalidAnnotation")
        assert note.startswith(named)
        assert fix in note
        await annotate(world, POOLS, "pool", min_replicas="1", max_replicas="9")
        await world.advance(1.0)
        assert size(world) == 4


async def test_members_that_take_longer_to_start_are_kept_more_of() -> None:
    """The time is learned from the members that the pool has."""
    wishes = {"metadata": {"annotations": {MIN: "1", MAX: "99"}}}
    sizes = []
    for start_s in (5.0, 300.0):
        async with open_claims(
            "m-1", ready=False, companions=("autosize",), clock=FakeClock(), one_time=True
        ) as world:
            await world.advance(start_s)
            await world.run_pod("m-1")
            await world.patch(POOLS, "pool", wishes)
            for number in range(5):
                await ask(world, f"c-{number}")
                await world.advance(30.0)
            sizes.append(size(world))
    assert sizes[0] < sizes[1]


async def test_a_start_is_learned_from_once() -> None:
    """However often somebody writes to the member, which is ready all the while."""
    async with open_claims(
        "m-1", "m-2", ready=False, companions=("autosize",), clock=FakeClock(), one_time=True
    ) as world:
        await annotate(world, POOLS, "pool", max_replicas="99")
        await world.advance(5.0)
        await world.run_pod("m-1")
        await world.advance(295.0)
        await world.run_pod("m-2")
        for number in range(20):
            await annotate(world, "sandboxes", "m-1", look=str(number))
        for number in range(5):
            await ask(world, f"c-{number}")
            await world.advance(30.0)
        assert size(world) == 6

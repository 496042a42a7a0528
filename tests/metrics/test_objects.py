"""The gauges over what is cached: Sandboxes by their labels, members of pools by their status."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lean_sandbox.controllers.metrics import survey
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources import Caches, build_caches
from lean_sandbox.watch.resources.sandbox import SandboxEntry
from tests.metrics.scrape import Scraped, scraping
from tests.support.builders import claim, pool, template
from tests.support.clock import FakeClock
from tests.support.extensions import open_claims
from tests.support.names import POOLS
from tests.support.suspension import resume, suspend
from tests.support.world import NS, controlled_by, open_world, sandbox

SANDBOXES = "agent_sandboxes"
POOL_SIZE = "agent_sandbox_warmpool_size"
Json = dict[str, Any]


def sizes(found: Scraped, pool: str = "pool") -> dict[str, float]:
    """Return the members of a pool by status."""
    return {
        labels["sandbox_status"]: value
        for labels, value in found.find(POOL_SIZE, namespace=NS, warmpool_name=pool)
    }


@pytest.mark.case(141)
async def test_a_ready_sandbox_is_counted_by_its_labels() -> None:
    """Case 141: what a cold Sandbox without template, owner and creator shows."""
    async with open_world() as world:
        await world.ready_sandbox()
        found = await scraping(world)
    labels = {
        "namespace": NS,
        "ready_condition": "true",
        "expired": "false",
        "launch_type": "cold",
        "sandbox_template": "unknown",
        "owned_by": "None",
        "created_by": "unknown",
        "operating_mode": "Running",
    }
    assert found.find(SANDBOXES) == [(labels, 1.0)]


async def test_a_sandbox_is_counted_by_the_mode_it_is_asked_to_be_in() -> None:
    """From the moment of the request, whether its Pod is there yet, still, or not."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.create(sandbox("sb-2"))
        await suspend(world)
        asked = await scraping(world)
        await resume(world)
        back = await scraping(world)
    for mode in ("Running", "Suspended"):
        assert [value for _, value in asked.find(SANDBOXES, operating_mode=mode)] == [1.0]
    assert back.find(SANDBOXES, operating_mode="Suspended") == []


@pytest.mark.case(141)
async def test_a_sandbox_without_a_ready_condition_is_not_ready() -> None:
    """Case 141: nothing published yet reads as false, not as a missing series."""
    async with open_world() as world:
        world.plane.fail_next("patch", "sandboxes/status", 500, times=5)
        await world.create(sandbox())
        found = await scraping(world)
    assert found.find(SANDBOXES, ready_condition="true") == []
    assert [value for _, value in found.find(SANDBOXES, ready_condition="false")] == [1.0]


@pytest.mark.case(141)
async def test_owners_are_told_by_group_whatever_their_version() -> None:
    """Case 141: an old version of the group counts, another group or kind of owner does not."""
    async with open_world() as world:
        old = world.foreign_owner(kind="SandboxWarmPool")
        old["apiVersion"] = "extensions.agents.x-k8s.io/v1alpha1"
        other = {**old, "apiVersion": "example.org/v1"}
        await world.create(sandbox("a", metadata={"ownerReferences": [old]}))
        await world.create(sandbox("b", metadata={"ownerReferences": [other]}))
        await world.create(sandbox("c", metadata={"ownerReferences": [{**old, "kind": "Other"}]}))
        found = await scraping(world)
    assert [value for _, value in found.find(SANDBOXES, owned_by="SandboxWarmPool")] == [1.0]
    assert [value for _, value in found.find(SANDBOXES, owned_by="None")] == [2.0]


@pytest.mark.case(141)
async def test_sandboxes_with_the_same_labels_share_a_series() -> None:
    """Case 141: four Sandboxes, two of them alike, make three series; no others appear."""
    async with open_world() as world:
        warm = {"labels": {"agents.x-k8s.io/launch-type": "warm"}}
        made = {"labels": {"agents.x-k8s.io/created-by": "go-client"}}
        odd = {"labels": {"agents.x-k8s.io/created-by": "evil"}}
        for name, metadata in {"a": {}, "b": odd, "c": warm, "d": made}.items():
            await world.create(sandbox(name, metadata=metadata))
        found = await scraping(world)
    assert sorted(value for _, value in found.find(SANDBOXES)) == [1.0, 1.0, 2.0]
    assert [value for _, value in found.find(SANDBOXES, created_by="unknown")] == [2.0, 1.0]
    assert [value for _, value in found.find(SANDBOXES, launch_type="warm")] == [1.0]


async def test_an_expired_sandbox_is_told_apart() -> None:
    """Expired follows the reason of Ready."""
    async with open_world() as world:
        spec = {"shutdownTime": "2026-01-02T03:05:05Z", "shutdownPolicy": "Retain"}
        await world.ready_sandbox(sandbox(spec=spec))
        await world.advance(120.0)
        found = await scraping(world)
    assert [value for _, value in found.find(SANDBOXES, expired="true")] == [1.0]


async def test_a_pool_shows_all_four_statuses() -> None:
    """Members count as what they report; a status that none has is zero."""
    async with open_claims("m1", "m2", "m3", "m4", ready=False) as world:
        # What has ended is replaced at once otherwise.
        world.plane.fail_next("delete", "sandboxes", 500, times=1000)
        await world.run_pod("m1")
        await world.pod_status("m2", phase="Succeeded")
        await world.pod_status("m3", phase="Failed")
        await world.advance(2.0)
        found = await scraping(world)
    assert sizes(found) == {"ready": 1.0, "pending": 1.0, "succeeded": 1.0, "failed": 1.0}


async def test_an_empty_pool_shows_zeroes_and_no_pool_shows_nothing() -> None:
    """Zero for every status of every pool; the family is absent when there is none that stays."""
    async with open_claims() as world:
        await world.create(sandbox())
        found = await scraping(world)
        await world.patch(POOLS, "pool", {"metadata": {"finalizers": ["example.org/stay"]}})
        await world.delete(POOLS, "pool")
        without = await scraping(world)
    assert sizes(found) == {"ready": 0.0, "pending": 0.0, "succeeded": 0.0, "failed": 0.0}
    assert POOL_SIZE not in without.families


async def test_only_what_the_pool_owns_and_keeps_is_counted() -> None:
    """Adopted members, members on their way out and those of a namesake do not count."""
    async with open_claims("m1", "m2", "m3", replicas=3) as world:
        await world.create(claim())
        held = world.get("m2")
        held["metadata"].setdefault("finalizers", []).append("example.org/stay")
        await world.patch("sandboxes", "m2", {"metadata": held["metadata"]})
        namesake = {**controlled_by(world.plane.store.get(POOLS, NS, "pool")), "uid": "another"}
        await world.create(sandbox("m9", metadata={"ownerReferences": [namesake]}))
        before = await scraping(world)
        await world.delete("sandboxes", "m2", grace_s=None)
        after = await scraping(world)
    assert (sizes(before)["ready"], sizes(after)["ready"]) == (2.0, 1.0)


async def test_a_member_of_a_template_of_before_keeps_its_label() -> None:
    """A member is counted under the template it was made from, the zeroes under the pool's."""
    before = (template("old"),)
    async with open_claims("m1", before=before, replicas=1) as world:
        note = {"metadata": {"annotations": {"agents.x-k8s.io/sandbox-template-ref": "old"}}}
        await world.patch("sandboxes", "m1", note)
        await world.create(pool("other", template="old"))
        found = await scraping(world)
    assert found.find(POOL_SIZE, warmpool_name="pool", sandbox_template="old")[0][1] == 1.0
    zeroes = found.find(POOL_SIZE, warmpool_name="pool", sandbox_template="tpl")
    assert [value for _, value in zeroes] == [0.0] * 4
    assert len(found.find(POOL_SIZE, warmpool_name="other", sandbox_template="old")) == 4


def _many(count: int) -> Caches:
    caches = build_caches()
    for number in range(count):
        key = Key("ns", f"sb-{number}")
        caches.sandboxes.put(SandboxEntry(key, f"u{number}", 1))
    return caches


async def test_a_walk_over_many_lets_others_run_and_bears_changes() -> None:
    """While thousands are counted other tasks run, and may add and remove Sandboxes."""
    caches = _many(5000)
    turns = 0

    async def disturb() -> None:
        nonlocal turns
        while True:
            turns += 1
            caches.sandboxes.remove(Key("ns", f"sb-{turns}"))
            key = Key("ns", f"new-{turns}")
            caches.sandboxes.put(SandboxEntry(key, f"v{turns}", 1))
            await anyio.lowlevel.checkpoint()

    found = Exposition()
    async with anyio.create_task_group() as group:
        group.start_soon(disturb)
        assert await survey(found, caches.sandboxes, [], FakeClock())
        group.cancel_scope.cancel()
    assert turns >= 4
    assert sum(value for _, value in found.families[SANDBOXES][1]) == 5000  # type: ignore[misc]


async def test_a_walk_that_takes_too_long_shows_nothing() -> None:
    """After five seconds the gauges are left out: no number is better than a wrong one."""
    found = Exposition()
    assert await survey(found, _many(3000).sandboxes, [], _Jumping()) is False
    assert found.families == {}


class _Jumping(FakeClock):
    """A clock on which every look takes three seconds."""

    _looks = 0

    def monotonic(self) -> float:
        """Return a later time at each look."""
        self._looks += 1
        return 3.0 * self._looks


async def test_what_the_caches_hold_is_counted() -> None:
    """Objects are counted exactly."""
    async with open_world() as world:
        for number in range(5):
            await world.create(sandbox(f"sb-{number}"))
        found = await scraping(world)
    assert found.value("lean_sandbox_cache_objects", resource="sandboxes") == 5

"""Who takes over knows of Sandboxes only what rows showed, and judges none by what it does not.

A standby watches Tables: that a status has changed it sees, and what it says now only by a GET.
"""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.local.direct import StoredChange
from tests.manager.replicas import Replica, Replicas, open_replicas
from tests.support.builders import claim, pool, template
from tests.support.extensions import BIND
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.world import NS, condition, sandbox

Json = dict[str, Any]
SETTINGS = Settings(
    extensions=True,
    sandbox_status_window=1.0,
    sandbox_status_step_window=0.0,
    sandbox_warm_pool_readiness_grace_period=20.0,
)
MEMBERS = 3


async def filled(replicas: Replicas) -> None:
    """Have a pool filled while a standby watches."""
    one = replicas.all[0]
    for body in (template(), pool(replicas=MEMBERS)):
        await one.world.create(body)
    for pod in replicas.plane.store.list("pods", NS):
        await one.world.run_pod(pod["metadata"]["name"])
    await replicas.advance(5.0)
    assert replicas.plane.store.get(POOLS, NS, "pool")["status"]["readyReplicas"] == MEMBERS


def written(one: Replica) -> list[str]:
    """Return what a replica has written, but for the counts of pools.

    What a pool itself tells is not followed by a standby: it is told once more, and the same.
    """
    return [entry.what for entry in one.writes() if entry.resource != "sandboxwarmpools"]


@pytest.mark.parametrize("age_s", [0.0, 30.0])
async def test_members_that_got_ready_under_another_are_kept(age_s: float) -> None:
    """However old they are: neither replaced as stuck nor counted as not ready."""
    async with open_replicas("one", "two", settings=SETTINGS) as replicas:
        one, two = replicas.all
        await filled(replicas)
        await replicas.advance(age_s)
        before = {one["metadata"]["uid"] for one in replicas.plane.store.list(SANDBOXES, NS)}
        one.controller.stop()
        await one.world.until(lambda: one.has_ended)
        await replicas.advance(30.0)
        assert replicas.leader is two
        assert {
            one["metadata"]["uid"] for one in replicas.plane.store.list(SANDBOXES, NS)
        } == before
        assert written(two) == []
        counts = replicas.plane.store.get(POOLS, NS, "pool")["status"]
        assert (counts["replicas"], counts["readyReplicas"]) == (MEMBERS, MEMBERS)


async def test_a_claim_that_was_ready_stays_so() -> None:
    """Its status is not written before its Sandbox has been reconciled, nor after."""
    async with open_replicas("one", "two", settings=SETTINGS) as replicas:
        one, two = replicas.all
        await filled(replicas)
        await one.world.create(claim())
        await replicas.advance(5.0)
        held = replicas.plane.store.get(CLAIMS, NS, "c")
        assert condition(held, "Ready")["status"] == "True"
        one.controller.stop()
        await one.world.until(lambda: one.has_ended)
        await replicas.advance(30.0)
        assert replicas.leader is two
        assert not [entry for entry in two.writes() if entry.resource == "sandboxclaims"]
        assert replicas.plane.store.get(CLAIMS, NS, "c")["status"] == held["status"]


async def test_a_claim_bound_by_a_dead_leader_becomes_ready() -> None:
    """Its member was ready before: what the GET finds is told to the claim."""
    async with open_replicas("one", "two", settings=SETTINGS) as replicas:
        one, two = replicas.all
        await filled(replicas)
        one.world.meanwhile("patch", "sandboxclaims/status", one.scope.cancel)
        replicas.plane.store.create(claim())
        await two.world.until(lambda: one.has_ended)
        await replicas.advance(30.0)
        assert replicas.leader is two
        held = replicas.plane.store.get(CLAIMS, NS, "c")
        assert condition(held, "Ready")["status"] == "True"
        assert held["status"]["sandbox"]["podIPs"]


async def test_a_new_claim_takes_a_ready_member_after_a_takeover() -> None:
    """The queue of members learns who is ready as they are reconciled."""
    async with open_replicas("one", "two", settings=SETTINGS) as replicas:
        one, two = replicas.all
        await filled(replicas)
        one.controller.stop()
        await one.world.until(lambda: one.has_ended)
        await replicas.advance(10.0)
        assert replicas.leader is two
        await two.world.create(claim())
        await replicas.settle()
        held = replicas.plane.store.get(CLAIMS, NS, "c")
        assert condition(held, "Ready")["status"] == "True"
        assert written(two)[:3] == BIND


@pytest.mark.parametrize("ended", ["killed", "stopped"])
async def test_a_claim_made_while_nobody_led_takes_a_ready_member(ended: str) -> None:
    """However long it has waited: it starts no Sandbox before the members were reconciled."""
    async with open_replicas("one", "two", settings=SETTINGS) as replicas:
        one, two = replicas.all
        await filled(replicas)
        if ended == "killed":
            one.scope.cancel()
        else:
            one.controller.stop()
        await two.world.until(lambda: one.has_ended)
        replicas.plane.store.create(claim())
        await replicas.advance(40.0)
        assert replicas.leader is two
        bound = replicas.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        assert bound.startswith("pool-")


@pytest.mark.parametrize(("page_size", "pages"), [(10, (3, 3)), (24, (2, 0)), (25, (0, 0))])
async def test_what_many_rows_have_hidden_is_read_by_pages(
    page_size: int, pages: tuple[int, int]
) -> None:
    """Of more than fit a page, whole objects are listed: no request for each of them."""
    settings = Settings(page_size=page_size)
    async with open_replicas("one", "two", settings=settings) as replicas:
        one, two = replicas.all
        for number in range(25):
            await one.world.ready_sandbox(sandbox(f"sb-{number}"))
        await one.world.patch("pods", "sb-3", {"metadata": {"labels": {"app": "x"}}})
        await replicas.advance(5.0)
        one.controller.stop()
        await one.world.until(lambda: one.has_ended)
        replicas.plane.audit.reset()
        await two.world.delete("pods", "sb-7")
        await replicas.advance(10.0)
        assert replicas.leader is two
        asked = two.asked()
        assert (asked["list sandboxes"], asked["list pods"]) == pages
        # Of the one that has to be made anew.
        assert asked["get sandboxes"] <= (2 if pages[0] else 25)
        assert asked["get pods"] <= (1 if pages[1] else 25)
        assert [entry.what for entry in two.writes()].count("create pods") == 1
        await two.world.run_pod("sb-7")
        await replicas.advance(5.0)
        ready = condition(replicas.plane.store.get(SANDBOXES, NS, "sb-7"), "Ready")
        assert ready["status"] == "True"


async def told_by_the_next(replicas: Replicas, *names: str) -> list[Json]:
    """Let the leader die; return what the next has made the status of claims and Sandboxes."""
    leader = replicas.leader
    told: list[Json] = []

    def take(change: StoredChange) -> None:
        if change.after is not None and change.after["metadata"]["name"] in names:
            told.append(change.after["status"])

    replicas.plane.store.follow(take, (SANDBOXES, CLAIMS))
    leader.scope.cancel()
    await leader.world.until(lambda: leader.has_ended)
    await replicas.advance(60.0)
    assert replicas.leader is not leader
    return told


async def test_a_bound_sandbox_of_which_no_column_changed_is_looked_at() -> None:
    """It is Suspended with its Pod, then without: neither time nor addresses come back."""
    async with open_replicas("one", settings=SETTINGS) as replicas:
        await filled(replicas)
        await replicas.all[0].world.create(claim())
        await replicas.advance(5.0)
        name = replicas.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        replicas.plane.store.patch(SANDBOXES, NS, name, {"spec": {"operatingMode": "Suspended"}})
        await replicas.advance(5.0)
        two = await replicas.build("two", SETTINGS)
        replicas.start(two)
        await two.world.until(two.controller.synced.is_set)
        replicas.plane.store.delete("pods", NS, name, grace_s=0)
        await replicas.advance(5.0)
        assert await told_by_the_next(replicas, "c", name) == []


async def test_a_status_written_twice_within_a_second_is_looked_at() -> None:
    """It was listed between both writes, and managedFields have whole seconds."""
    async with open_replicas("one", settings=SETTINGS) as replicas:
        await replicas.all[0].world.ready_sandbox(sandbox("sb-1"))
        await replicas.advance(5.0)
        suspend = {"spec": {"operatingMode": "Suspended"}}
        replicas.plane.store.patch(SANDBOXES, NS, "sb-1", suspend)
        await replicas.advance(0.1)
        two = await replicas.build("two", SETTINGS)
        replicas.start(two)
        await two.world.until(two.controller.synced.is_set)
        replicas.plane.store.delete("pods", NS, "sb-1", grace_s=0)
        await replicas.advance(5.0)
        suspended = condition(replicas.plane.store.get(SANDBOXES, NS, "sb-1"), "Suspended")
        assert suspended["reason"] == "PodTerminated"
        assert await told_by_the_next(replicas, "sb-1") == []


async def test_a_claim_whose_template_has_gone_keeps_the_addresses_of_its_sandbox() -> None:
    """Its status is not written before its Sandbox has been reconciled, nor after."""
    async with open_replicas("one", "two", settings=SETTINGS) as replicas:
        await filled(replicas)
        await replicas.all[0].world.create(claim())
        await replicas.advance(5.0)
        replicas.plane.store.delete(TEMPLATES, NS, "tpl")
        labels = {"additionalPodMetadata": {"labels": {"sandbox.users.io/mark": "v1"}}}
        replicas.plane.store.patch(CLAIMS, NS, "c", {"spec": labels})
        await replicas.advance(5.0)
        status = replicas.plane.store.get(CLAIMS, NS, "c")["status"]
        assert condition({"status": status}, "Ready")["reason"] == "TemplateNotFound"
        assert status["sandbox"]["podIPs"]
        assert await told_by_the_next(replicas, "c", status["sandbox"]["name"]) == []

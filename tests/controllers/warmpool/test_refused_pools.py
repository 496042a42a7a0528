"""Many pools that the server refuses: they share the tries, and heal together within seconds."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from lean_sandbox.controllers.warmpool.refusals import Refusals
from lean_sandbox.controllers.warmpool.state import Backoff
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.errors import internal
from lean_sandbox.local.kinds import Kind
from lean_sandbox.watch.kind import Key
from tests.metrics.scrape import scraping
from tests.support.builders import member, placed, pool
from tests.support.extensions import (
    change_pool,
    members,
    names_of,
    open_pools,
    pool_events,
    run_all,
)
from tests.support.names import SANDBOXES, TEMPLATES
from tests.support.webhooks import add_webhook
from tests.support.world import NS, World, open_world

Json = dict[str, Any]
MANY = 30
NAMES = [f"p-{number}" for number in range(MANY)]


class Quota:
    """A webhook that lets so many objects of a kind in, and refuses the others."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self.room: float = 0
        self.closed: set[str] = set()
        self.refused: Counter[str] = Counter()

    def add_to(self, plane: ControlPlane) -> None:
        """Ask this webhook before anything is stored."""
        add_webhook(plane, self._admit)

    def _admit(self, kind: Kind, one: Json) -> None:
        meta = one["metadata"]
        if kind.plural != self._resource or "resourceVersion" in meta:
            return
        if self.room < 1 or meta["namespace"] in self.closed:
            self.refused[meta["namespace"]] += 1
            raise internal("failed calling webhook: quota exceeded")
        self.room -= 1


def add_pools(world: World, names: list[str], *, namespace: str = NS) -> None:
    """Create pools of one member; in a namespace and from a template that may be new."""
    if world.plane.store.find("namespaces", "", namespace) is None:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        world.plane.store.create(made)
    for body in (placed(), *(pool(name, replicas=1) for name in names)):
        body["metadata"]["namespace"] = namespace
        world.plane.store.create(body)


def number_of(world: World, resource: str) -> int:
    """Return how many objects of a kind there are in all namespaces."""
    return len(world.plane.store.list(resource))


@pytest.mark.parametrize("resource", ["sandboxes", "pods"])
async def test_refused_pools_of_a_namespace_try_twice_a_second_and_heal_in_five(
    resource: str,
) -> None:
    """Each tries once; then all together do, and once one gets on all do, without an Event more."""
    quota = Quota(resource)
    async with open_pools(prepare=quota.add_to) as world:
        add_pools(world, NAMES)
        await world.advance(10.0)
        assert MANY <= quota.refused[NS] <= MANY + 20
        quota.refused.clear()
        await world.advance(20.0)
        assert 0.8 * 40 <= quota.refused[NS] <= 40
        assert [reason for _, reason, _ in pool_events(world)] == ["WarmPoolNotProgressing"] * MANY
        quota.room = math.inf
        await world.advance(5.0)
        assert number_of(world, SANDBOXES) == number_of(world, "pods") == MANY


@pytest.mark.parametrize("resource", ["sandboxes", "pods"])
async def test_refused_pools_of_many_namespaces_try_four_times_a_second_and_heal_in_five(
    resource: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook of the whole cluster is back: one pool gets on, and then all do.

    Until then a scrape tells of as many of them as it has room for.
    """
    monkeypatch.setattr("lean_sandbox.controllers.warmpool.controller.MOST_SERIES", 20)
    quota = Quota(resource)
    async with open_pools(prepare=quota.add_to) as world:
        for name in NAMES:
            add_pools(world, ["pool"], namespace=name)
        await world.advance(30.0)
        quota.refused.clear()
        await world.advance(20.0)
        assert 0.8 * 80 <= quota.refused.total() <= 80
        assert len((await scraping(world)).find("lean_sandbox_warmpool_not_progressing")) == 20
        quota.room = math.inf
        await world.advance(5.0)
        assert number_of(world, SANDBOXES) == number_of(world, "pods") == MANY


@pytest.mark.parametrize("resource", ["sandboxes", "pods"])
async def test_a_place_that_is_free_costs_no_try_of_every_pool(resource: str) -> None:
    """One of thirty pools gets on: two others try at once, and are refused."""
    quota = Quota(resource)
    async with open_pools(prepare=quota.add_to) as world:
        add_pools(world, NAMES)
        await world.advance(30.0)
        quota.room = 1
        while quota.room:
            quota.refused.clear()
            await world.advance(0.05)
        # Members gather their changes for 0.2 s; by then another may have tried in its turn.
        await world.advance(0.25)
        assert 2 <= quota.refused[NS] <= 3
        await world.advance(4.0)
        assert 4 * 2 - 2 <= quota.refused[NS] <= 4 * 2 + 3


async def test_the_others_that_try_at_once_are_of_the_same_namespace_first() -> None:
    """The quota of one tenant is raised: its pools get on, while those of another are refused."""
    quota = Quota("sandboxes")
    async with open_pools(prepare=quota.add_to) as world:
        for namespace in ("a", "b"):
            add_pools(world, NAMES, namespace=namespace)
        await world.advance(30.0)
        quota.closed.add("b")
        quota.room = math.inf
        await world.advance(2.0)
        assert len(world.plane.store.list(SANDBOXES, "a")) == MANY
        assert not world.plane.store.list(SANDBOXES, "b")


@pytest.mark.parametrize("resource", ["sandboxes", "pods"])
async def test_a_tenants_refused_pools_do_not_make_another_wait(resource: str) -> None:
    """A pool alone in its namespace tries every four seconds beside thirty of another's."""
    quota = Quota(resource)
    async with open_pools(prepare=quota.add_to) as world:
        add_pools(world, NAMES, namespace="many")
        add_pools(world, ["pool"], namespace="alone")
        await world.advance(30.0)
        quota.refused.clear()
        await world.advance(20.0)
        assert quota.refused["alone"] == 5


@pytest.mark.parametrize("way", ["replicas", "template"])
async def test_pools_that_try_nothing_do_not_slow_the_others(way: str) -> None:
    """Refused ones that are scaled to zero, or lose their template, take no part of the rate."""
    quota = Quota("sandboxes")
    async with open_pools(prepare=quota.add_to) as world:
        add_pools(world, NAMES)
        world.plane.store.create(placed("other"))
        world.plane.store.create(pool("other", replicas=1, template="other"))
        await world.advance(10.0)
        if way == "template":
            await world.delete(TEMPLATES, "tpl")
        else:
            for name in NAMES:
                await change_pool(world, {"replicas": 0}, name)
        await world.advance(30.0)
        quota.refused.clear()
        await world.advance(40.0)
        assert quota.refused[NS] == 10


async def test_a_large_pool_whose_pods_are_refused_makes_few_members() -> None:
    """The first Pod that is refused ends the filling; all wanted are there 5 s after the end."""
    quota = Quota("pods")
    async with open_pools(prepare=quota.add_to) as world:
        await world.create(placed())
        await world.create(pool(replicas=100))
        await world.advance(60.0)
        assert 1 <= len(members(world)) <= 7
        # The first pauses double from a tenth of a second to the four that follow.
        assert quota.refused[NS] <= 7 + 60.0 / 4.0 + 6
        quota.room = math.inf
        await world.advance(5.0)
        assert len(members(world)) == number_of(world, "pods") == 100


async def test_members_whose_pods_are_all_refused_anew_try_together() -> None:
    """A pool was full when its Pods were lost and refused: its members try one after the other."""
    quota = Quota("pods")
    quota.room = math.inf
    async with open_pools(prepare=quota.add_to) as world:
        await world.create(placed())
        await world.create(pool(replicas=MANY))
        await world.advance(2.0)
        await run_all(world)
        quota.room = 0
        before = names_of(members(world))
        for name in before:
            await world.delete("pods", name)
        await world.advance(60.0)
        assert MANY <= quota.refused[NS] <= MANY + 60.0 / 4.0 + 6
        quota.room = math.inf
        await world.advance(5.0)
        assert names_of(members(world)) == before
        assert number_of(world, "pods") == MANY


async def test_a_member_whose_lost_pod_is_refused_beside_newer_ones_is_let_in_within_five() -> None:
    """It is refused alone, as newer members are ready: the pool has it tried all the same."""
    quota = Quota("pods")
    quota.room = math.inf
    async with open_pools(prepare=quota.add_to) as world:
        await world.create(placed())
        await world.create(pool(replicas=1))
        await world.advance(2.0)
        await run_all(world)
        old = names_of(members(world))[0]
        await change_pool(world, {"replicas": 2})
        await world.advance(2.0)
        await run_all(world)
        quota.room = 0
        await world.delete("pods", old)
        await world.advance(60.0)
        assert 60.0 / 4.0 <= quota.refused[NS] <= 60.0 / 4.0 + 6
        quota.room = math.inf
        await world.advance(5.0)
        assert world.find("pods", old) is not None


async def test_a_refused_member_of_a_pool_that_nobody_serves_tries_every_five_minutes() -> None:
    """Without the extensions no pool says when; the Pod follows the end of the policy."""
    quota = Quota("pods")
    async with open_world(prepare=quota.add_to) as world:
        world.plane.store.create(placed())
        owner = world.plane.store.create(pool(replicas=1))
        world.plane.store.create(member(owner, placed(), "m"))
        await world.advance(10.0)
        assert quota.refused[NS] == 1
        quota.room = math.inf
        await world.advance(300.0)
        assert world.find("pods", "m") is not None


async def test_what_is_refused_is_tried_after_a_tenth_of_a_second_and_pauses_that_double() -> None:
    """Up to four seconds, for a pool alone, for as long as it takes."""
    quota = Quota("sandboxes")
    tried_at: list[float] = []
    async with open_pools(prepare=quota.add_to) as world:
        add_pools(world, ["pool"])
        for step in range(320):
            await world.advance(0.0 if not step else 0.05)
            tried_at += [step * 0.05] * (quota.refused[NS] - len(tried_at))
        assert tried_at == pytest.approx([0.0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 10.3, 14.3], abs=0.06)
        quota.refused.clear()
        await world.advance(400.0)
        assert quota.refused[NS] == 100
    assert Refusals({}, lambda _: None).put_off(Key(NS, "pool"), Backoff(in_vain=5000), 0.0) == 4.0


async def test_a_refused_member_that_somebody_edits_tries_by_itself() -> None:
    """It says nothing of the others, so the pool does not try it: its own pauses begin anew."""
    quota = Quota("pods")
    async with open_pools(prepare=quota.add_to) as world:
        add_pools(world, ["pool"])
        await world.advance(60.0)
        (name,) = names_of(members(world))
        edit = {"spec": {"podTemplate": {"spec": {"hostname": "edited"}}}}
        world.plane.store.patch(SANDBOXES, NS, name, edit)
        await world.advance(1.0)
        quota.room = math.inf
        await world.advance(2.0)
        assert world.find("pods", name) is not None

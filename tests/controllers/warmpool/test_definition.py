"""What the API server and the pool's subresources say to a client."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from lean_sandbox.kube.resources import SANDBOXWARMPOOLS
from lean_sandbox.local.errors import StatusError
from lean_sandbox.model.names import name_hash
from tests.support.builders import placed, pool
from tests.support.extensions import (
    change_pool,
    fill,
    members,
    open_pools,
    pool_status,
    rest,
    run_all,
    start,
)
from tests.support.names import POOLS, WARM_POOL
from tests.support.world import NS

Json = dict[str, Any]


@pytest.mark.pool_case(3, 4, 6)
@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": -1, "sandboxTemplateRef": {"name": "tpl"}},
        {"replicas": 1},
        {"sandboxTemplateRef": {}},
        {"sandboxTemplateRef": {"name": "tpl"}, "updateStrategy": {"type": "Rolling"}},
        {"sandboxTemplateRef": {"name": "tpl"}, "readinessGracePeriodSeconds": 29},
        {"sandboxTemplateRef": {"name": "tpl"}, "readinessGracePeriodSeconds": "1m"},
    ],
)
async def test_a_pool_that_makes_no_sense_is_rejected(spec: Json) -> None:
    """Pool case 3, 4, 6: the server answers 422 and nothing is stored."""
    async with open_pools() as world:
        with pytest.raises(StatusError) as refused:
            world.plane.store.create({**pool(replicas=2), "spec": spec})
        assert refused.value.code == 422
        assert world.find(POOLS, "pool") is None


@pytest.mark.pool_case(6)
async def test_an_empty_strategy_reads_on_replenish() -> None:
    """Pool case 6: the default stands inside the object that is given."""
    async with open_pools() as world:
        body = pool(replicas=0)
        body["spec"]["updateStrategy"] = {}
        made = world.plane.store.create(body)
        assert made["spec"]["updateStrategy"] == {"type": "OnReplenish"}


@pytest.mark.pool_case(5)
async def test_a_template_without_a_name_is_one_that_is_missing() -> None:
    """Pool case 5: accepted, no member, no failing reconcile."""
    async with open_pools() as world:
        await world.create(pool(template="", replicas=2))
        await world.advance(300.0)
        assert not members(world)
        assert world.controller.activity().errors["sandboxwarmpool"] == 0


@pytest.mark.pool_case(7)
async def test_the_columns_of_a_pool() -> None:
    """Pool case 7: NAME READY DESIRED AGE, as kubectl shows them."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        table = await world.admin.list(
            SANDBOXWARMPOOLS,
            dict,
            namespace=NS,
            accept="application/json;as=Table;g=meta.k8s.io;v=v1",
        )
        shown = [one["name"] for one in table["columnDefinitions"] if one["priority"] == 0]
        assert [name.upper() for name in shown] == ["NAME", "READY", "DESIRED", "AGE"]
        assert table["rows"][0]["cells"][:3] == ["pool", 2, 2]


@pytest.mark.pool_case(8, 18)
async def test_a_pool_is_scaled_by_its_subresource() -> None:
    """Pool case 8, 18: only what is missing is created, and the selector is the status's own."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1))
        await world.admin.patch(
            SANDBOXWARMPOOLS,
            "pool",
            {"spec": {"replicas": 3}},
            bytes,
            namespace=NS,
            subresource="scale",
        )
        await run_all(world)
        stored = world.plane.store.get(POOLS, NS, "pool")
        assert stored["metadata"]["generation"] == 2
        assert len(members(world)) == 3
        assert world.writes()["create sandboxes"] == 2
        scale = await world.admin.get(
            SANDBOXWARMPOOLS, "pool", dict, namespace=NS, subresource="scale"
        )
        assert scale is not None
        assert scale["status"] == {
            "replicas": 3,
            "selector": f"{WARM_POOL}={name_hash('pool')}",
        }
        assert stored["status"]["selector"] == scale["status"]["selector"]


@pytest.mark.pool_case(22, 25)
async def test_the_status_tells_counts_selector_and_generation() -> None:
    """Pool case 22, 25: three members, one Ready; a change of replicas is told with the counts."""
    async with open_pools(placed()) as world:
        await world.create(pool(replicas=3))
        await rest(world)
        selector = f"{WARM_POOL}={name_hash('pool')}"
        assert pool_status(world) == {
            "replicas": 3,
            "selector": selector,
            "observedGeneration": 1,
        }
        await run_all(world)
        await rest(world)
        world.forget_requests()
        await change_pool(world, {"replicas": 2})
        await rest(world)
        assert pool_status(world) == {
            "replicas": 2,
            "readyReplicas": 2,
            "selector": selector,
            "observedGeneration": 2,
        }
        assert world.writes()["patch sandboxwarmpools/status"] == 1
        for request in world.requests("patch", "sandboxwarmpools"):
            assert request.content_type == "application/merge-patch+json"
            assert request.subresource == "status"


@pytest.mark.pool_case(25)
@pytest.mark.parametrize("replicas", [1, 4])
async def test_another_generation_is_told_at_once(replicas: int) -> None:
    """Pool case 25: whoever waits for it does not wait for the window as well."""
    async with open_pools(sandbox_status_window=60.0) as world:
        await fill(world, pool(replicas=2))
        await change_pool(world, {"replicas": replicas})
        status = pool_status(world)
        assert (status["observedGeneration"], status["replicas"]) == (2, replicas)
        assert world.writes()["patch sandboxwarmpools/status"] == 1


@pytest.mark.pool_case(24)
async def test_what_changes_nothing_is_not_written() -> None:
    """Pool case 24: metadata of the pool, a status written to a member: no patch."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        await world.patch(POOLS, "pool", {"metadata": {"labels": {"a": "b"}}})
        await world.patch(POOLS, "pool", {"spec": {"replicas": 2}})
        await rest(world)
        assert not world.asked()


async def test_counts_that_cannot_be_written_are_tried_with_growing_pauses() -> None:
    """From 5 ms, doubling: fifteen times within two minutes, and written once they can be."""
    async with open_pools(placed()) as world:
        await fill(world, pool(replicas=2))
        world.plane.fail_next("patch", "sandboxwarmpools/status", 403, times=1000)
        await change_pool(world, {"replicas": 1})
        await world.advance(120.0)
        assert 10 <= world.asked()["patch sandboxwarmpools/status"] <= 16
        world.plane.faults.clear()
        await world.advance(120.0)
        assert pool_status(world)["replicas"] == 1


async def test_counts_whose_answer_is_lost_are_told_once_more() -> None:
    """While no event shows them, it is unknown what the status says."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        world.meanwhile(
            "patch",
            "sandboxwarmpools/status",
            lambda: world.plane.hold_events("sandboxwarmpools"),
        )
        world.plane.fail_next("patch", "sandboxwarmpools/status", 500, after=True)
        await change_pool(world, {"replicas": 1})
        await world.advance(2.0)
        assert (pool_status(world)["replicas"], pool_status(world)["observedGeneration"]) == (1, 2)
        assert world.asked()["patch sandboxwarmpools/status"] == 2


@pytest.mark.pool_case(22)
async def test_counts_are_written_at_most_once_a_second() -> None:
    """Budget: members become Ready one by one; between two patches there is a second, or nearly."""
    async with open_pools(placed(), sandbox_status_window=0.0) as world:
        await world.create(pool(replicas=40))
        await rest(world)
        world.forget_requests()
        names = [one["metadata"]["name"] for one in members(world)]
        written: list[float] = []
        for name in names * 2:
            start(world, name)
            for _ in range(2):
                await world.advance(0.0625)
                patches = world.writes()["patch sandboxwarmpools/status"]
                written += [world.clock.monotonic()] * (patches - len(written))
        await rest(world)
        assert pool_status(world)["readyReplicas"] == 40
        assert all(later - earlier > 0.9 for earlier, later in pairwise(written))
        assert 5 <= len(written) <= 6

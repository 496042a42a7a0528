"""Pods watched as bare cells: everything still happens, at the price of a look at what they hide.

The other tests of this folder watch all namespaces, where Pods come with their metadata.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.support.clock import FakeClock
from tests.support.world import (
    CONTROLLER,
    HASH_LABEL,
    NS,
    World,
    condition,
    open_world,
    pod_conditions,
    sandbox,
    tracking,
    watched,
)

Json = dict[str, Any]
TEMPLATE = {"metadata": {"labels": {"a": "1"}, "annotations": {"c": "3"}}}
LISTED = "agents.x-k8s.io/propagated-labels"


@asynccontextmanager
async def open_cells(plane: ControlPlane | None = None) -> AsyncIterator[World]:
    """Run a controller of one namespace, whose Pods are watched as cells."""
    async with open_world(watched("cells"), plane=plane) as world:
        yield world


def pod_watches(world: World) -> list[str]:
    """Return the queries of the controller's watches of Pods."""
    found = world.plane.audit.select(user=CONTROLLER, resource="pods")
    return [entry.query for entry in found if entry.verb == "watch"]


async def test_a_launch_costs_what_it_always_costs() -> None:
    """Two writes and two GETs, while the watch has shown nothing but cells."""
    async with open_cells() as world:
        (query,) = pod_watches(world)
        assert "includeObject=None" in query
        world.forget_requests()
        await world.ready_sandbox()
        assert world.writes() == {"create pods": 1, "patch sandboxes/status": 1}
        assert world.asked() == {**world.writes(), "get sandboxes": 1, "get pods": 1}
        assert not world.conflicts()


@pytest.mark.parametrize(
    "edit",
    [
        {"labels": {"a": "forged"}},
        {"labels": {"a": None}},
        {"labels": {HASH_LABEL: "00000000"}},
        {"annotations": {"c": "forged"}},
        {"annotations": {LISTED: None}},
        {"ownerReferences": None},
    ],
)
async def test_an_edit_by_hand_is_found_by_one_look_and_undone_by_one_patch(edit: Json) -> None:
    """Labels, annotations and owner are in no cell: the event that shows nothing is the hint."""
    async with open_cells() as world:
        await world.ready_sandbox(sandbox(template=TEMPLATE))
        before = world.pod()["metadata"]
        world.forget_requests()
        await world.patch("pods", "sb-1", {"metadata": edit})
        after = world.pod()["metadata"]
        for part in ("labels", "annotations", "ownerReferences"):
            assert after[part] == before[part]
        assert world.asked() == {"get pods": 1, "patch pods": 1}


async def test_what_others_put_on_a_pod_costs_a_look_and_no_write() -> None:
    """It might have been ours."""
    async with open_cells() as world:
        await world.ready_sandbox(sandbox(template=TEMPLATE))
        world.forget_requests()
        await world.patch("pods", "sb-1", {"metadata": {"annotations": {"note": "y"}}})
        await world.advance(60.0)
        assert world.asked() == {"get pods": 1}


async def test_a_pod_that_lost_its_tracking_label_gets_it_back() -> None:
    """The watch tells its end without a deletion; a look tells that it is there."""
    async with open_cells() as world:
        await world.ready_sandbox()
        world.forget_requests()
        await world.patch("pods", "sb-1", {"metadata": {"labels": {HASH_LABEL: None}}})
        assert world.pod()["metadata"]["labels"] == tracking()
        assert world.asked()["patch pods"] == 1
        assert "create pods" not in world.asked()
        await world.run_pod(ready=False)
        assert condition(world.get(), "Ready")["status"] == "False"


async def test_a_lost_node_makes_the_sandbox_unready() -> None:
    """The cells of a Pod on a lost node say that its containers are ready, as they did before."""
    async with open_cells() as world:
        await world.ready_sandbox()
        world.forget_requests()
        world.plane.store.patch(
            "pods",
            NS,
            "sb-1",
            {"status": {"conditions": pod_conditions(ready=False)}},
            subresource="status",
            manager="kube-controller-manager",
        )
        await world.settle()
        assert condition(world.get(), "Ready")["status"] == "False"
        assert world.asked() == {"get pods": 1, "patch sandboxes/status": 1}


async def test_a_pod_that_others_made_is_adopted() -> None:
    """It is asked for by name, once, and known when its Sandbox comes."""
    async with open_cells() as world:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "sb-1",
                "namespace": NS,
                "labels": {**tracking(), "agents.x-k8s.io/adoptable": "true"},
            },
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        }
        world.plane.store.create(pod)
        await world.settle()
        world.forget_requests()
        await world.create(sandbox())
        assert world.writes()["patch pods"] == 1
        assert "create pods" not in world.asked()
        (owner,) = world.pod()["metadata"]["ownerReferences"]
        assert owner["uid"] == world.get()["metadata"]["uid"]


async def test_a_pod_that_is_deleted_is_replaced() -> None:
    """Its going and its end are in the cells; the successor is another Pod, Ready in its turn."""
    async with open_cells() as world:
        await world.ready_sandbox()
        uid = world.pod()["metadata"]["uid"]
        world.forget_requests()
        await world.delete("pods", "sb-1")
        await world.run_pod()
        await world.advance(60.0)
        assert world.pod()["metadata"]["uid"] != uid
        assert condition(world.get(), "Ready")["status"] == "True"
        assert world.asked()["create pods"] == 1
        assert not world.conflicts()


async def test_a_restart_over_ready_pods_asks_for_nothing() -> None:
    """The list shows what cells do not."""
    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        async with open_cells(plane) as world:
            await world.ready_sandbox()
            world.forget_requests()
        async with open_cells(plane) as again:
            await again.advance(60.0)
            assert {request.partition(" ")[0] for request in again.asked(events=True)} == {"list"}
            assert condition(again.get(), "Ready")["status"] == "True"

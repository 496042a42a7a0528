"""Which Node a Pod is bound to, and when it waits for one, against the embedded API server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lean_sandbox.kube.resources import NODES, PODS
from lean_sandbox.local.kubelet.pods import Delay
from tests.local.kubelet.life import SWIFT
from tests.local.kubelet.wire import AGENT, World
from tests.support.world import status_managers


async def test_many_pods_share_the_nodes_and_no_address(world: World) -> None:
    """Each its own address, the Nodes evenly filled, five requests a start."""
    async with world.kubelet():
        names = [f"p{i}" for i in range(40)]
        for name in names:
            await world.make(name)
        found = await world.until_ready(*names)
    addresses = {ip["ip"] for pod in found for ip in pod["status"]["podIPs"]}
    assert len(addresses) == 40
    assert sum(pod["spec"]["nodeName"] == "node-0" for pod in found) == 20
    assert world.count("patch", "pods/status") == 160
    assert world.count("create", "pods/binding") == 40


async def test_an_unschedulable_pod_waits_for_a_node(world: World) -> None:
    """It says why, and is bound once a Node with the label is there."""
    async with world.kubelet():
        await world.make("picky", nodeSelector={"disk": "fast"})
        assert (await world.until_told("picky")).startswith("0/2 nodes are available")
        assert status_managers(await world.get("picky") or {}) == {"kube-scheduler"}
        patch = {"metadata": {"labels": {"disk": "fast"}}}
        await world.client.patch(NODES, "node-1", patch, bytes)
        (ready,) = await world.until_ready("picky")
        assert ready["spec"]["nodeName"] == "node-1"
        assert status_managers(ready) == {"kube-scheduler", "kubelet"}


async def test_taints_keep_pods_away_that_do_not_tolerate_them(world: World) -> None:
    """A Pod that waits is bound once a taint is taken away."""
    async with world.kubelet():
        await world.taint("node-0", "NoExecute")
        await world.taint("node-1", "NoSchedule")
        await world.make("meek")
        assert (await world.until_told("meek")).startswith(
            "0/2 nodes are available: 2 node(s) had untolerated taint(s)."
        )
        await world.make("hardy", tolerations=[{"operator": "Exists", "effect": "NoSchedule"}])
        (hardy,) = await world.until_ready("hardy")
        assert hardy["spec"]["nodeName"] == "node-1"
        await world.client.patch(NODES, "node-0", {"spec": {"taints": None}}, bytes)
        (meek,) = await world.until_ready("meek")
        assert meek["spec"]["nodeName"] == "node-0"


@pytest.mark.parametrize("end", ["delete", "complete"])
async def test_a_pod_that_waits_for_room_is_bound_when_another_one_ends(
    world: World, end: str
) -> None:
    """What a Pod asks for is free again when it is gone, or has run to its end."""
    big: dict[str, Any] = {
        "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "60"}}}]
    }
    room = {"status": {"allocatable": {"cpu": "100"}}}
    async with world.kubelet():
        for node in ("node-0", "node-1"):
            await world.client.patch(NODES, node, room, bytes, subresource="status")
        script = {"complete-after": "1h"} if end == "complete" else None
        for name in ("one", "two"):
            await world.make(name, script=script, restartPolicy="Never", **big)
        await world.until_ready("one", "two")
        await world.make("three", **big)
        assert (await world.until_told("three")).startswith(
            "0/2 nodes are available: 2 Insufficient cpu."
        )
        if end == "delete":
            await world.client.delete(PODS, "one", namespace="default")
        else:
            await world.clock.advance(3600)
        await world.until_ready("three")


async def test_a_pod_that_is_gone_before_its_write_is_answered_takes_no_room(
    world: World,
) -> None:
    """Its Node is as empty as before, whichever of answer and event comes first."""
    one = {"status": {"allocatable": {"pods": "1"}}}
    async with world.kubelet(replace(SWIFT, nodes=1)) as kubelet:
        await world.client.patch(NODES, "node-0", one, bytes, subresource="status")
        held = world.plane.hold("patch", "pods/status", times=1)
        await world.make("first")
        await world.until("first", lambda _: bool(held.waiting))
        await world.client.delete(PODS, "first", namespace="default", grace_period=0)
        await world.until("first", lambda _: kubelet.pods == 0)
        held.release()
        await world.make("second")
        await world.until_ready("second")


async def test_nothing_is_asked_for_a_pod_that_went_while_its_request_waited(
    world: World,
) -> None:
    """What it took then, nobody would give back."""
    async with world.kubelet(replace(SWIFT, max_in_flight=1)) as kubelet:
        held = world.plane.hold("patch", "pods/status", times=1)
        await world.make("busy")
        await world.until("busy", lambda _: bool(held.waiting))
        await world.make("late")
        await world.until("late", lambda _: kubelet.pods == 2)
        await world.clock.advance(1)
        await world.client.delete(PODS, "late", namespace="default", grace_period=0)
        await world.until("late", lambda _: kubelet.pods == 1)
        held.release()
        await world.until_ready("busy")
    asked = (e for e in world.plane.audit.entries if e.user_agent.startswith(AGENT))
    assert [entry.what for entry in asked if entry.code == 404] == []


async def test_nothing_is_bound_to_a_node_that_closes_in_between(world: World) -> None:
    """A Pod that is about to be bound goes elsewhere."""
    async with world.kubelet(replace(SWIFT, schedule=Delay(5))):
        await world.make("web")
        await world.clock.advance(1)
        await world.taint("node-0", "NoSchedule")
        (found,) = await world.until_ready("web")
        assert found["spec"]["nodeName"] == "node-1"


async def test_a_demand_that_is_not_simulated_is_refused_in_words(world: World) -> None:
    """The Pod stays Pending, and its condition and its Event name the field."""
    rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
    affinity = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]},
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": rule}
            ]
        },
    }
    field = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    async with world.kubelet():
        await world.make("apart", affinity=affinity)
        told = await world.until_told("apart")
        assert told == (
            "0/2 nodes are available: the simulated scheduler does not support"
            f" {field}. Leave it out, or make it a preference."
        )
        await world.until("apart", lambda _: bool(world.events("apart")))
        assert [one["message"] for one in world.events("apart")] == [told]
        del affinity["podAntiAffinity"]
        await world.make("near", affinity=affinity)
        await world.until_ready("near")


async def test_pods_of_other_schedulers_and_of_other_nodes_are_left_alone(world: World) -> None:
    """Neither bound nor run nor ended: somebody else does."""
    async with world.kubelet():
        await world.make("theirs", schedulerName="mine")
        await world.make("elsewhere", nodeName="a-machine")
        await world.client.delete(PODS, "elsewhere", namespace="default", grace_period=30)
        await world.make("ours")
        await world.until_ready("ours")
        assert "nodeName" not in (await world.get("theirs") or {})["spec"]
        elsewhere = await world.get("elsewhere")
        assert elsewhere is not None
        assert "startTime" not in elsewhere["status"]

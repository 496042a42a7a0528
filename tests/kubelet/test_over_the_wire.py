"""Laws of the kubelet against the embedded API server."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from lean_sandbox.clock import SystemClock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import NODES, PODS
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kubelet import Delay, Kubelet, KubeletSettings, WritesPerStart
from lean_sandbox.local.script import PREFIX
from tests.support.clients import connected, connection_to
from tests.support.world import status_managers

AGENT = "test-kubelet"
SWIFT = KubeletSettings(
    schedule=Delay(0.001),
    waiting=Delay(0.001),
    network=Delay(0.001, 0.004),
    running=Delay(0.001, 0.004),
    ready=Delay(0.001, 0.004),
    termination=Delay(0.005),
    exit=Delay(0.02),
    error_shown_s=0.02,
    backoff_s=0.02,
)


class World:
    """An API server, a client of it, and what a test wants to know."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        self.plane = plane
        self.client = client

    async def make(
        self, name: str, *, script: dict[str, str] | None = None, **spec: Any
    ) -> dict[str, Any]:
        """Create a Pod."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "annotations": {PREFIX + key: value for key, value in (script or {}).items()},
            },
            "spec": {"containers": [{"name": "main", "image": "nginx:1"}], **spec},
        }
        return await self.client.create(PODS, "default", body, dict)

    async def get(self, name: str) -> dict[str, Any] | None:
        """Read a Pod; None when it is not there."""
        return await self.client.find(PODS, "default", name, dict)

    async def until(
        self, name: str, holds: Callable[[dict[str, Any] | None], bool]
    ) -> dict[str, Any]:
        """Wait until something holds of a Pod and return it."""
        with anyio.fail_after(10):
            while True:
                found = await self.get(name)
                if holds(found):
                    return found or {}
                await anyio.sleep(0.005)

    async def until_ready(self, *names: str) -> list[dict[str, Any]]:
        """Wait until each of these Pods is ready."""
        return [await self.until(name, is_ready) for name in names]

    def count(self, verb: str, resource: str) -> int:
        """Return how many requests succeeded."""
        return sum(
            1
            for entry in self.plane.audit.entries
            if entry.code < 300
            and entry.what == f"{verb} {resource}"
            and entry.user_agent.startswith(AGENT)
        )


def is_ready(found: dict[str, Any] | None) -> bool:
    """Whether the Ready condition is True."""
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def phase_is(phase: str) -> Callable[[dict[str, Any] | None], bool]:
    """Return a test for a phase."""
    return lambda found: found is not None and found["status"].get("phase") == phase


@asynccontextmanager
async def kubelet_of(
    plane: ControlPlane, settings: KubeletSettings = SWIFT
) -> AsyncIterator[Kubelet]:
    """Run a kubelet."""
    chance = random.Random(1)  # noqa: S311
    async with (
        connected(connection_to(plane), user_agent=AGENT) as client,
        anyio.create_task_group() as group,
    ):
        kubelet = Kubelet(client, settings, clock=SystemClock(), chance=chance)
        await group.start(kubelet.run)
        yield kubelet
        group.cancel_scope.cancel()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Run an API server."""
    async with ControlPlane(crds=[]) as plane, connected(connection_to(plane)) as client:
        yield World(plane, client)


@pytest.mark.parametrize(
    ("trouble", "reason", "said"),
    [
        ("image-pull-error", "Failed", "failed to pull image"),
        ("image-pull-error", "BackOff", "Back-off pulling image"),
        ("crash-loop", "BackOff", "back-off restarting failed container"),
        ("unschedulable", "FailedScheduling", "0/2 nodes are available"),
    ],
)
async def test_what_goes_wrong_with_a_pod_is_told_by_an_event(
    world: World, trouble: str, reason: str, said: str
) -> None:
    """`kubectl describe pod` shows why it does not start; one that does well has no Events."""
    async with kubelet_of(world.plane, replace(SWIFT, crash_after_s=0.01, error_shown_s=0.01)):
        await world.make("well")
        await world.make("ill", script={trouble: "true"})

        def told() -> list[dict[str, Any]]:
            events = world.plane.store.list("events")
            assert all(one["involvedObject"]["name"] == "ill" for one in events)
            return [one for one in events if one["reason"] == reason and said in one["message"]]

        await world.until_ready("well")
        await world.until("ill", lambda _: bool(told()))
        assert told()[0]["type"] == "Warning"


async def test_a_pod_becomes_ready_and_goes_when_deleted(world: World) -> None:
    """One binding, four status writes, a fifth with its last phase, one deletion."""
    async with kubelet_of(world.plane):
        await world.make("web")
        (found,) = await world.until_ready("web")
        assert found["spec"]["nodeName"] == "node-0"
        assert found["status"]["podIPs"]
        assert {c["type"]: c["status"] for c in found["status"]["conditions"]} == {
            "PodScheduled": "True",
            "PodReadyToStartContainers": "True",
            "Initialized": "True",
            "Ready": "True",
            "ContainersReady": "True",
        }
        await world.client.delete(PODS, "default", "web")
        await world.until("web", lambda found: found is None)
    assert world.count("create", "pods/binding") == 1
    assert world.count("patch", "pods/status") == 5
    assert world.count("delete", "pods") == 1
    assert world.count("get", "pods") == 0


async def test_nodes_are_registered_once(world: World) -> None:
    """A second kubelet takes over the Nodes of the first."""
    for _ in range(2):
        async with kubelet_of(world.plane):
            nodes = await world.client.list_page(NODES, None, dict)
            assert [n["metadata"]["name"] for n in nodes["items"]] == ["node-0", "node-1"]
            assert all(is_ready(n) for n in nodes["items"])
    assert world.count("create", "nodes") == 2


async def test_many_pods_share_the_nodes_and_no_address(world: World) -> None:
    """Each its own address, the Nodes evenly filled, two requests a start."""
    settings = replace(SWIFT, writes_per_start=WritesPerStart.ONE, dual_stack=True)
    async with kubelet_of(world.plane, settings):
        names = [f"p{i}" for i in range(40)]
        for name in names:
            await world.make(name)
        found = await world.until_ready(*names)
    addresses = [ip["ip"] for pod in found for ip in pod["status"]["podIPs"]]
    assert len(set(addresses)) == 80
    assert sum(pod["spec"]["nodeName"] == "node-0" for pod in found) == 20
    assert world.count("patch", "pods/status") == 40
    assert world.count("create", "pods/binding") == 40


async def test_a_kubelet_that_starts_anew_continues(world: World) -> None:
    """Pods half started by one are finished by the next; nothing is written for finished ones."""
    slow = replace(SWIFT, ready=Delay(60.0))
    async with kubelet_of(world.plane, slow):
        await world.make("half")
        await world.until("half", phase_is("Running"))
    async with kubelet_of(world.plane):
        (found,) = await world.until_ready("half")
        address = found["status"]["podIP"]
        await world.make("later")
        (later,) = await world.until_ready("later")
        assert later["status"]["podIP"] != address
    writes = world.count("patch", "pods/status")
    async with kubelet_of(world.plane):
        await world.make("last")
        await world.until_ready("last")
    assert world.count("patch", "pods/status") == writes + 4


async def test_cut_watches_and_lost_history_cost_nothing_but_time(world: World) -> None:
    """After a cut and a 410 the kubelet lists again and goes on, deletions included."""
    async with kubelet_of(world.plane) as kubelet:
        await world.make("before")
        await world.until_ready("before")
        world.plane.fail_next("watch", "pods", 500, 1)
        world.plane.drop_watches()
        await world.client.delete(PODS, "default", "before", grace_s=0)
        await world.make("during")
        world.plane.compact()
        await world.until_ready("during")
        assert kubelet.pods == 1
        assert world.count("list", "pods") == 2


async def test_an_unschedulable_pod_waits_for_a_node(world: World) -> None:
    """It says why, and is bound once a Node with the label is there."""
    async with kubelet_of(world.plane):
        await world.make("picky", nodeSelector={"disk": "fast"})
        found = await world.until(
            "picky", lambda pod: bool(pod and pod["status"].get("conditions"))
        )
        (said,) = found["status"]["conditions"]
        assert (said["type"], said["reason"]) == ("PodScheduled", "Unschedulable")
        assert said["message"].startswith("0/2 nodes are available")
        assert status_managers(found) == {"kube-scheduler"}
        patch = {"metadata": {"labels": {"disk": "fast"}}}
        await world.client.patch(NODES, None, "node-1", patch, bytes)
        (ready,) = await world.until_ready("picky")
        assert ready["spec"]["nodeName"] == "node-1"
        assert status_managers(ready) == {"kube-scheduler", "kubelet"}


async def test_an_unbound_pod_is_deleted_at_once(world: World) -> None:
    """However long its grace period."""
    async with kubelet_of(world.plane):
        await world.make("waits", script={"unschedulable": "true"})
        await world.client.delete(PODS, "default", "waits", grace_s=3600)
        await world.until("waits", lambda found: found is None)


async def test_a_deletion_held_by_a_finalizer_is_asked_for_once(world: World) -> None:
    """The kubelet does its part and leaves the rest to the finalizer's owner."""
    async with kubelet_of(world.plane):
        await world.make("held")
        await world.until_ready("held")
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        await world.client.patch(PODS, "default", "held", hold, bytes)
        await world.client.delete(PODS, "default", "held")
        await world.until(
            "held",
            lambda pod: bool(pod and pod["metadata"].get("deletionGracePeriodSeconds") == 0),
        )
        # Whatever else the kubelet had to do about the Pod is done before the next one is up.
        await world.make("next")
        await world.until_ready("next")
        assert world.count("delete", "pods") == 1
        release = {"metadata": {"finalizers": None}}
        await world.client.patch(PODS, "default", "held", release, bytes)
        await world.until("held", lambda found: found is None)


async def test_errors_of_the_server_are_waited_out(world: World) -> None:
    """Any request may fail; each is made again."""
    for verb, resource in (
        ("create", "nodes"),
        ("list", "pods"),
        ("create", "pods/binding"),
        ("patch", "pods/status"),
    ):
        world.plane.fail_next(verb, resource, 503, 1)
    async with kubelet_of(world.plane) as kubelet:
        await world.make("web")
        await world.until_ready("web")
        await world.client.delete(PODS, "default", "web", grace_s=30)
        world.plane.fail_next("delete", "pods", 503, 1)
        await world.until("web", lambda found: found is None)
        assert kubelet.errors == 3


async def test_a_write_in_between_is_not_lost(world: World) -> None:
    """A condition somebody adds while the Pod starts is there in the end."""
    gate = {"conditionType": "example.com/gate"}
    async with kubelet_of(world.plane, replace(SWIFT, network=Delay(0.3))):
        await world.make("gated", readinessGates=[gate])
        found = await world.until("gated", lambda pod: bool(pod and pod["status"].get("startTime")))
        opened = {"type": gate["conditionType"], "status": "True"}
        patch = {"status": {"conditions": [*found["status"]["conditions"], opened]}}
        await world.client.patch(PODS, "default", "gated", patch, bytes, subresource="status")
        (ready,) = await world.until_ready("gated")
    assert opened["type"] in {c["type"] for c in ready["status"]["conditions"]}


async def test_one_odd_pod_disturbs_no_other(world: World) -> None:
    """A Pod whose writes the server refuses is left, its neighbours start."""
    plane = world.plane
    plane.fail_next("patch", "pods/status", 422, 50, match=lambda target: target.name == "odd")
    async with kubelet_of(world.plane):
        await world.make("odd")
        await world.make("fine")
        await world.until_ready("fine")
        odd = await world.get("odd")
        assert not is_ready(odd)


async def test_scripts_are_played_over_the_wire(world: World) -> None:
    """A crash loop, a missing image, a completion, an eviction."""
    exits = [{"name": "main", "image": "busybox", "command": ["sh", "-c", "exit 0"]}]
    missing = [{"name": "main", "image": "nginx:does-not-exist"}]
    async with kubelet_of(world.plane):
        await world.make("done", containers=exits, restartPolicy="Never")
        await world.make("loops", containers=exits)
        await world.make("missing", containers=missing)
        await world.make("evicted", script={"evict-after": "0"})
        await world.make("churns", script={"churn": "5", "churn-interval": "1ms"})
        await world.until("done", phase_is("Succeeded"))
        failed = await world.until("evicted", phase_is("Failed"))
        assert failed["status"]["reason"] == "Evicted"
        await world.until("loops", lambda pod: restarts_of(pod) >= 2)
        await world.until("missing", lambda pod: waiting_of(pod) == "ImagePullBackOff")
        await world.until("missing", lambda pod: waiting_of(pod) == "ErrImagePull")
        await world.until("churns", lambda pod: "'message': '5'" in str(pod))


def restarts_of(found: dict[str, Any] | None) -> int:
    """Return the restarts of a Pod's first container."""
    statuses = (found or {}).get("status", {}).get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount", 0))


def waiting_of(found: dict[str, Any] | None) -> str:
    """Return why a Pod's first container waits."""
    statuses = (found or {}).get("status", {}).get("containerStatuses") or [{}]
    return str(statuses[0].get("state", {}).get("waiting", {}).get("reason", ""))

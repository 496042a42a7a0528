"""Laws of the kubelet against the embedded API server, by a clock that the test moves."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import NODES, PODS
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kubelet.kubelet import Kubelet
from lean_sandbox.local.kubelet.pods import PREFIX, Delay, KubeletSettings
from tests.local.kubelet.life import SWIFT, is_ready
from tests.support.clients import connected, connection_to
from tests.support.clock import FakeClock
from tests.support.patience import PATIENCE_S
from tests.support.world import status_managers

AGENT = "test-kubelet"
# How far the clock goes between two looks.
_LOOK_S = 0.25


class World:
    """An API server, a client of it, a clock, and what a test wants to know."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        self.plane = plane
        self.client = client
        self.clock = FakeClock()

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
        return await self.client.create(PODS, body, dict, namespace="default")

    async def taint(self, node: str, effect: str) -> None:
        """Give a Node a taint."""
        spec = {"taints": [{"key": "dedicated", "value": "me", "effect": effect}]}
        await self.client.patch(NODES, node, {"spec": spec}, bytes)

    async def get(self, name: str) -> dict[str, Any] | None:
        """Read a Pod; None when it is not there."""
        return await self.client.get(PODS, name, dict, namespace="default")

    async def until(
        self, name: str, holds: Callable[[dict[str, Any] | None], bool]
    ) -> dict[str, Any]:
        """Let time pass until something holds of a Pod, and return it."""
        with anyio.fail_after(PATIENCE_S):
            while not holds(found := await self.get(name)):
                await self.clock.advance(_LOOK_S)
            return found or {}

    async def until_told(self, name: str) -> str:
        """Let time pass until the scheduler says why it does not bind a Pod, and return that."""
        found = await self.until(name, lambda pod: bool(pod and pod["status"].get("conditions")))
        (said,) = found["status"]["conditions"]
        assert (said["type"], said["status"]) == ("PodScheduled", "False")
        assert said["reason"] == "Unschedulable"
        return str(said["message"])

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the Events about a Pod."""
        every = self.plane.store.list("events")
        return [one for one in every if one["involvedObject"]["name"] == name]

    async def _pass_time(self, until: anyio.Event) -> None:
        while not until.is_set():
            await self.clock.advance(_LOOK_S)

    @asynccontextmanager
    async def kubelet(self, settings: KubeletSettings = SWIFT) -> AsyncIterator[Kubelet]:
        """Run a kubelet."""
        chance = random.Random(1)  # noqa: S311
        async with (
            connected(connection_to(self.plane), user_agent=AGENT) as client,
            anyio.create_task_group() as group,
        ):
            kubelet = Kubelet(client, settings, clock=self.clock, chance=chance)
            is_up = anyio.Event()
            group.start_soon(self._pass_time, is_up)
            await group.start(kubelet.run)
            is_up.set()
            yield kubelet
            group.cancel_scope.cancel()

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


def phase_is(phase: str) -> Callable[[dict[str, Any] | None], bool]:
    """Return a test for a phase."""
    return lambda found: found is not None and found["status"].get("phase") == phase


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Run an API server."""
    async with ControlPlane(crds=[]) as plane, connected(connection_to(plane)) as client:
        yield World(plane, client)


@pytest.mark.parametrize(
    ("script", "spec", "kind", "reason", "said", "by"),
    [
        (
            {"image-pull-error": "true"},
            {},
            "Warning",
            "Failed",
            "Failed to pull image",
            ("kubelet", "node-0"),
        ),
        (
            {"image-pull-error": "true"},
            {},
            "Normal",
            "BackOff",
            "Back-off pulling image",
            ("kubelet", "node-0"),
        ),
        (
            {"crash-loop": "true"},
            {},
            "Warning",
            "BackOff",
            "Back-off restarting failed container main",
            ("kubelet", "node-0"),
        ),
        (
            {},
            {"nodeSelector": {"disk": "fast"}},
            "Warning",
            "FailedScheduling",
            "0/2 nodes are available",
            ("default-scheduler", "default-scheduler"),
        ),
        (
            {"ready-dely": "1s"},
            {},
            "Warning",
            "InvalidAnnotation",
            "kubelet.lean-sandbox/ready-dely: ready-dely is not the name of an annotation",
            ("kubelet", "node"),
        ),
    ],
)
async def test_what_goes_wrong_with_a_pod_is_told_by_an_event(
    world: World,
    script: dict[str, str],
    spec: dict[str, Any],
    kind: str,
    reason: str,
    said: str,
    by: tuple[str, str],
) -> None:
    """`kubectl describe pod` shows why it does not start; one that does well has no Events."""
    async with world.kubelet():
        await world.make("ill", script=script, **spec)

        def told() -> list[dict[str, Any]]:
            found = (one for one in world.events("ill") if one["type"] == kind)
            return [one for one in found if one["reason"] == reason and said in one["message"]]

        await world.until("ill", lambda _: bool(told()))
        assert (told()[0]["reportingComponent"], told()[0]["reportingInstance"]) == by
        await world.make("well")
        await world.until_ready("well")
        assert world.events("well") == []


async def test_a_pod_becomes_ready_and_goes_when_deleted(world: World) -> None:
    """One binding, four status writes, a fifth with its last phase, one deletion."""
    async with world.kubelet():
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
        await world.client.delete(PODS, "web", namespace="default")
        await world.until("web", lambda found: found is None)
    assert world.count("create", "pods/binding") == 1
    assert world.count("patch", "pods/status") == 5
    assert world.count("delete", "pods") == 1
    assert world.count("get", "pods") == 0


async def test_nodes_are_registered_once(world: World) -> None:
    """A second kubelet takes over the Nodes of the first."""
    for _ in range(2):
        async with world.kubelet():
            nodes = await world.client.list(NODES, dict)
            assert [n["metadata"]["name"] for n in nodes["items"]] == ["node-0", "node-1"]
            assert all(is_ready(n) for n in nodes["items"])
    assert world.count("create", "nodes") == 2


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


async def test_a_kubelet_that_starts_anew_continues(world: World) -> None:
    """Pods half started by one are finished by the next; nothing is written for finished ones."""
    slow = replace(SWIFT, ready=Delay(60.0))
    async with world.kubelet(slow):
        await world.make("half")
        await world.until("half", phase_is("Running"))
    async with world.kubelet():
        (found,) = await world.until_ready("half")
        address = found["status"]["podIP"]
        await world.make("later")
        (later,) = await world.until_ready("later")
        assert later["status"]["podIP"] != address
    writes = world.count("patch", "pods/status")
    async with world.kubelet():
        await world.make("last")
        await world.until_ready("last")
    assert world.count("patch", "pods/status") == writes + 4


async def test_cut_watches_and_lost_history_cost_nothing_but_time(world: World) -> None:
    """After a cut and a 410 the kubelet lists again and goes on, deletions included."""
    async with world.kubelet() as kubelet:
        await world.make("before")
        await world.until_ready("before")
        world.plane.fail_next("watch", "pods", 500, 1)
        world.plane.drop_watches()
        await world.client.delete(PODS, "before", namespace="default", grace_period=0)
        await world.make("during")
        world.plane.compact()
        await world.until_ready("during")
        assert kubelet.pods == 1
        assert world.count("list", "pods") == 2


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


async def test_nodes_that_were_changed_by_hand_stay_so(world: World) -> None:
    """A kubelet that starts anew tells that its Nodes are ready, and nothing else of them."""
    small = {"status": {"allocatable": {"cpu": "3"}}}
    for _ in range(2):
        async with world.kubelet():
            await world.client.patch(NODES, "node-0", small, bytes, subresource="status")
    node = await world.client.get(NODES, "node-0", dict)
    assert node is not None
    assert node["status"]["allocatable"]["cpu"] == "3"
    assert node["status"]["allocatable"]["pods"] == "5k"


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


async def test_pods_of_a_lost_node_can_be_deleted(world: World) -> None:
    """Nobody else ends what was on it."""
    async with world.kubelet():
        await world.make("web", nodeSelector={"kubernetes.io/hostname": "node-0"})
        await world.until_ready("web")
        await world.client.delete(NODES, "node-0")
        await world.client.delete(PODS, "web", namespace="default", grace_period=30)
        await world.until("web", lambda found: found is None)


async def test_a_deletion_held_by_a_finalizer_is_asked_for_once(world: World) -> None:
    """The kubelet does its part and leaves the rest to the finalizer's owner."""
    async with world.kubelet():
        await world.make("held")
        await world.until_ready("held")
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        await world.client.patch(PODS, "held", hold, bytes, namespace="default")
        await world.client.delete(PODS, "held", namespace="default")
        await world.until(
            "held",
            lambda pod: bool(pod and pod["metadata"].get("deletionGracePeriodSeconds") == 0),
        )
        # Whatever else the kubelet had to do about the Pod is done before the next one is up.
        await world.make("next")
        await world.until_ready("next")
        assert world.count("delete", "pods") == 1
        release = {"metadata": {"finalizers": None}}
        await world.client.patch(PODS, "held", release, bytes, namespace="default")
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
    async with world.kubelet():
        await world.make("web")
        await world.until_ready("web")
        await world.client.delete(PODS, "web", namespace="default", grace_period=30)
        world.plane.fail_next("delete", "pods", 503, 1)
        await world.until("web", lambda found: found is None)
    assert [entry.code for entry in world.plane.audit.entries].count(503) == 5


async def test_a_write_in_between_is_not_lost(world: World) -> None:
    """A condition somebody adds while the Pod starts is there in the end."""
    gate = {"conditionType": "example.com/gate"}
    async with world.kubelet(replace(SWIFT, network=Delay(0.3))):
        await world.make("gated", readinessGates=[gate])
        found = await world.until("gated", lambda pod: bool(pod and pod["status"].get("startTime")))
        opened = {"type": gate["conditionType"], "status": "True"}
        patch = {"status": {"conditions": [*found["status"]["conditions"], opened]}}
        await world.client.patch(
            PODS, "gated", patch, bytes, namespace="default", subresource="status"
        )
        (ready,) = await world.until_ready("gated")
    assert opened["type"] in {c["type"] for c in ready["status"]["conditions"]}


async def test_one_odd_pod_disturbs_no_other(world: World) -> None:
    """A Pod whose writes the server refuses is left, its neighbours start."""
    plane = world.plane
    plane.fail_next("patch", "pods/status", 422, 50, match=lambda target: target.name == "odd")
    async with world.kubelet():
        await world.make("odd")
        await world.make("fine")
        await world.until_ready("fine")
        odd = await world.get("odd")
        assert not is_ready(odd)


async def test_scripts_are_played_over_the_wire(world: World) -> None:
    """A crash loop, a missing image, a completion, an eviction."""
    async with world.kubelet():
        await world.make("done", script={"complete-after": "2s"}, restartPolicy="Never")
        await world.make("loops", script={"crash-loop": "true"})
        await world.make("missing", script={"image-pull-error": "true"})
        await world.make("evicted", script={"evict-after": "0"})
        await world.until("done", phase_is("Succeeded"))
        failed = await world.until("evicted", phase_is("Failed"))
        assert failed["status"]["reason"] == "Evicted"
        await world.until("loops", lambda pod: restarts_of(pod) >= 2)
        await world.until("missing", lambda pod: waiting_of(pod) == "ImagePullBackOff")
        await world.until("missing", lambda pod: waiting_of(pod) == "ErrImagePull")


def restarts_of(found: dict[str, Any] | None) -> int:
    """Return the restarts of a Pod's first container."""
    statuses = (found or {}).get("status", {}).get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount", 0))


def waiting_of(found: dict[str, Any] | None) -> str:
    """Return why a Pod's first container waits."""
    statuses = (found or {}).get("status", {}).get("containerStatuses") or [{}]
    return str(statuses[0].get("state", {}).get("waiting", {}).get("reason", ""))

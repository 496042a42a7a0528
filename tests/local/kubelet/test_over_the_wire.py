"""Laws of the kubelet against the embedded API server, by a clock that the test moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lean_sandbox.kube.resources import NODES, PODS
from lean_sandbox.local.kubelet.pods import Delay
from tests.local.kubelet.life import SWIFT
from tests.local.kubelet.wire import World, phase_is
from tests.support.stored import is_ready


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

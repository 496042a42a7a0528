"""Pods change all the time; only what a Sandbox reports is worth a request."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.watch.kind import Representation
from tests.support.suspension import suspend
from tests.support.world import NS, World, condition, open_world, pod_conditions, sandbox, watched

Json = dict[str, Any]


def waiting(reason: str, message: str) -> Json:
    """Return the status of a Pod whose only container cannot start yet."""
    return {
        "phase": "Pending",
        "conditions": pod_conditions(ready=False),
        "containerStatuses": [
            {
                "name": "main",
                "image": "busybox",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": message}},
            }
        ],
    }


def heartbeat(world: World, at: str) -> None:
    """Rewrite the probe time of a condition, as a kubelet does."""
    conditions = [{**one, "lastProbeTime": at} for one in pod_conditions(ready=True)]
    body = {"status": {"conditions": conditions}}
    world.plane.store.patch("pods", NS, "sb-1", body, subresource="status", manager="kubelet")


def restarts(world: World, count: int) -> None:
    """Raise the restart count of the running container."""
    status = world.pod()["status"]["containerStatuses"][0]
    body = {"status": {"containerStatuses": [{**status, "restartCount": count}]}}
    world.plane.store.patch("pods", NS, "sb-1", body, subresource="status", manager="kubelet")


def mark(world: World, kind: str, key: str, value: str) -> None:
    """Set a label or an annotation that is nobody's business here."""
    world.plane.store.patch("pods", NS, "sb-1", {"metadata": {kind: {key: value}}})


def churn(world: World, number: int) -> None:
    """Change of the Pod what changes nothing that its Sandbox reports."""
    heartbeat(world, f"2026-01-02T03:04:{number % 60:02}Z")
    restarts(world, number + 1)
    mark(world, "annotations", "example.com/heartbeat", str(number))
    mark(world, "labels", "example.com/wave", str(number))


_LOOPS = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
_FAILED = {"terminated": {"reason": "Error", "exitCode": 1}}
_KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
_DONE = {"terminated": {"reason": "Completed", "exitCode": 0}}
_RUNS: Json = {"running": {}}


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize(
    ("phase", "one", "other"),
    [
        ("Running", _RUNS, _LOOPS),
        ("Running", _RUNS, _FAILED),
        ("Running", _KILLED, _RUNS),
        ("Running", _RUNS, _DONE),
        ("Running", _DONE, _RUNS),
        ("Failed", _DONE, _FAILED),
        ("Failed", _KILLED, _DONE),
        ("Failed", {}, {}),
        ("Succeeded", _DONE, _DONE),
    ],
)
async def test_churn_of_a_pod_with_a_container_that_has_stopped_costs_nothing(
    phase: str, one: Json, other: Json, *, ready: bool
) -> None:
    """Budget: whatever word the server has for its status, the Pod was fetched for that once.

    If no container is ready and one has ended, each write may be the end of the Pod: one GET.
    """
    containers = [{"name": name, "image": "busybox"} for name in ("main", "side")]

    def status(restarts: int) -> Json:
        known = {"image": "busybox", "imageID": "", "restartCount": restarts}
        states = zip(("main", "side"), (one, other), strict=True)
        listed = [
            {"name": name, "state": state, "ready": ready and state is _RUNS, **known}
            for name, state in states
            if state
        ]
        return {"phase": phase, "containerStatuses": listed, "reason": None if one else "Evicted"}

    async with open_world() as world:
        await world.create(sandbox(pod_spec={"containers": containers}))
        await world.run_pod(ready=False)
        await world.pod_status(**status(0))
        await world.advance(60.0)
        world.forget_requests()
        for number in range(10):
            await world.pod_status(**status(number + 1))
            await world.advance(5.0)
        is_open = phase == "Running" and not ready and _LOOPS not in (one, other)
        assert world.asked(events=True) == ({"get pods": 10} if is_open else {})


@pytest.mark.parametrize("form", ["table", "metadata", "full"])
async def test_churn_of_a_ready_pod_costs_nothing(form: str) -> None:
    """Budget: heartbeats, restart counts, foreign labels and annotations: no request, no GET.

    Where a server gives metadata without columns they cost reads at worst, and never a write.
    """
    settings = Settings(sandbox_status_window=1.0, watch_representation=Representation(form))
    async with open_world(settings) as world:
        await world.ready_sandbox()
        world.forget_requests()
        for number in range(30):
            churn(world, number)
            await world.settle()
        await world.advance(60.0)
        assert not world.writes(events=True)
        assert form == "metadata" or not world.asked(events=True)
        assert condition(world.get(), "Ready")["status"] == "True"


@pytest.mark.parametrize("form", ["table", "full"])
async def test_an_image_that_cannot_be_pulled_is_told_once(form: str) -> None:
    """Budget: it costs one write, and flapping between two words for it costs nothing more.

    Nor does a restart of the controller, or another attempt in between.
    """
    async with open_world(watched(form)) as world:
        await world.create(sandbox())
        await world.bind()
        await world.pod_status(**waiting("ContainerCreating", ""))
        await world.advance(5.0)
        assert condition(world.get(), "Ready")["message"] == "Pod exists with phase: Pending"
        world.forget_requests()
        for number in range(50):
            reason = ("ErrImagePull", "ImagePullBackOff", "ContainerCreating")[number % 3]
            await world.pod_status(**waiting(reason, f"attempt {number}"))
            await world.advance(10.0)
        assert world.asked(events=True) == {"patch sandboxes/status": 1}
        told = condition(world.get(), "Ready")
        assert told["message"] == "Pod exists with phase: Pending (ErrImagePull)"
        assert told["reason"] == "DependenciesNotReady"
        await world.pod_status(**waiting("ImagePullBackOff", "again"))
        async with open_world(watched(form), plane=world.plane, clock=world.clock) as another:
            await another.advance(60.0)
            assert world.writes(events=True) == {"patch sandboxes/status": 1}


@pytest.mark.parametrize("form", ["table", "metadata", "full"])
async def test_a_trouble_is_told_within_the_first_window(form: str) -> None:
    """What somebody has to act upon does not wait for the longer window of later steps."""
    async with open_world(watched(form)) as world:
        await world.create(sandbox())
        await world.bind()
        await world.pod_status(**waiting("ContainerCreating", ""))
        await world.advance(5.0)
        await world.pod_status(**waiting("CreateContainerConfigError", "no such Secret"))
        await world.advance(2.0)
        message = condition(world.get(), "Ready")["message"]
        assert message == "Pod exists with phase: Pending (CreateContainerConfigError)"


@pytest.mark.parametrize("form", ["table", "metadata", "full"])
async def test_a_container_that_keeps_crashing_is_told_once(form: str) -> None:
    """Budget: crash, back-off and another start, in turns: one write says CrashLoopBackOff."""
    async with open_world(watched(form)) as world:
        await world.create(sandbox())
        await world.bind()
        await world.run_pod(ready=False)
        await world.advance(120.0)
        world.forget_requests()
        crashing = waiting("CrashLoopBackOff", "back-off")["containerStatuses"]
        for _ in range(20):
            await world.pod_status(phase="Running", containerStatuses=crashing)
            await world.advance(20.0)
            await world.run_pod(ready=False)
            await world.advance(20.0)
        assert world.writes() == {"patch sandboxes/status": 1}
        assert form == "metadata" or not world.asked()["get pods"]
        message = condition(world.get(), "Ready")["message"]
        assert message == "Pod is Running but not Ready (CrashLoopBackOff)"
        await world.run_pod()
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready"


def ended(reason: str, code: int = 1) -> list[Json]:
    """Return the status of a container that has ended and is to be started again."""
    terminated = {"reason": reason, "exitCode": code}
    return [{"name": "main", "ready": False, "state": {"terminated": terminated}}]


@pytest.mark.parametrize("form", ["table", "full"])
@pytest.mark.parametrize("reason", ["Error", "OOMKilled", "StartError"])
async def test_a_container_that_has_ended_is_told_with_the_reason(reason: str, form: str) -> None:
    """Kubelets show it as ended for the whole back-off, and as waiting for a moment at its end.

    Budget: two writes, for once it was said to crash in a loop that stays so.
    """
    async with open_world(watched(form)) as world:
        await world.create(sandbox())
        await world.bind()
        await world.run_pod(ready=False)
        await world.advance(120.0)
        world.forget_requests()
        await world.pod_status(phase="Running", containerStatuses=ended(reason))
        await world.advance(2.0)
        message = condition(world.get(), "Ready")["message"]
        assert message == f"Pod is Running but not Ready ({reason})"
        crashing = waiting("CrashLoopBackOff", "back-off")["containerStatuses"]
        for _ in range(20):
            await world.pod_status(phase="Running", containerStatuses=crashing)
            await world.advance(20.0)
            await world.pod_status(phase="Running", containerStatuses=ended(reason))
            await world.advance(20.0)
        assert world.writes() == {"patch sandboxes/status": 2}
        message = condition(world.get(), "Ready")["message"]
        assert message == "Pod is Running but not Ready (CrashLoopBackOff)"


@pytest.mark.parametrize("form", ["table", "full"])
async def test_a_slow_launch_costs_three_status_writes_whatever_the_pod_goes_through(
    form: str,
) -> None:
    """Budget: one unready status after the window, one that names a trouble, one when it is Ready.

    Scheduling alone is told with the next of these, unless it becomes known before the first.
    """
    async with open_world(watched(form)) as world:
        world.forget_requests()
        await world.create(sandbox())
        await world.bind()
        for number in range(40):
            reason = ("PodInitializing", "ErrImagePull", "ImagePullBackOff")[number % 3]
            await world.pod_status(**waiting(reason, f"attempt {number}"))
            await world.advance(1.0)
        await world.run_pod()
        await world.advance(60.0)
        assert condition(world.get(), "Ready")["status"] == "True"
        assert world.writes() == {"create pods": 1, "patch sandboxes/status": 3}
        assert world.asked()["get sandboxes"] == 1
        assert world.asked()["get pods"] <= 2
        assert not world.conflicts()


async def test_ten_thousand_deletes_of_what_is_not_there_cost_one_delete_at_most() -> None:
    """Budget: what is known to be gone is not deleted again, however often a reconcile comes by."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        await suspend(world)
        await world.delete("pods", "sb-1")
        await world.patch("sandboxes", "sb-1", {"spec": {"service": False}})
        assert condition(world.get(), "Suspended")["status"] == "True"
        world.forget_requests()
        key = next(iter(world.whole.caches.sandboxes.keys()))
        for _ in range(100):
            # A hundred reconciles, each merged from a hundred causes.
            for _ in range(100):
                world.whole.sandboxes.queue.add(key, reason="again")
            await world.until(lambda: not len(world.whole.sandboxes.queue))
        await world.settle()
        assert len(world.reports) >= 100
        assert not world.asked(events=True)


async def test_deletes_that_find_nothing_are_not_repeated() -> None:
    """Budget: a Pod that vanished while its DELETE was on the way costs that one DELETE."""
    async with open_world() as world:
        await world.ready_sandbox()
        gone = [lambda: world.plane.store.delete("pods", NS, "sb-1", grace_s=0)]
        world.meanwhile("delete", "pods", gone[0])
        world.forget_requests()
        await suspend(world)
        for _ in range(20):
            await world.poke()
        await world.advance(600.0)
        assert world.asked()["delete pods"] == 1
        assert condition(world.get(), "Suspended")["status"] == "True"

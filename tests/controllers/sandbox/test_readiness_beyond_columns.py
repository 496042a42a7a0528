"""Readiness of a Pod that the columns of a watch do not show, or show late."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.support.clock import FakeClock
from tests.support.conditions import says
from tests.support.world import NS, World, condition, open_world, pod_conditions, sandbox

Json = dict[str, Any]


@pytest.mark.case(29, 30, 32, 36, 40)
@pytest.mark.parametrize(
    "server",
    [
        pytest.param(LocalSettings(tables=False), id="no tables"),
        pytest.param(LocalSettings(tables=False, partial_metadata=False), id="full objects only"),
    ],
)
async def test_a_server_that_knows_no_lean_forms_is_served_as_well(server: LocalSettings) -> None:
    """Case 29, 30, 32, 36, 40: what a watch can show changes its price, not what is reported."""
    async with open_world(local=server) as world:
        await world.create(sandbox(pod_spec={"schedulingGates": [{"name": "quota.io/wait"}]}))
        await world.advance(1.0)
        assert condition(world.get(), "PodScheduled")["reason"] == "SchedulingGated"
        await world.patch("pods", "sb-1", {"spec": {"schedulingGates": None}})
        await world.run_pod(ready=False)
        await world.advance(1.0)
        assert says(world)[2] == "Pod is Running but not Ready"
        await world.run_pod(ips=("10.244.0.5", "fd00::5"))
        assert says(world) == ("True", "DependenciesReady", "Pod is Ready")
        assert world.get()["status"]["podIPs"] == ["10.244.0.5", "fd00::5"]
        assert world.get()["status"]["nodeName"] == "node-1"
        world.forget_requests()
        await world.poke()
        await world.advance(60.0)
        assert not world.writes()
        await world.pod_status(phase="Failed", conditions=pod_conditions(ready=False))
        assert says(world) == ("False", "PodFailed", "Pod failed")


@pytest.mark.case(30)
@pytest.mark.parametrize("has_record", [True, False])
async def test_a_lost_node_makes_the_sandbox_unready_although_no_column_shows_it(
    has_record: bool,  # noqa: FBT001
) -> None:
    """Case 30: Ready turned by another than the kubelet is seen.

    The containers of a Pod on a lost node stay ready as far as anybody knows, so its printed row
    does not change. Who wrote the status does, as far as there is a record of that.
    """
    async with open_world() as world:
        await world.ready_sandbox()
        if not has_record:
            await world.patch("pods", "sb-1", {"metadata": {"managedFields": [{}]}})
            assert "managedFields" not in world.pod()["metadata"]
        world.forget_requests()
        conditions = world.pod()["status"]["conditions"]
        for one in conditions:
            if one["type"] == "Ready":
                one["status"] = "False"
        world.plane.store.patch(
            "pods",
            NS,
            "sb-1",
            {"status": {"conditions": conditions}},
            subresource="status",
            manager="kube-controller-manager",
        )
        await world.settle()
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["message"]) == ("False", "Pod is Running but not Ready")
        assert world.asked() == {"get pods": 1, "patch sandboxes/status": 1}
        await world.advance(60.0)
        await world.pod_status(conditions=pod_conditions(ready=True))
        assert condition(world.get(), "Ready")["status"] == "True"


async def test_a_pod_past_its_deadline_is_not_ready_although_no_column_shows_it() -> None:
    """The kubelet says so at once, and has the containers, Ready as they are, end in their time."""
    clock = FakeClock()
    async with ControlPlane(clock=clock) as plane, open_world(plane=plane, clock=clock) as world:
        await world.ready_sandbox()
        await world.advance(6.0)
        world.forget_requests()
        await world.pod_status(conditions=pod_conditions(ready=False))
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["message"]) == ("False", "Pod is Running but not Ready")
        assert world.asked() == {"get pods": 1, "patch sandboxes/status": 1}


ENDED: Json = {"terminated": {"reason": "Error", "exitCode": 1}}
RUNS: Json = {"running": {}}
WAITS: Json = {"waiting": {"reason": "PodInitializing"}}


@pytest.mark.parametrize(
    ("phase", "init", "main", "side", "is_initial"),
    [
        pytest.param("Running", {}, ENDED, RUNS, False, id="the second of two containers"),
        pytest.param("Pending", RUNS, WAITS, WAITS, True, id="an init container"),
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_pod_that_ends_has_failed_at_once_although_no_column_shows_it(
    phase: str, init: Json, main: Json, side: Json, *, is_initial: bool, restarts: bool
) -> None:
    """Of a Pod with a container that has ended, the row is the same before its own end and after.

    That of an init container may be started again. Then the Pod was fetched in vain, once.
    """
    names = ("init", "main", "side")

    async def write(world: World, phase: str, *states: Json) -> None:
        listed = [
            {"name": name, "state": state, "ready": False, "restartCount": 0}
            for name, state in zip(names, states, strict=True)
        ]
        conditions = [
            *pod_conditions(ready=False),
            {"type": "Initialized", "status": str(not is_initial)},
        ]
        await world.pod_status(
            phase=phase,
            conditions=conditions,
            initContainerStatuses=listed[:1] if is_initial else [],
            containerStatuses=listed[1:],
        )

    async with open_world() as world:
        init_, *containers = ({"name": name, "image": "busybox"} for name in names)
        spec: Json = {"containers": containers, "restartPolicy": "Never"}
        await world.create(sandbox(pod_spec={**spec, "initContainers": [init_]}))
        await world.bind()
        await write(world, phase, init, main, side)
        await world.advance(20.0)
        world.forget_requests()
        end = phase if restarts else "Failed"
        await write(
            world, end, ENDED, WAITS if is_initial else ENDED, WAITS if is_initial else ENDED
        )
        assert world.asked()["get pods"] == 1
        says_so = says(world)[1] == "PodFailed"
        assert says_so is not restarts


GATE = "example.com/serving"


async def gated(world: World, **statuses: Any) -> None:
    """Have a Sandbox whose Pod has a readiness gate, and is Running."""
    await world.create(sandbox(pod_spec={"readinessGates": [{"conditionType": GATE}]}))
    await world.run_pod()
    await turn_gate(world, **statuses)


async def turn_gate(world: World, *, gate: str, ready: bool) -> None:
    """Write the gate as its own controller does, beside what the kubelet last wrote of Ready."""
    listed = [*pod_conditions(ready=ready), {"type": GATE, "status": gate}]
    world.plane.store.patch(
        "pods",
        NS,
        "sb-1",
        {"status": {"conditions": listed}},
        subresource="status",
        manager="gatekeeper",
    )
    await world.settle()


async def test_a_readiness_gate_that_closes_is_told_before_the_kubelet_has_looked() -> None:
    """The gate's controller writes first; what the kubelet writes then changes no column."""
    async with open_world() as world:
        await gated(world, gate="True", ready=True)
        assert condition(world.get(), "Ready")["status"] == "True"
        await world.advance(5.0)
        await turn_gate(world, gate="False", ready=True)
        listed = [*pod_conditions(ready=False), {"type": GATE, "status": "False"}]
        await world.pod_status(conditions=listed)
        await world.advance(60.0)
        assert condition(world.get(), "Ready")["status"] == "False"


async def test_a_readiness_gate_that_opens_is_told_once_the_kubelet_has_looked() -> None:
    """Ready is the kubelet's to say: an open gate alone makes no Pod ready."""
    async with open_world() as world:
        await gated(world, gate="False", ready=False)
        await world.advance(5.0)
        await turn_gate(world, gate="True", ready=False)
        assert condition(world.get(), "Ready")["status"] == "False"
        listed = [*pod_conditions(ready=True), {"type": GATE, "status": "True"}]
        await world.pod_status(conditions=listed)
        await world.advance(5.0)
        assert condition(world.get(), "Ready")["status"] == "True"

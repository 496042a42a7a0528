"""What each flow in a Sandbox's life costs on the wire, to the request.

The numbers are exact: one more is a regression, one less a reason to write it down here. Events
and watches are not counted. No flow may meet a conflict or any other refusal, and once it is over
nothing more is asked, however long one waits.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.controllers.sandbox.services import service_body
from tests.support.clock import FakeClock
from tests.support.suspension import SUSPENDED, suspend
from tests.support.volumes import volume, volume_claim
from tests.support.world import (
    CONTROLLER,
    NS,
    World,
    condition,
    controlled_by,
    open_world,
    pod_body,
    sandbox,
    tracking,
)

Json = dict[str, Any]

# Our client and lightkube's make the same requests.
pytestmark = pytest.mark.usefixtures("each_client")

GET_SPEC = {"get sandboxes": 1}
STATUS = {"patch sandboxes/status": 1}
LAUNCH = {"get sandboxes": 1, "create pods": 1, "get pods": 1, "patch sandboxes/status": 1}
RUNNING = {"operatingMode": "Running"}
POD_NAME = "agents.x-k8s.io/pod-name"
# Steps of a launch after the first that was told.
SLOW_STEPS = Settings(sandbox_status_window=1.0, sandbox_status_step_window=60.0)


def rich(name: str = "sb-1", *claims: str) -> Json:
    """Return a Sandbox with a Service and claims."""
    templates = [volume(claim) for claim in claims or ("data",)]
    return sandbox(name, spec={"service": True, "volumeClaimTemplates": templates})


async def change(world: World, **spec: Any) -> None:
    """Change the spec as a user does."""
    await world.patch("sandboxes", "sb-1", {"spec": spec})


def refused(world: World) -> Counter[str]:
    """Return the requests of the controller that failed; a GET that finds nothing did not."""
    failed = world.plane.audit.codes(CONTROLLER, at_least=400)
    return Counter({what: n for what, n in failed.items() if not what.startswith("404 get")})


async def spent(world: World, *, reconciles: int) -> Json:
    """Return what was asked since the count began, and begin anew.

    Fails when the flow took more reconciles than told, met a refusal, or is not over.
    """
    asked = dict(world.asked())
    assert len(world.reports) <= reconciles, [report.item.reasons for report in world.reports]
    assert not refused(world)
    world.forget_requests()
    await world.advance(30.0)
    assert not world.asked(events=True)
    world.forget_requests()
    return asked


# -- creation ------------------------------------------------------------------------------------


@pytest.mark.case(15, 20)
async def test_a_launch_with_service_and_claims_costs_one_post_each_and_one_status() -> None:
    """Case 15: POST claims, Pod and Service, one GET of Sandbox and Pod, one status at Ready.

    The first Sandbox with claims begins their watch with a list; the next find it running.
    """
    children = {"create persistentvolumeclaims": 2, "create services": 1}
    async with open_world() as world:
        world.forget_requests()
        await world.ready_sandbox(rich("sb-1", "data", "cache"))
        first = {"list persistentvolumeclaims": 1}
        assert await spent(world, reconciles=2) == {**LAUNCH, **children, **first}
        await world.ready_sandbox(rich("sb-2", "data", "cache"))
        assert await spent(world, reconciles=2) == {**LAUNCH, **children}


@pytest.mark.case(14, 29)
async def test_a_launch_longer_than_the_window_costs_one_status_more() -> None:
    """Case 14: what is known when the window ends is told without a GET; Ready costs one.

    Steps between the two are told only when they take very long.
    """
    async with open_world(SLOW_STEPS) as world:
        world.forget_requests()
        await world.create(sandbox())
        await world.advance(1.0)
        assert await spent(world, reconciles=2) == {**GET_SPEC, "create pods": 1, **STATUS}
        await world.run_pod()
        assert world.is_ready()
        assert await spent(world, reconciles=1) == {"get pods": 1, **STATUS}


async def test_an_address_waits_for_the_first_window_only() -> None:
    """Case 14: a Pod that runs and is not ready costs a status of its own, others wait longer."""
    async with open_world(SLOW_STEPS) as world:
        await world.create(sandbox())
        await world.advance(5.0)
        world.forget_requests()
        await world.run_pod(ready=False)
        await world.advance(1.0)
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]
        message = condition(world.get(), "Ready")["message"]
        assert message == "Pod is Running but not Ready"
        assert await spent(world, reconciles=3) == {"get pods": 1, **STATUS}
        await world.run_pod()
        assert world.is_ready()


# -- suspension ----------------------------------------------------------------------------------


@pytest.mark.case(108, 109)
async def test_suspension_costs_one_delete_and_two_statuses() -> None:
    """Case 108: GET of the new spec, DELETE, status; when the Pod is gone (109) a status only."""
    async with open_world() as world:
        await world.ready_sandbox(rich())
        world.forget_requests()
        await change(world, **SUSPENDED)
        assert await spent(world, reconciles=2) == {**GET_SPEC, "delete pods": 1, **STATUS}
        await world.run_pod(ready=False)
        assert await spent(world, reconciles=1) == {}
        await world.delete("pods", "sb-1")
        assert condition(world.get(), "Suspended")["status"] == "True"
        assert await spent(world, reconciles=1) == STATUS


@pytest.mark.case(109)
async def test_a_pod_name_annotation_costs_suspension_one_patch() -> None:
    """Case 109: found on a Sandbox of older days, it is taken away when the Pod is gone."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.forget_requests()
        annotations = {POD_NAME: "sb-1"}
        await world.patch("sandboxes", "sb-1", {"metadata": {"annotations": annotations}})
        assert await spent(world, reconciles=1) == {}
        await change(world, **SUSPENDED)
        await world.delete("pods", "sb-1")
        assert await spent(world, reconciles=3) == {
            **GET_SPEC,
            "delete pods": 1,
            "patch sandboxes": 1,
            "patch sandboxes/status": 2,
        }


@pytest.mark.case(108)
async def test_suspension_during_a_launch_fetches_the_pod_once() -> None:
    """Case 108: for the status that the suspension writes, which tells of steps not told yet."""
    async with open_world() as world:
        await world.create(sandbox())
        await world.run_pod(ready=False)
        world.forget_requests()
        await change(world, **SUSPENDED)
        assert condition(world.get(), "PodScheduled")["status"] == "True"
        asked = {**GET_SPEC, "delete pods": 1, "get pods": 1, **STATUS}
        assert await spent(world, reconciles=2) == asked
        await world.delete("pods", "sb-1")
        assert await spent(world, reconciles=1) == STATUS


@pytest.mark.case(111)
async def test_resumption_costs_what_a_launch_costs_and_one_status() -> None:
    """Case 111: the first status says that it is resumed, the second that it is ready."""
    async with open_world(SLOW_STEPS) as world:
        await world.ready_sandbox(rich())
        await change(world, **SUSPENDED)
        await world.delete("pods", "sb-1")
        world.forget_requests()
        await change(world, **RUNNING)
        assert await spent(world, reconciles=1) == {**GET_SPEC, "create pods": 1, **STATUS}
        await world.run_pod()
        assert world.is_ready()
        assert await spent(world, reconciles=1) == {"get pods": 1, **STATUS}


@pytest.mark.case(112)
async def test_a_sandbox_born_suspended_costs_one_get_of_the_pod_and_one_status() -> None:
    """Case 112: a Pod nobody labelled may hold the name: one GET tells, and none after an edit."""
    async with open_world(SLOW_STEPS) as world:
        world.forget_requests()
        await world.create(sandbox(spec=SUSPENDED))
        assert await spent(world, reconciles=1) == {**GET_SPEC, "get pods": 1, **STATUS}
        await change(world, shutdownPolicy="Delete")
        assert await spent(world, reconciles=1) == {**GET_SPEC, **STATUS}
        await change(world, **RUNNING)
        await world.run_pod()
        assert world.is_ready()
        assert await spent(world, reconciles=2) == {**LAUNCH, "patch sandboxes/status": 2}


# -- changes of the spec -------------------------------------------------------------------------


@pytest.mark.case(67, 70)
async def test_a_label_added_to_the_template_costs_one_patch_of_the_pod_and_one_status() -> None:
    """Case 70: the Pod is patched from what the watch showed of it; it is not fetched."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.forget_requests()
        await change(world, podTemplate={"metadata": {"labels": {"a": "1"}}})
        assert await spent(world, reconciles=1) == {**GET_SPEC, "patch pods": 1, **STATUS}
        await change(world, podTemplate={"metadata": {"labels": {"a": None}}})
        assert await spent(world, reconciles=1) == {**GET_SPEC, "patch pods": 1, **STATUS}


@pytest.mark.case(23)
async def test_any_other_change_of_the_spec_costs_one_status() -> None:
    """Case 23: the generation in the conditions follows; nothing else is asked."""
    async with open_world() as world:
        await world.ready_sandbox(rich())
        world.forget_requests()
        await change(world, shutdownPolicy="Delete")
        assert await spent(world, reconciles=1) == {**GET_SPEC, **STATUS}


@pytest.mark.case(23)
@pytest.mark.parametrize("waited_s", [5.0, 400.0])
async def test_a_change_of_the_spec_of_an_unready_sandbox_is_told_at_once(waited_s: float) -> None:
    """Case 23: by one status, however long the steps of its launch may wait."""
    settings = Settings(sandbox_status_window=1.0, sandbox_status_step_window=300.0)
    async with open_world(settings) as world:
        await world.create(sandbox())
        await world.advance(waited_s)
        await world.bind()
        world.forget_requests()
        await change(world, shutdownPolicy="Delete")
        generation = world.get()["metadata"]["generation"]
        for one in world.get()["status"]["conditions"]:
            assert one["observedGeneration"] == generation
        assert world.asked() == {**GET_SPEC, **STATUS}


@pytest.mark.case(23)
async def test_a_change_of_the_spec_before_the_first_status_waits_with_it() -> None:
    """Case 23: a launch whose Sandbox was edited costs one status all the same."""
    async with open_world() as world:
        world.forget_requests()
        await world.create(sandbox())
        await change(world, shutdownPolicy="Delete")
        assert "status" not in world.get()
        await world.run_pod()
        assert world.is_ready()
        assert world.writes() == {"create pods": 1, **STATUS}


@pytest.mark.case(15, 83, 87)
async def test_a_service_switched_on_and_off_costs_one_write_and_one_status() -> None:
    """Case 87: POST or DELETE, then the status; that none or one exists is known from the watch."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.forget_requests()
        await change(world, service=True)
        assert await spent(world, reconciles=1) == {**GET_SPEC, "create services": 1, **STATUS}
        await change(world, service=None)
        assert await spent(world, reconciles=1) == {**GET_SPEC, **STATUS}
        await change(world, service=False)
        assert await spent(world, reconciles=2) == {**GET_SPEC, "delete services": 1, **STATUS}
        await change(world, service=None)
        assert await spent(world, reconciles=1) == {**GET_SPEC, **STATUS}


@pytest.mark.case(99)
async def test_a_port_added_to_the_template_costs_one_patch_of_the_service() -> None:
    """Case 99: the Service's ports are known from its creation; it is not fetched."""
    async with open_world() as world:
        await world.ready_sandbox(rich())
        world.forget_requests()
        container = {"name": "main", "image": "busybox", "ports": [{"containerPort": 8080}]}
        await change(world, podTemplate={"spec": {"containers": [container]}})
        assert await spent(world, reconciles=1) == {**GET_SPEC, "patch services": 1, **STATUS}


# -- what others do ------------------------------------------------------------------------------


@pytest.mark.case(116)
@pytest.mark.parametrize("is_forced", [False, True])
async def test_a_pod_deleted_by_others_costs_a_launch_and_a_status_a_loss(
    *, is_forced: bool
) -> None:
    """Case 116: readiness is lost with the deletion, the addresses with the Pod; then the launch.

    What its kubelet reports of the terminating Pod costs nothing, its last phase included.
    """
    async with open_world() as world:
        await world.ready_sandbox()
        world.forget_requests()
        if not is_forced:
            await world.delete("pods", "sb-1", grace_s=None)
            assert await spent(world, reconciles=1) == STATUS
            await world.run_pod(ready=False)
            await world.pod_status(phase="Failed")
            assert await spent(world, reconciles=2) == {}
        await world.delete("pods", "sb-1")
        assert await spent(world, reconciles=1) == {**GET_SPEC, "create pods": 1, **STATUS}
        await world.run_pod()
        assert world.is_ready()
        assert await spent(world, reconciles=1) == {"get pods": 1, **STATUS}


@pytest.mark.case(71, 85, 100)
async def test_drift_costs_the_write_that_undoes_it() -> None:
    """Case 71: a Pod's metadata is known from its watch, a Service's spec (85) takes one GET."""
    async with open_world() as world:
        await world.ready_sandbox(rich())
        world.forget_requests()
        await world.patch("pods", "sb-1", {"metadata": {"labels": tracking("other")}})
        assert await spent(world, reconciles=1) == {"patch pods": 1}
        await world.patch("services", "sb-1", {"spec": {"selector": {"app": "x"}}})
        assert await spent(world, reconciles=1) == {"get services": 1, "patch services": 1}
        await world.delete("services", "sb-1")
        # Only a GET tells that it has not gone with its Sandbox.
        assert await spent(world, reconciles=1) == {"get sandboxes": 1, "create services": 1}


@pytest.mark.case(57)
async def test_an_adopted_world_costs_one_write_for_each_child() -> None:
    """Case 57: children that exist cost their patch each; one that is owned already costs none."""

    def older(plane: ControlPlane) -> None:
        owner = plane.store.create(rich())
        plane.store.create(pod_body(labels=tracking(), owners=(controlled_by(owner),)))
        plane.store.create(service_body(labels=tracking()))
        plane.store.create(volume_claim(labels=tracking()))

    async with open_world(prepare=older) as world:
        await world.run_pod()
        await world.advance(1.0)
        assert world.is_ready()
        writes = {what: n for what, n in world.writes().items() if "status" not in what}
        assert writes == {"patch persistentvolumeclaims": 1, "patch services": 1}


@pytest.mark.case(130, 131)
@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_a_sandbox_deleted_by_its_user_costs_nothing(policy: str) -> None:
    """Case 130, 131: its children go by their owner references; the controller only forgets it."""
    async with open_world() as world:
        await world.ready_sandbox(rich())
        world.forget_requests()
        world.plane.store.delete("sandboxes.agents.x-k8s.io", NS, "sb-1", policy=policy)
        await world.settle()
        await world.delete("pods", "sb-1")
        assert world.find("sandboxes") is None
        assert world.find("services") is None
        assert world.find("persistentvolumeclaims", "data-sb-1") is None
        assert await spent(world, reconciles=5) == {}


@pytest.mark.case(101)
async def test_a_restart_over_sandboxes_of_all_sorts_costs_lists_only() -> None:
    """Case 101: with everything in order a new controller lists each kind once, and rests."""
    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        async with open_world(plane=plane) as world:
            for name in ("sb-1", "sb-2", "sb-3"):
                await world.ready_sandbox(rich(name))
            await change(world, **SUSPENDED)
            await world.delete("pods", "sb-1")
            await suspend(world, "sb-2")
            plane.audit.reset()
        async with open_world(plane=plane) as world:
            assert await spent(world, reconciles=3) == {
                "list sandboxes": 1,
                "list pods": 1,
                "list services": 1,
                "list persistentvolumeclaims": 1,
            }

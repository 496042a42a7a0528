"""A Sandbox that is suspended loses its Pod and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.support.clock import FakeClock
from tests.support.conditions import says, types
from tests.support.suspension import IS_SUSPENDED, SUSPENDED, SUSPENDING, state, suspend
from tests.support.volumes import volume
from tests.support.world import (
    NS,
    World,
    condition,
    controlled_by,
    open_world,
    pod_body,
    pod_conditions,
    sandbox,
    tracking,
)

Json = dict[str, Any]

POD_NAME = "agents.x-k8s.io/pod-name"
EPOCH = "2026-01-02T03:04:05Z"
SELECTOR = "agents.x-k8s.io/sandbox-name-hash=ae84b5b2"


async def annotate(world: World, **annotations: str | None) -> None:
    """Set or remove annotations of the Sandbox; ``pod_name`` stands for the long key."""
    named = {POD_NAME if key == "pod_name" else key: value for key, value in annotations.items()}
    await world.patch("sandboxes", "sb-1", {"metadata": {"annotations": named}})


def annotations_of(world: World) -> Json:
    """Return the Sandbox's annotations."""
    found: Json = world.get()["metadata"].get("annotations", {})
    return found


# -- the way down --------------------------------------------------------------------------------


@pytest.mark.case(108)
async def test_a_suspended_sandbox_deletes_its_pod_once_and_says_that_it_terminates() -> None:
    """Case 108: one DELETE, then patience: what happens to the terminating Pod asks nothing more.

    Suspended was False and still is, so its transition time stays; what is known of the Pod stays
    in the status until the Pod is gone.
    """
    async with open_world() as world:
        await world.ready_sandbox()
        await annotate(world, pod_name="sb-1", other="kept")
        await world.advance(60.0)
        world.forget_requests()
        await suspend(world)
        assert state(world) == SUSPENDING
        assert condition(world.get(), "Suspended")["lastTransitionTime"] == EPOCH
        assert condition(world.get(), "Suspended")["observedGeneration"] == 2
        assert condition(world.get(), "Ready")["lastTransitionTime"] == "2026-01-02T03:05:05Z"
        assert says(world, "PodScheduled")[:2] == ("True", "PodScheduled")
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]
        assert annotations_of(world) == {POD_NAME: "sb-1", "other": "kept"}
        assert world.asked() == {
            "get sandboxes": 1,
            "delete pods": 1,
            "patch sandboxes/status": 1,
        }
        world.forget_requests()
        await world.run_pod(ready=False)
        await world.pod_status(phase="Failed")
        await world.poke()
        await world.advance(20.0)
        assert not world.asked(events=True)
        assert state(world) == SUSPENDING
        # The last phase of a deleted Pod is no end.
        assert types(world) == ["PodScheduled", "Ready", "Suspended"]


@pytest.mark.case(109)
async def test_a_sandbox_is_suspended_once_its_pod_is_gone() -> None:
    """Case 109: Suspended turns True, the Pod's traces leave the status, the selector stays.

    The pod-name annotation goes with the Pod, other annotations stay.
    """
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        await annotate(world, pod_name="sb-1", other="kept")
        await suspend(world)
        await world.advance(60.0)
        world.forget_requests()
        await world.delete("pods", "sb-1")
        assert state(world) == IS_SUSPENDED
        assert condition(world.get(), "Suspended")["lastTransitionTime"] == "2026-01-02T03:05:05Z"
        assert types(world) == ["Ready", "Suspended"]
        stored = world.get()["status"]
        assert {key: stored[key] for key in stored if key != "conditions"} == {
            "selector": SELECTOR,
            "service": "sb-1",
            "serviceFQDN": "sb-1.ns.svc.cluster.local",
        }
        assert annotations_of(world) == {"other": "kept"}
        assert world.asked() == {"patch sandboxes": 1, "patch sandboxes/status": 1}
        world.forget_requests()
        await world.advance(600.0)
        assert not world.asked(events=True)


@pytest.mark.case(108)
async def test_a_pod_that_was_never_placed_is_gone_with_its_delete() -> None:
    """Case 108: without a node there is nothing to wait for."""
    async with open_world() as world:
        await world.create(sandbox())
        await suspend(world)
        assert world.find("pods") is None
        assert state(world) == IS_SUSPENDED
        assert "podIPs" not in world.get()["status"]
        assert "PodScheduled" not in types(world)


@pytest.mark.case(108)
async def test_a_pod_made_since_under_the_same_name_is_not_deleted() -> None:
    """Case 108: the DELETE names the uid, so a Pod that took the name meanwhile survives it."""
    async with open_world() as world:
        await world.ready_sandbox()
        replaced: list[Json] = []

        def replace() -> None:
            world.plane.store.delete("pods", NS, "sb-1", grace_s=0)
            replaced.append(world.plane.store.create(pod_body()))

        world.meanwhile("delete", "pods", replace)
        await suspend(world)
        await world.advance(5.0)
        assert world.pod()["metadata"]["uid"] == replaced[0]["metadata"]["uid"]
        assert "deletionTimestamp" not in world.pod()["metadata"]
        # The refusal told that the name is taken; a GET tells by whom.
        assert says(world, "Suspended")[:2] == ("False", "PodNotOwned")
        assert len(world.requests("delete", "pods")) == 1
        assert len(world.requests("get", "pods")) == 2


@pytest.mark.case(108)
async def test_a_pod_that_is_gone_already_needs_no_waiting() -> None:
    """Case 108: a DELETE that finds nothing proves the end, and one status says so."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.forget_requests()
        world.meanwhile(
            "delete", "pods", lambda: world.plane.store.delete("pods", NS, "sb-1", grace_s=0)
        )
        await suspend(world)
        assert state(world) == IS_SUSPENDED
        assert world.asked() == {
            "get sandboxes": 1,
            "delete pods": 1,
            "patch sandboxes/status": 1,
        }


@pytest.mark.case(109)
async def test_a_finished_pod_is_forgotten_with_its_end() -> None:
    """Case 109: Finished is shown until the finished Pod is deleted, whatever holds it then."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.patch("pods", "sb-1", {"metadata": {"finalizers": ["example.com/keep"]}})
        await world.pod_status(phase="Succeeded", conditions=pod_conditions(ready=False))
        assert says(world, "Finished")[:2] == ("True", "PodSucceeded")
        await suspend(world)
        assert state(world) == SUSPENDING
        assert types(world) == ["PodScheduled", "Ready", "Suspended"]
        await world.patch("pods", "sb-1", {"metadata": {"finalizers": None}})
        assert world.find("pods") is None
        assert state(world) == IS_SUSPENDED
        assert types(world) == ["Ready", "Suspended"]


@pytest.mark.case(114)
@pytest.mark.parametrize("status", [403, 500])
async def test_a_pod_that_cannot_be_deleted_shows_in_ready_and_is_tried_again(status: int) -> None:
    """Case 114: the failed delete is Ready's error, Suspended still says that the Pod is going."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.plane.fail_next("delete", "pods", status)
        await suspend(world)
        assert says(world, "Suspended") == SUSPENDING[0]
        error = says(world)
        assert error[:2] == ("False", "ReconcilerError")
        assert error[2].startswith("Error seen: failed to delete pod: ")
        assert says(world, "PodScheduled")[:2] == ("True", "PodScheduled")
        assert "deletionTimestamp" not in world.pod()["metadata"]
        await world.advance(1.0)
        assert state(world) == SUSPENDING
        assert "deletionTimestamp" in world.pod()["metadata"]


@pytest.mark.case(115)
async def test_a_get_of_the_pod_that_fails_leaves_the_suspension_unknown() -> None:
    """Case 115: whether there is a Pod is not known: Unknown, an error, and another try."""
    async with open_world() as world:
        world.plane.fail_next("get", "pods", 500)
        await world.create(sandbox(spec=SUSPENDED))
        assert says(world, "Suspended") == (
            "Unknown",
            "PodStateUnknown",
            "Pod state is unknown. Sandbox suspension cannot be confirmed",
        )
        error = says(world)
        assert error[:2] == ("False", "ReconcilerError")
        assert error[2].startswith("Error seen: pod get failed: ")
        assert says(world, "PodScheduled") == (
            "Unknown",
            "PodSchedulingUnknown",
            "Pod state is unknown. Pod scheduling cannot be determined",
        )
        await world.advance(1.0)
        assert state(world) == IS_SUSPENDED
        assert types(world) == ["Ready", "Suspended"]


@pytest.mark.case(108, 115)
async def test_a_get_of_the_pod_that_fails_does_not_keep_it_alive() -> None:
    """Case 108: the Pod's latest state is worth a GET, but its end does not wait for it."""
    async with open_world() as world:
        await world.create(sandbox())
        await world.run_pod(ready=False)
        world.plane.fail_next("get", "pods", 500, times=100)
        await suspend(world)
        assert "deletionTimestamp" in world.pod()["metadata"]
        assert says(world, "Suspended") == SUSPENDING[0]
        await world.delete("pods", "sb-1")
        assert state(world) == IS_SUSPENDED


@pytest.mark.case(117)
async def test_the_pod_that_is_owned_goes_whatever_the_annotation_says() -> None:
    """Case 117: a stale annotation points nowhere; the one owned Pod has another name and goes."""

    def older(plane: ControlPlane) -> None:
        made = plane.store.create(sandbox(metadata={"annotations": {POD_NAME: "gone"}}))
        owners = (controlled_by(made),)
        plane.store.create(pod_body("warm-2", labels=tracking(), owners=owners))

    async with open_world(prepare=older) as world:
        await world.run_pod("warm-2")
        assert says(world)[0] == "True"
        assert annotations_of(world) == {}
        await annotate(world, pod_name="elsewhere")
        await suspend(world)
        assert "deletionTimestamp" in world.pod("warm-2")["metadata"]
        assert state(world) == SUSPENDING
        await world.delete("pods", "warm-2")
        assert state(world) == IS_SUSPENDED
        assert annotations_of(world) == {}
        assert len(world.requests("delete", "pods")) == 1


# -- Pods of others ------------------------------------------------------------------------------


@pytest.mark.case(113)
@pytest.mark.parametrize("labels", [None, tracking()])
@pytest.mark.parametrize("owned", [False, True])
async def test_a_foreign_pod_of_the_name_survives_suspension(
    labels: dict[str, str] | None, *, owned: bool
) -> None:
    """Case 113: it is neither deleted nor reported, and is no error; the annotation is dropped."""
    async with open_world() as world:
        owners = (world.foreign_owner(),) if owned else ()
        world.plane.store.create(pod_body(labels=labels, owners=owners))
        await world.run_pod()
        before = world.pod()
        world.forget_requests()
        annotations = {POD_NAME: "sb-1", "other": "kept"}
        await world.create(sandbox(spec=SUSPENDED, metadata={"annotations": annotations}))
        assert world.pod() == before
        assert state(world) == (
            (
                "False",
                "PodNotOwned",
                "Refused to delete pod because it is not owned by this sandbox",
            ),
            ("False", "SandboxSuspended", "Sandbox is suspending"),
        )
        assert types(world) == ["Ready", "Suspended"]
        stored = world.get()["status"]
        assert set(stored) == {"conditions", "selector"}
        assert stored["selector"] == SELECTOR
        assert annotations_of(world) == {"other": "kept"}
        # One GET where the watch does not show the Pod; none where it does.
        assert world.asked() == {
            "get sandboxes": 1,
            **({} if labels else {"get pods": 1}),
            "patch sandboxes": 1,
            "patch sandboxes/status": 1,
        }
        world.forget_requests()
        await world.advance(60.0)
        assert not world.asked()


@pytest.mark.case(113)
async def test_the_end_of_a_foreign_pod_completes_the_suspension() -> None:
    """Case 113: the watch tells of the end of a labelled Pod; nothing has to be fetched."""
    async with open_world() as world:
        world.plane.store.create(pod_body(labels=tracking(), owners=(world.foreign_owner(),)))
        await world.create(sandbox(spec=SUSPENDED))
        assert says(world, "Suspended")[1] == "PodNotOwned"
        world.forget_requests()
        await world.delete("pods", "sb-1")
        assert state(world) == IS_SUSPENDED
        assert world.asked() == {"patch sandboxes/status": 1}


# -- while it is suspended ---------------------------------------------------------------------


@pytest.mark.case(112)
async def test_a_sandbox_born_suspended_has_everything_but_a_pod() -> None:
    """Case 112: Service and claims are made, no Pod is, and it is suspended at once."""
    async with open_world() as world:
        await world.create(
            sandbox(spec={**SUSPENDED, "service": True, "volumeClaimTemplates": [volume()]})
        )
        assert world.find("services") is not None
        assert world.find("persistentvolumeclaims", "data-sb-1") is not None
        assert world.find("pods") is None
        assert state(world) == IS_SUSPENDED
        assert types(world) == ["Ready", "Suspended"]
        stored = world.get()["status"]
        assert stored["service"] == "sb-1"
        assert "selector" not in stored


@pytest.mark.case(108, 110)
async def test_service_and_template_are_kept_up_while_suspended() -> None:
    """Case 110: suspension stops nothing but the Pod: a Service asked for meanwhile is made."""
    async with open_world() as world:
        await world.create(sandbox(spec=SUSPENDED))
        await world.patch("sandboxes", "sb-1", {"spec": {"service": True}})
        assert world.find("services") is not None
        assert world.get()["status"]["service"] == "sb-1"
        assert state(world) == IS_SUSPENDED
        await world.patch("sandboxes", "sb-1", {"spec": {"service": False}})
        assert world.find("services") is None
        assert condition(world.get(), "Suspended")["observedGeneration"] == 3


@pytest.mark.case(116)
async def test_a_pod_deleted_by_others_is_no_suspension() -> None:
    """Case 116: Suspended stays False with its old transition time, and the Pod is made again."""
    async with open_world() as world:
        await world.ready_sandbox()
        before = condition(world.get(), "Suspended")
        uid = world.pod()["metadata"]["uid"]
        await world.advance(60.0)
        await world.delete("pods", "sb-1", grace_s=None)
        assert "deletionTimestamp" in world.pod()["metadata"]
        assert condition(world.get(), "Suspended") == before
        await world.delete("pods", "sb-1")
        assert world.pod()["metadata"]["uid"] != uid
        assert condition(world.get(), "Suspended") == before
        await world.run_pod()
        assert condition(world.get(), "Suspended") == before
        assert says(world)[0] == "True"


@pytest.mark.case(108)
async def test_a_restart_during_the_termination_sends_no_second_delete() -> None:
    """Case 108: the Pod's own deletion timestamp is proof enough for a new controller."""
    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        async with open_world(plane=plane) as world:
            await world.ready_sandbox()
            await suspend(world)
            plane.audit.reset()
        async with open_world(plane=plane) as world:
            await world.poke()
            assert all(what.startswith("list") for what in world.asked())
            world.forget_requests()
            await world.delete("pods", "sb-1")
            assert state(world) == IS_SUSPENDED
            assert world.asked() == {"patch sandboxes/status": 1}

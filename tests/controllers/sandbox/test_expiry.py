"""The end of a Sandbox's time: when it is noticed, what goes, what stays, and how it comes back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.expiry import at, dying, reason
from tests.support.volumes import volume
from tests.support.world import (
    HASH_LABEL,
    condition,
    controlled_by,
    open_world,
    pod_body,
    sandbox,
    tracking,
)

Json = dict[str, Any]

# The reconcile that tears down follows the one that marks after a millisecond.
MARKED_S = 0.001


@pytest.mark.case(118)
@pytest.mark.parametrize(
    ("shutdown_s", "still_alive_at_s", "expired_at_s"),
    [(7200.0, 7199.9, 7200.0), (60.0, 59.9, 60.0), (1.0, 1.9, 2.0)],
)
async def test_expiry_is_noticed_at_its_time_and_never_before_two_seconds(
    shutdown_s: float, still_alive_at_s: float, expired_at_s: float
) -> None:
    """Case 118: it is reconciled when the time comes, two seconds from now at the soonest."""
    async with open_world() as world:
        await world.ready_sandbox(dying(shutdown_s))
        await world.advance(still_alive_at_s)
        assert reason(world) == "DependenciesReady"
        world.forget_requests()
        await world.advance(expired_at_s - still_alive_at_s)
        assert reason(world) == "SandboxExpired"
        assert world.asked() == {"patch sandboxes/status": 1}


@pytest.mark.case(118)
async def test_a_sandbox_without_a_time_is_never_looked_at_again() -> None:
    """Case 118: without shutdownTime nothing is due, however long one waits."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.forget_requests()
        await world.advance(3600.0)
        assert reason(world) == "DependenciesReady"
        assert not world.reports


@pytest.mark.case(119)
async def test_a_retained_sandbox_is_marked_first_and_torn_down_in_the_next_reconcile() -> None:
    """Case 119: one write marks it; then Pod and Service go and only conditions are left."""
    async with open_world() as world:
        await world.ready_sandbox(dying(60.0, service=True, volumeClaimTemplates=[volume()]))
        world.forget_requests()
        await world.advance(60.0)
        stored = world.get()
        assert condition(stored, "Ready")["message"] == "Sandbox has expired"
        assert [one["type"] for one in stored["status"]["conditions"]] == ["Suspended", "Ready"]
        assert stored["status"]["podIPs"] == ["10.244.0.5"]
        assert "deletionTimestamp" not in world.pod()["metadata"]
        assert world.find("services") is not None
        assert world.asked() == {"patch sandboxes/status": 1}

        await world.advance(MARKED_S)
        assert "deletionTimestamp" in world.pod()["metadata"]
        await world.delete("pods", "sb-1")
        assert world.find("pods") is None
        assert world.find("services") is None
        assert world.find("persistentvolumeclaims", "data-sb-1") is not None
        assert set(world.get()["status"]) == {"conditions"}
        assert world.asked() == {
            "patch sandboxes/status": 2,
            "delete pods": 1,
            "delete services": 1,
        }
        world.forget_requests()
        await world.advance(3600.0)
        assert not world.asked(events=True)
        assert [event["reason"] for event in world.events()].count("SandboxExpired") == 1


async def test_what_the_pod_does_between_the_end_and_its_deletion_is_no_launch() -> None:
    """Launches of the namespace wait the longer the more there are: one that expired is none."""
    async with open_world() as world:
        await world.create(dying(60.0))
        await world.advance(60.0)
        await world.run_pod(ready=False)
        await world.advance(MARKED_S)
        assert "deletionTimestamp" in world.pod()["metadata"]
        assert len(world.whole.sandboxes._context.throttle) == 0


@pytest.mark.case(120)
async def test_with_the_delete_policy_the_sandbox_itself_goes_without_another_status() -> None:
    """Case 120: Pod, Service and Sandbox are deleted; nothing is written about it any more."""
    async with open_world() as world:
        await world.ready_sandbox(dying(60.0, policy="Delete", service=True))
        world.forget_requests()
        await world.advance(60.0)
        await world.advance(MARKED_S)
        assert world.find("sandboxes") is None
        assert world.asked() == {
            "patch sandboxes/status": 1,
            "delete pods": 1,
            "delete services": 1,
            "delete sandboxes": 1,
        }
        await world.advance(60.0)
        assert "SandboxExpired" not in [event["reason"] for event in world.events()]


@pytest.mark.case(121)
async def test_the_pod_that_the_annotation_names_goes_at_expiry() -> None:
    """Case 121: an owned Pod under another name is found by the pod-name annotation."""
    labels = {"agents.x-k8s.io/adoptable": "true", **tracking()}
    body = dying(60.0)
    body["metadata"]["annotations"] = {"agents.x-k8s.io/pod-name": "warm-1"}
    async with open_world(before=(pod_body("warm-1", labels=labels),)) as world:
        await world.create(body)
        assert world.find("pods") is None
        await world.advance(60.0)
        await world.advance(MARKED_S)
        assert world.find("pods", "warm-1") is None
        assert reason(world) == "SandboxExpired"


async def test_its_own_pod_goes_at_expiry_whatever_pod_the_annotation_names() -> None:
    """Who may write annotations cannot keep a Pod alive by them: ownership decides."""
    async with open_world() as world:
        await world.ready_sandbox()
        annotations = {"agents.x-k8s.io/pod-name": "nobody"}
        over = {"metadata": {"annotations": annotations}, "spec": {"shutdownTime": at(0.0)}}
        await world.patch("sandboxes", "sb-1", over)
        await world.advance(MARKED_S)
        pod = world.find("pods")
        assert pod is None or pod["metadata"].get("deletionTimestamp")
        assert reason(world) == "SandboxExpired"


@pytest.mark.parametrize("name", ["nobody", "not a name"])
async def test_its_own_pod_goes_at_expiry_although_no_watch_shows_it(name: str) -> None:
    """Nor by a Pod without the label by which Pods are watched."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.plane.fail_next("patch", "pods", 403, times=10**6)
        await world.patch("pods", "sb-1", {"metadata": {"labels": {HASH_LABEL: None}}})
        annotations = {"agents.x-k8s.io/pod-name": name}
        over = {"metadata": {"annotations": annotations}, "spec": {"shutdownTime": at(0.0)}}
        await world.patch("sandboxes", "sb-1", over)
        await world.advance(10.0)
        pod = world.find("pods")
        assert pod is None or pod["metadata"].get("deletionTimestamp")
        assert reason(world) == "SandboxExpired"


@pytest.mark.case(122)
@pytest.mark.parametrize("owner", ["nobody", "a Deployment", "another Sandbox"])
async def test_a_pod_that_is_not_the_sandboxes_survives_its_expiry(owner: str) -> None:
    """Case 122: a foreign Pod of the name is left alone; the Service goes, the mark stays."""
    async with open_world() as world:
        other = await world.create(sandbox("other"))
        owners = {
            "nobody": (),
            "a Deployment": (world.foreign_owner(),),
            "another Sandbox": (controlled_by(other),),
        }
        labels = tracking() if owner == "another Sandbox" else None
        world.plane.store.create(pod_body(labels=labels, owners=owners[owner]))
        await world.create(dying(60.0, service=True))
        assert world.find("services") is not None
        await world.advance(61.0)
        assert "deletionTimestamp" not in world.pod()["metadata"]
        assert world.find("services") is None
        assert reason(world) == "SandboxExpired"
        assert set(world.get()["status"]) == {"conditions"}


@pytest.mark.case(123)
async def test_a_failed_pod_delete_keeps_the_status_until_it_succeeds() -> None:
    """Case 123: nothing is cleared while the Pod could not be deleted; the next try mends it."""
    async with open_world() as world:
        await world.ready_sandbox(dying(60.0))
        world.plane.fail_next("delete", "pods", 500, times=1)
        await world.advance(60.0)
        await world.advance(MARKED_S)
        assert "deletionTimestamp" not in world.pod()["metadata"]
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]
        await world.advance(1.0)
        assert "deletionTimestamp" in world.pod()["metadata"]
        assert set(world.get()["status"]) == {"conditions"}


@pytest.mark.case(124)
async def test_with_the_delete_policy_a_failed_pod_delete_does_not_matter() -> None:
    """Case 124: once the Sandbox is deleted its Pod follows by its owner reference."""
    async with open_world() as world:
        await world.ready_sandbox(dying(60.0, policy="Delete"))
        world.plane.fail_next("delete", "pods", 500, times=1)
        await world.advance(60.0)
        world.forget_requests()
        await world.advance(MARKED_S)
        assert world.find("sandboxes") is None
        assert "deletionTimestamp" in world.pod()["metadata"]
        await world.advance(600.0)
        assert world.asked() == {"delete pods": 1, "delete sandboxes": 1}


@pytest.mark.case(125)
async def test_how_the_pod_finished_is_still_told_after_expiry() -> None:
    """Case 125: Finished keeps its reason and its transition time."""
    async with open_world() as world:
        await world.ready_sandbox(dying(60.0))
        await world.pod_status(phase="Succeeded")
        before = condition(world.get(), "Finished")
        await world.advance(60.0)
        await world.advance(MARKED_S)
        assert condition(world.get(), "Finished") == before
        assert before["reason"] == "PodSucceeded"


@pytest.mark.case(126)
@pytest.mark.parametrize("later", [at(7200.0), None])
async def test_an_expired_sandbox_comes_back_when_its_time_is_moved(later: str | None) -> None:
    """Case 126: with a later time, or none, the Pod is made again and readiness follows it."""
    async with open_world() as world:
        await world.ready_sandbox(dying(60.0))
        await world.advance(60.0)
        await world.advance(MARKED_S)
        await world.delete("pods", "sb-1")
        await world.patch("sandboxes", "sb-1", {"spec": {"shutdownTime": later}})
        assert world.find("pods") is not None
        await world.advance(1.0)
        assert reason(world) == "DependenciesNotReady"
        await world.run_pod()
        assert reason(world) == "DependenciesReady"
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]


@pytest.mark.case(127)
async def test_a_suspended_sandbox_expires_too() -> None:
    """Case 127: expiry comes before the mode; what Suspended said last stays."""
    async with open_world() as world:
        await world.create(dying(60.0, operatingMode="Suspended"))
        assert reason(world) == "SandboxSuspended"
        await world.advance(60.0)
        await world.advance(MARKED_S)
        assert reason(world) == "SandboxExpired"
        assert condition(world.get(), "Suspended")["reason"] == "PodTerminated"


@pytest.mark.case(118, 128)
@pytest.mark.parametrize("seconds", [-3600.0, 0.0])
async def test_a_sandbox_born_expired_never_gets_a_pod(seconds: float) -> None:
    """Case 128: one status write, Ready alone in it, and one GET for a Pod that has no label.

    The moment itself counts as passed (118).
    """
    async with open_world() as world:
        world.forget_requests()
        await world.create(dying(seconds, service=True))
        await world.advance(MARKED_S)
        stored = world.get()
        assert [one["type"] for one in stored["status"]["conditions"]] == ["Ready"]
        assert set(stored["status"]) == {"conditions"}
        assert condition(stored, "Ready")["observedGeneration"] == 1
        assert world.asked() == {"get sandboxes": 1, "get pods": 1, "patch sandboxes/status": 1}


@pytest.mark.case(129)
async def test_a_time_that_passes_during_a_reconcile_ends_that_reconcile_expired() -> None:
    """Case 129: the reconcile that created the Pod ends with the mark; the next takes it away."""
    async with open_world() as world:
        passing = [60.0]

        def time_passes() -> None:
            # Only the reading of the clock moves: no timer rings in the middle of a request.
            world.clock.leap(passing.pop())

        world.meanwhile("create", "pods", time_passes)
        world.forget_requests()
        await world.create(dying(60.0))
        assert world.find("pods") is not None
        assert reason(world) == "SandboxExpired"
        assert world.writes() == {"create pods": 1, "patch sandboxes/status": 1}
        await world.advance(MARKED_S)
        assert world.find("pods") is None
        assert set(world.get()["status"]) == {"conditions"}


async def test_expiry_of_a_sandbox_without_children_costs_one_write() -> None:
    """Nothing is deleted that was never there: no DELETE and no GET for a Pod or a Service."""
    async with open_world() as world:
        await world.create(dying(60.0, operatingMode="Suspended"))
        world.forget_requests()
        await world.advance(60.0)
        await world.advance(MARKED_S)
        assert world.writes() == {"patch sandboxes/status": 1}
        assert not world.find("pods")

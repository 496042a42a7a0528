"""More than one Pod says that it belongs to the Sandbox: nothing is chosen, nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.runtime.workers import ReconcileOutcome
from tests.support.names import POD_NAME
from tests.support.suspension import suspend
from tests.support.volumes import volume
from tests.support.world import (
    HASH_LABEL,
    NS,
    World,
    condition,
    controlled_by,
    open_world,
    pod_body,
    sandbox,
    tracking,
)

TEXT = "multiple Pods (2) are controlled by this Sandbox; refusing to choose or create a Pod"


async def second_pod(world: World, **more: Any) -> None:
    """Let somebody make another Pod that names the Sandbox as its controller."""
    owner = controlled_by(world.get())
    await world.create(pod_body("twin", labels=tracking(), owners=(owner,), **more))


def notes(world: World) -> list[str]:
    """Return the notes of the Events about many Pods."""
    return [event["note"] for event in world.events() if event["reason"] == "MultiplePods"]


@pytest.mark.case(60)
async def test_two_owned_pods_stop_everything_and_are_told_once() -> None:
    """Case 60: no address, no create, no delete, no Service; no failed reconcile; one Event."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.forget_requests()
        await second_pod(world)
        stored = world.get()
        ready = condition(stored, "Ready")
        assert (ready["status"], ready["reason"], ready["message"]) == (
            "False",
            "MultiplePods",
            TEXT,
        )
        scheduled = condition(stored, "PodScheduled")
        assert (scheduled["status"], scheduled["reason"]) == ("Unknown", "PodSchedulingUnknown")
        assert condition(stored, "Suspended")["reason"] == "NotSuspended"
        assert "podIPs" not in stored["status"]
        assert "nodeName" not in stored["status"]
        assert world.writes() == {"patch sandboxes/status": 1}
        assert [report.outcome for report in world.reports] == [ReconcileOutcome.SUCCESS]
        assert world.reports[0].next_s is None
        await world.patch("sandboxes", "sb-1", {"spec": {"service": True}})
        assert world.find("services") is None
        assert "service" not in world.get()["status"]
        await world.advance(60.0)
        assert len(world.plane.store.list("pods", NS)) == 2
        assert notes(world) == [TEXT]
        (event,) = [one for one in world.events() if one["reason"] == "MultiplePods"]
        assert (event["type"], event["action"]) == ("Warning", "Reconciling")
        assert event["reportingController"] == "sandbox-controller"
        assert event["regarding"]["uid"] == stored["metadata"]["uid"]


async def test_a_pod_is_owned_by_the_uid_alone() -> None:
    """Whatever kind its controller claims to be of: the next reconcile of the Sandbox counts it."""
    async with open_world() as world:
        await world.ready_sandbox()
        owner = {**controlled_by(world.get(), api_version="example.com/v1"), "kind": "Widget"}
        await world.create(pod_body("twin", labels=tracking(), owners=(owner,)))
        await world.patch("sandboxes", "sb-1", {"spec": {"shutdownPolicy": "Delete"}})
        await world.settle()
        assert condition(world.get(), "Ready")["message"] == TEXT


@pytest.mark.case(60)
async def test_one_of_two_pods_gone_is_life_as_before_and_a_new_episode_is_told_anew() -> None:
    """Case 60: the way out is to delete a Pod; its Event comes once for each episode."""
    async with open_world() as world:
        await world.ready_sandbox()
        await second_pod(world)
        await world.delete("pods", "twin")
        stored = world.get()
        assert condition(stored, "Ready")["status"] == "True"
        assert condition(stored, "PodScheduled")["status"] == "True"
        assert stored["status"]["podIPs"] == ["10.244.0.5"]
        await world.advance(1.0)
        await second_pod(world)
        await world.advance(1.0)
        assert condition(world.get(), "Ready")["reason"] == "MultiplePods"
        # Equal notes may be folded into one object as a series; both were counted.
        told = [event for event in world.events() if event["reason"] == "MultiplePods"]
        assert sum((event.get("series") or {}).get("count", 1) for event in told) == 2


@pytest.mark.case(59, 60)
async def test_a_pod_without_the_tracking_label_counts_as_one_of_two() -> None:
    """Case 59, 60: a Pod that drops out of sight while another comes is looked for and counted."""
    async with open_world() as world:
        await world.ready_sandbox()
        bare = {"metadata": {"labels": {HASH_LABEL: None}}}
        world.plane.store.patch("pods", NS, "sb-1", bare)
        await second_pod(world)
        assert condition(world.get(), "Ready")["message"] == TEXT
        await world.poke()
        assert condition(world.get(), "Ready")["message"] == TEXT
        assert HASH_LABEL not in world.pod()["metadata"].get("labels", {})
        await world.delete("pods", "twin")
        assert world.pod()["metadata"]["labels"] == tracking()
        assert condition(world.get(), "Ready")["status"] == "True"


@pytest.mark.case(59, 60)
async def test_a_pod_that_the_annotation_names_counts_as_one_of_two() -> None:
    """Case 59, 60: also one without the tracking label, which no watch shows."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.create(pod_body("twin", owners=(controlled_by(world.get()),)))
        named = {"metadata": {"annotations": {POD_NAME: "twin"}}}
        await world.patch("sandboxes", "sb-1", named)
        assert condition(world.get(), "Ready")["message"] == TEXT


@pytest.mark.case(61)
async def test_many_pods_hide_other_errors_but_do_not_end_their_repetition() -> None:
    """Case 61: Ready speaks of the Pods alone; the failing claim is still tried again."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"volumeClaimTemplates": [volume()]}))
        await second_pod(world)
        await world.delete("persistentvolumeclaims", "data-sb-1")
        world.plane.fail_next("create", "persistentvolumeclaims", 500)
        world.forget_requests()
        # Its Pod holds it; somebody takes it away all the same.
        await world.patch("persistentvolumeclaims", "data-sb-1", {"metadata": {"finalizers": None}})
        assert [report.outcome for report in world.reports] == [ReconcileOutcome.ERROR]
        assert condition(world.get(), "Ready")["message"] == TEXT
        assert world.find("persistentvolumeclaims", "data-sb-1") is None
        await world.advance(0.005)
        assert world.find("persistentvolumeclaims", "data-sb-1") is not None
        assert condition(world.get(), "Ready")["message"] == TEXT


@pytest.mark.case(62)
async def test_many_pods_are_not_deleted_by_suspending() -> None:
    """Case 62: which Pod to delete is as doubtful as which to keep: suspension is Unknown."""
    async with open_world() as world:
        await world.ready_sandbox()
        await second_pod(world)
        world.forget_requests()
        await suspend(world)
        suspended = condition(world.get(), "Suspended")
        assert (suspended["status"], suspended["reason"], suspended["message"]) == (
            "Unknown",
            "PodStateUnknown",
            "Pod state is unknown. Sandbox suspension cannot be confirmed",
        )
        assert condition(world.get(), "Ready")["reason"] == "MultiplePods"
        assert len(world.plane.store.list("pods", NS)) == 2
        assert world.writes() == {"patch sandboxes/status": 1}
        await world.delete("pods", "twin")
        assert world.pod()["metadata"]["deletionTimestamp"]

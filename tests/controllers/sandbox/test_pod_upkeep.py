"""The Pod that a Sandbox has: what is read of it, what is put right, and what is left as it is."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.watch.kind import Representation
from tests.support.world import (
    CONTROLLER,
    HASH_LABEL,
    NS,
    World,
    condition,
    open_world,
    sandbox,
    tracking,
)

Json = dict[str, Any]
POD_NAME = "agents.x-k8s.io/pod-name"


def selectors(world: World, resource: str) -> set[tuple[str, str]]:
    """Return the label selectors that the controller asked for, by verb."""
    return {
        (entry.verb, entry.query.get("labelSelector", ""))
        for entry in world.plane.audit.select(user=CONTROLLER, resource=resource)
        if entry.verb in ("list", "watch")
    }


@pytest.mark.case(139)
async def test_a_patch_of_metadata_leaves_everything_else_of_a_pod_alone() -> None:
    """Case 139: finalizers, spec and status of the Pod, never read, are never written either."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.patch("pods", "sb-1", {"metadata": {"finalizers": ["example.com/hold"]}})
        before = world.pod()
        team = {"spec": {"podTemplate": {"metadata": {"labels": {"team": "red"}}}}}
        await world.patch("sandboxes", "sb-1", team)
        after = world.pod()
        assert after["spec"] == before["spec"]
        assert after["status"] == before["status"]
        assert after["metadata"]["finalizers"] == ["example.com/hold"]
        assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
        assert after["metadata"]["labels"] == {**tracking(), "team": "red"}


@pytest.mark.case(139)
@pytest.mark.parametrize("form", ["table", "metadata", "full"])
async def test_the_patch_is_the_same_in_whatever_form_pods_are_watched(form: str) -> None:
    """Case 139: what is kept of a Pod is enough for the patch that a whole Pod would give."""
    settings = Settings(sandbox_status_window=1.0, watch_representation=Representation(form))
    template = {"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"c": "3"}}}
    async with open_world(settings) as world:
        await world.ready_sandbox(sandbox(template=template))
        foreign = {"metadata": {"labels": {"theirs": "x"}, "annotations": {"theirs": "y"}}}
        await world.patch("pods", "sb-1", foreign)
        edit = {"metadata": {"labels": {"b": None, "d": "4"}, "annotations": None}}
        await world.patch("sandboxes", "sb-1", {"spec": {"podTemplate": edit}})
        metadata = world.pod()["metadata"]
        assert metadata["labels"] == {**tracking(), "a": "1", "d": "4", "theirs": "x"}
        assert metadata["annotations"] == {
            "agents.x-k8s.io/propagated-labels": "a,d",
            "agents.x-k8s.io/propagated-annotations": "",
            "theirs": "y",
        }


@pytest.mark.case(140)
@pytest.mark.parametrize("flag", [True, False])
async def test_pods_are_asked_for_by_label_always_and_services_when_told(*, flag: bool) -> None:
    """Case 140: the tracking label is in every LIST and WATCH of Pods.

    For Services it is there with ``--cache-label-selectors`` only. (The reference controller puts
    it on Pods only with the flag too; here the other Pods of a cluster are never worth their bytes,
    and one that stands in the way shows itself when a create collides with it.)
    """
    settings = Settings(sandbox_status_window=1.0, cache_label_selectors=flag)
    async with open_world(settings) as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        wanted = HASH_LABEL if flag else ""
        assert selectors(world, "pods") == {("list", HASH_LABEL), ("watch", HASH_LABEL)}
        assert selectors(world, "services") == {("list", wanted), ("watch", wanted)}
        assert selectors(world, "sandboxes") == {("list", ""), ("watch", "")}


@pytest.mark.case(147)
async def test_a_pod_name_annotation_removed_by_hand_is_not_missed() -> None:
    """Case 147: since v1.0.0 nobody writes the annotation; the owned Pod is found without it."""
    pod_name = {"metadata": {"annotations": {POD_NAME: "sb-1"}}}
    async with open_world() as world:
        await world.ready_sandbox(sandbox(metadata=pod_name["metadata"]))
        uid = world.pod()["metadata"]["uid"]
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", {"metadata": {"annotations": None}})
        await world.advance(60.0)
        assert POD_NAME not in (world.get()["metadata"].get("annotations") or {})
        assert world.pod()["metadata"]["uid"] == uid
        assert not world.writes()


@pytest.mark.case(151)
async def test_a_finished_pod_that_cannot_be_read_takes_finished_back_for_that_reconcile() -> None:
    """Case 151: Finished comes back with the next GET, and with a new transition time."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.pod_status(phase="Succeeded")
        first = condition(world.get(), "Finished")
        await world.advance(5.0)
        world.plane.fail_next("get", "pods", 500)
        # Another outcome of the same Pod asks for a GET, and the GET fails once.
        await world.pod_status(phase="Failed")
        failed = world.get()
        assert "Finished" not in [one["type"] for one in failed["status"]["conditions"]]
        assert condition(failed, "Ready")["reason"] == "ReconcilerError"
        assert "pod get failed" in condition(failed, "Ready")["message"]
        await world.advance(1.0)
        again = condition(world.get(), "Finished")
        assert again["reason"] == "PodFailed"
        assert again["lastTransitionTime"] > first["lastTransitionTime"]
        assert condition(world.get(), "Ready")["reason"] == "PodFailed"
        assert world.get()["metadata"]["namespace"] == NS

"""Which Pod a Sandbox takes for its own: by ownership, by name, by leave to adopt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.conditions import says
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

Json = dict[str, Any]
ADOPTABLE = "agents.x-k8s.io/adoptable"
POD_NAME = "agents.x-k8s.io/pod-name"
LEAVE = {ADOPTABLE: "true"}


def named(pod_name: str, **more: Any) -> Json:
    """Return a Sandbox whose annotation says what its Pod is called."""
    return sandbox(metadata={"annotations": {POD_NAME: pod_name}}, **more)


def annotation(world: World) -> str | None:
    """Return the stored pod-name annotation, ``None`` without the key."""
    found: str | None = (world.get()["metadata"].get("annotations") or {}).get(POD_NAME)
    return found


def pod_names(world: World) -> list[str]:
    """Return the names of all Pods."""
    return [pod["metadata"]["name"] for pod in world.plane.store.list("pods", NS)]


@pytest.mark.case(48)
async def test_an_unowned_pod_with_leave_is_adopted_in_one_patch() -> None:
    """Case 48: reference, tracking label and template metadata come in one write; leave stays."""
    async with open_world() as world:
        free = {"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": ""}
        free["uid"] = world.foreign_owner()["uid"]
        await world.create(pod_body(labels=LEAVE, owners=(free,)))
        world.forget_requests()
        template = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}
        made = await world.create(sandbox(template=template))
        metadata = world.pod()["metadata"]
        assert metadata["labels"] == {**LEAVE, "a": "b", **tracking()}
        assert metadata["annotations"] == {
            "c": "d",
            "agents.x-k8s.io/propagated-labels": "a",
            "agents.x-k8s.io/propagated-annotations": "c",
        }
        # Who does not control it keeps its reference.
        assert metadata["ownerReferences"] == [free, controlled_by(made)]
        assert world.writes() == {"create pods": 1, "patch pods": 1}
        (patch,) = world.requests("patch", "pods")
        assert patch.content_type == "application/merge-patch+json"
        assert [request.code for request in world.requests("create", "pods")] == [409]
        await world.run_pod()
        assert says(world) == ("True", "DependenciesReady", "Pod is Ready")
        assert world.pod()["spec"]["containers"][0]["name"] == "theirs"


@pytest.mark.case(49, 50)
@pytest.mark.parametrize(
    "labels", [tracking(), {**tracking(), "a": "b"}], ids=["tracking label only", "labels complete"]
)
async def test_an_unowned_pod_with_the_tracking_label_is_adopted(labels: dict[str, str]) -> None:
    """Case 49, 50: the tracking label is leave as well; the reference is written in any case."""
    async with open_world() as world:
        await world.create(pod_body(labels=labels))
        world.forget_requests()
        made = await world.create(sandbox())
        assert world.pod()["metadata"]["ownerReferences"] == [controlled_by(made)]
        assert world.pod()["metadata"]["labels"] == labels
        assert world.writes() == {"patch pods": 1}


@pytest.mark.case(51, 52, 53)
@pytest.mark.parametrize(
    "labels",
    [{}, {ADOPTABLE: "yes"}, {HASH_LABEL: "00000000"}],
    ids=["no label", "adoptable is not true", "tracked for another name"],
)
async def test_an_unowned_pod_without_leave_is_refused(labels: dict[str, str]) -> None:
    """Case 51, 52, 53: without the exact label nobody's Pod stays nobody's; Ready says why."""
    async with open_world() as world:
        theirs = await world.create(pod_body(labels=labels))
        await world.create(named("sb-1"))
        status, reason, message = says(world)
        assert (status, reason) == ("False", "ReconcilerError")
        assert message == (
            'Error seen: cannot adopt unowned pod "sb-1": missing required pool authorization label'
            ' ("agents.x-k8s.io/adoptable") or sandbox tracking label'
            ' ("agents.x-k8s.io/sandbox-name-hash")'
        )
        assert condition(world.get(), "PodScheduled")["status"] == "Unknown"
        await world.advance(60.0)
        assert world.pod() == theirs
        assert annotation(world) == "sb-1"
        assert pod_names(world) == ["sb-1"]
        assert world.requests("patch", "pods") == []


@pytest.mark.case(51)
async def test_a_refused_pod_is_taken_once_leave_is_given_and_replaced_once_it_goes() -> None:
    """Case 51: a refusal is tried again by itself, so both ways out of it work."""
    async with open_world() as world:
        await world.create(pod_body())
        await world.create(sandbox())
        await world.patch("pods", "sb-1", {"metadata": {"labels": LEAVE}})
        await world.advance(60.0)
        assert world.pod()["metadata"]["ownerReferences"] == [controlled_by(world.get())]
        await world.create(pod_body("sb-2"))
        await world.create(sandbox("sb-2"))
        await world.delete("pods", "sb-2")
        await world.advance(60.0)
        assert world.pod("sb-2")["metadata"]["labels"] == tracking("sb-2")


@pytest.mark.parametrize(
    ("labels", "is_owned", "freed"),
    [
        ({**LEAVE, **tracking()}, True, {"ownerReferences": None}),
        (tracking("another"), False, {"labels": LEAVE}),
    ],
    ids=["its owner lets it go", "leave is given"],
)
async def test_a_pod_in_the_way_that_becomes_free_is_adopted_at_once(
    labels: dict[str, str], freed: Json, *, is_owned: bool
) -> None:
    """That it is free now shows in its metadata alone."""
    async with open_world() as world:
        owners = (world.foreign_owner(),) if is_owned else ()
        await world.create(pod_body(labels=labels, owners=owners))
        await world.create(sandbox())
        await world.advance(60.0)
        assert says(world)[1] == "ReconcilerError"
        await world.patch("pods", "sb-1", {"metadata": freed})
        assert world.pod()["metadata"]["ownerReferences"] == [controlled_by(world.get())]


@pytest.mark.case(12, 54)
async def test_the_annotation_names_the_pod_to_adopt() -> None:
    """Case 12, 54: a warm Pod named by the annotation is adopted as it is; none is created."""
    async with open_world() as world:
        await world.create(pod_body("warm-1", labels=LEAVE))
        await world.run_pod("warm-1", node="node-7")
        world.forget_requests()
        await world.create(named("warm-1"))
        assert pod_names(world) == ["warm-1"]
        warm = world.pod("warm-1")
        assert warm["metadata"]["ownerReferences"] == [controlled_by(world.get())]
        assert warm["spec"]["containers"][0]["name"] == "theirs"
        assert annotation(world) == "warm-1"
        assert says(world) == ("True", "DependenciesReady", "Pod is Ready")
        assert world.get()["status"]["nodeName"] == "node-7"
        assert world.asked() == {
            "get sandboxes": 1,
            "get pods": 1,
            "patch pods": 1,
            "patch sandboxes/status": 1,
        }


@pytest.mark.case(12)
async def test_an_empty_annotation_means_the_name_of_the_sandbox() -> None:
    """Case 12: the key without a value names nothing; the Pod is called like the Sandbox."""
    async with open_world() as world:
        await world.create(named(""))
        assert pod_names(world) == ["sb-1"]
        await world.run_pod()
        assert says(world)[0] == "True"


@pytest.mark.case(55)
async def test_an_annotation_that_points_at_a_foreign_pod_is_dropped() -> None:
    """Case 55: somebody's Pod is never taken; the annotation goes, then an own Pod is made."""
    async with open_world() as world:
        theirs = await world.create(pod_body("warm-1", owners=(world.foreign_owner(),)))
        seen: list[Json] = []
        world.meanwhile("create", "pods", lambda: seen.append(world.get()))
        await world.create(named("warm-1"))
        await world.advance(0.005)
        refused = condition(seen[0], "Ready")
        assert refused["reason"] == "ReconcilerError"
        message = refused["message"]
        assert message.startswith('Error seen: pod "warm-1" is owned by Deployment/web (UID: ')
        assert POD_NAME not in seen[0]["metadata"].get("annotations", {})
        assert annotation(world) is None
        assert pod_names(world) == ["sb-1", "warm-1"]
        assert world.pod("warm-1") == theirs
        await world.run_pod()
        assert says(world)[0] == "True"


@pytest.mark.case(56)
async def test_an_annotation_that_points_at_nothing_is_dropped() -> None:
    """Case 56: a Pod that is not there cannot be used: the key goes, an own Pod is made."""
    async with open_world() as world:
        await world.create(named("warm-1"))
        assert pod_names(world) == ["sb-1"]
        # Nobody writes the annotation any more (changes, v1.0.0).
        assert annotation(world) is None
        assert world.writes() == {"patch sandboxes": 1, "create pods": 1}


@pytest.mark.case(57)
async def test_an_owned_pod_under_another_name_is_found_by_ownership() -> None:
    """Case 57: the annotation points at nothing, yet an owned Pod exists: it is used."""
    async with open_world() as world:
        await world.create(pod_body("warm-2", labels=LEAVE))
        await world.run_pod("warm-2")
        await world.create(named("warm-2"))
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", {"metadata": {"annotations": {POD_NAME: "warm-1"}}})
        await world.poke()
        assert pod_names(world) == ["warm-2"]
        assert annotation(world) is None
        assert says(world) == ("True", "DependenciesReady", "Pod is Ready")
        assert world.writes() == {"patch sandboxes": 1}


@pytest.mark.case(58)
async def test_an_owned_pod_beats_the_one_that_the_annotation_names() -> None:
    """Case 58: a Sandbox with a Pod adopts no second one, whoever offers it."""
    async with open_world() as world:
        await world.ready_sandbox()
        offered = await world.create(pod_body("warm-1", labels={**LEAVE, **tracking()}))
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", {"metadata": {"annotations": {POD_NAME: "warm-1"}}})
        assert world.pod("warm-1") == offered
        assert annotation(world) is None
        assert says(world)[0] == "True"
        assert world.writes() == {"patch sandboxes": 1}


@pytest.mark.case(59, 145)
async def test_a_pod_that_lost_its_tracking_label_gets_it_back() -> None:
    """Case 59: the watch stops showing it; one GET tells that it is there, one patch mends it."""
    async with open_world() as world:
        await world.ready_sandbox()
        uid = world.pod()["metadata"]["uid"]
        world.forget_requests()
        await world.patch("pods", "sb-1", {"metadata": {"labels": {HASH_LABEL: None}}})
        assert world.pod()["metadata"]["labels"] == tracking()
        assert world.pod()["metadata"]["uid"] == uid
        assert world.asked() == {"get pods": 1, "patch pods": 1}
        assert says(world)[0] == "True"
        await world.patch("pods", "sb-1", {"metadata": {"labels": tracking("other")}})
        assert world.pod()["metadata"]["labels"] == tracking()
        assert world.asked() == {"get pods": 1, "patch pods": 2}
        await world.run_pod(ready=False)
        assert says(world)[0] == "False"


@pytest.mark.case(59, 108, 109)
@pytest.mark.parametrize("grace_s", [0, 30])
async def test_a_pod_without_the_tracking_label_is_suspended_to_its_end(grace_s: int) -> None:
    """Case 59, 108, 109: the end of a Pod is seen only with the label, so it is put back first."""
    async with open_world() as world:
        await world.ready_sandbox()
        store = world.plane.store
        bare = {"metadata": {"labels": {HASH_LABEL: None}}}
        store.patch("pods", NS, "sb-1", bare)
        suspend = {"spec": {"operatingMode": "Suspended"}}
        if grace_s:
            store.delete("pods", NS, "sb-1", grace_s=grace_s)
        await world.patch("sandboxes", "sb-1", suspend)
        assert world.pod()["metadata"]["labels"] == tracking()
        assert world.pod()["metadata"]["deletionTimestamp"]
        assert condition(world.get(), "Suspended")["reason"] == "PodTerminating"
        await world.delete("pods", "sb-1")
        assert condition(world.get(), "Suspended")["reason"] == "PodTerminated"
        assert "podIPs" not in world.get()["status"]


@pytest.mark.case(63)
async def test_a_terminating_pod_is_waited_for() -> None:
    """Case 63: no second Pod while the first one ends; readiness ends with its deletion."""
    async with open_world() as world:
        await world.ready_sandbox()
        old = world.pod()["metadata"]["uid"]
        world.forget_requests()
        await world.delete("pods", "sb-1", grace_s=30)
        assert world.pod()["metadata"]["deletionTimestamp"]
        await world.advance(10.0)
        await world.poke()
        assert says(world) == ("False", "PodTerminating", "Pod is terminating")
        await world.run_pod(ready=False)
        assert says(world) == ("False", "PodTerminating", "Pod is terminating")
        assert world.writes() == {"patch sandboxes/status": 1}
        await world.delete("pods", "sb-1")
        assert world.pod()["metadata"]["uid"] != old
        await world.advance(1.0)
        assert "podIPs" not in world.get()["status"]
        assert "nodeName" not in world.get()["status"]
        await world.run_pod()
        assert says(world)[0] == "True"


@pytest.mark.case(64)
async def test_the_pod_of_a_predecessor_is_waited_out() -> None:
    """Case 64: a Pod of an older Sandbox of the name is foreign; its end wakes the new one."""
    async with open_world() as world:
        older = await world.ready_sandbox()
        await world.delete("sandboxes", "sb-1")
        # The collector has begun to delete its Pod, which takes its time.
        assert world.pod()["metadata"]["deletionTimestamp"]
        newer = await world.create(sandbox())
        uid = older["metadata"]["uid"]
        assert says(world) == (
            "False",
            "ReconcilerError",
            f'Error seen: pod "sb-1" is owned by Sandbox/sb-1 (UID: {uid}), not by sandbox "sb-1"',
        )
        assert "podIPs" not in world.get()["status"]
        await world.delete("pods", "sb-1")
        assert world.pod()["metadata"]["ownerReferences"] == [controlled_by(newer)]
        await world.run_pod()
        assert says(world)[0] == "True"


@pytest.mark.case(65)
async def test_a_reference_of_another_version_is_ownership_all_the_same() -> None:
    """Case 65: the uid makes the owner; objects made through older versions still report."""
    async with open_world() as world:
        made = await world.create(sandbox())
        old = controlled_by(made, api_version="agents.x-k8s.io/v1alpha1")
        await world.patch("pods", "sb-1", {"metadata": {"ownerReferences": [old]}})
        world.forget_requests()
        await world.run_pod()
        assert says(world)[0] == "True"
        await world.run_pod(ready=False)
        assert says(world)[0] == "False"
        assert world.pod()["metadata"]["ownerReferences"] == [old]
        assert world.writes() == {"patch sandboxes/status": 2}


@pytest.mark.case(66)
async def test_a_pod_that_cannot_be_read_leaves_its_state_unknown() -> None:
    """Case 66: the failed read is in Ready, scheduling is Unknown, nothing is created on doubt."""
    async with open_world() as world:
        world.plane.fail_next("get", "pods", 500, times=2)
        await world.create(named("warm-1"))
        assert says(world) == (
            "False",
            "ReconcilerError",
            "Error seen: pod get failed: injected failure",
        )
        scheduled = condition(world.get(), "PodScheduled")
        assert scheduled["message"] == "Pod state is unknown. Pod scheduling cannot be determined"
        assert pod_names(world) == []
        assert annotation(world) == "warm-1"
        await world.advance(1.0)
        assert pod_names(world) == ["sb-1"]
        await world.run_pod()
        assert says(world)[0] == "True"


@pytest.mark.case(66)
async def test_a_pod_behind_a_collision_that_cannot_be_read_is_an_error() -> None:
    """Case 66: the create says that a Pod exists and the GET of it fails: told, tried again."""
    async with open_world() as world:
        await world.create(pod_body(labels=LEAVE))
        world.plane.fail_next("get", "pods", 503)
        await world.create(sandbox())
        assert says(world)[2] == (
            "Error seen: pod already exists but failed to fetch: injected failure"
        )
        await world.advance(0.005)
        assert world.pod()["metadata"]["ownerReferences"] == [controlled_by(world.get())]

"""Laws of subresources: status, scale, binding."""

from __future__ import annotations

import pytest

from tests.conformance.api import JSON_PATCH, Room
from tests.conformance.objects import pod, widget

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_spec_and_status_are_written_apart(room: Room) -> None:
    """A write to the one path leaves the half of the other as it is."""
    path = f"{room.widgets}/a"
    both = {"spec": {"size": 5}, "status": {"replicas": 5}}
    created = (await room.api.post(room.widgets, widget("a") | {"status": {"replicas": 9}})).ok()
    assert "status" not in created
    main = (await room.api.patch(path, both)).ok()
    assert main["spec"]["size"] == 5
    assert "status" not in main
    status = (await room.api.patch(f"{path}/status", {"spec": {"size": 1}, **both})).ok()
    assert status["spec"]["size"] == 5
    assert status["status"] == {"replicas": 5}
    replaced = {**status, "spec": {"size": 8}, "status": {"replicas": 6}}
    put = (await room.api.put(f"{path}/status", replaced)).ok()
    assert (put["spec"]["size"], put["status"]) == (5, {"replicas": 6})
    assert (await room.api.get(f"{path}/status")).ok() == put


async def test_a_status_write_leaves_metadata_alone(room: Room) -> None:
    """Labels and finalizers of a custom object cannot ride along on /status."""
    made = await room.widget("a")
    body = {"metadata": {"labels": {"k": "v"}}, "status": {"replicas": 1}}
    patched = (await room.api.patch(f"{room.widgets}/a/status", body)).ok()
    assert "labels" not in patched["metadata"]
    assert patched["metadata"]["generation"] == made["metadata"]["generation"]


async def test_a_status_write_of_what_is_equal_writes_nothing(room: Room) -> None:
    """A no-op status patch keeps the version."""
    await room.widget("a")
    path = f"{room.widgets}/a/status"
    body = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    first = await room.api.patch(path, body)
    assert (await room.api.patch(path, body)).version == first.version


async def test_status_members_are_cleared_by_null(room: Room) -> None:
    """A merge patch with null removes a member of status."""
    await room.widget("a")
    path = f"{room.widgets}/a/status"
    (await room.api.patch(path, {"status": {"replicas": 1, "selector": "x"}})).ok()
    assert (await room.api.patch(path, {"status": {"selector": None}})).ok()["status"] == {
        "replicas": 1
    }


async def test_scale_shows_and_sets_the_replicas(room: Room) -> None:
    """The Scale kind reads its paths from the definition and writes the spec."""
    path = f"{room.widgets}/a/scale"
    await room.widget("a", replicas=2)
    status = {"status": {"replicas": 1, "selector": "a=b"}}
    (await room.api.patch(f"{room.widgets}/a/status", status)).ok()
    scale = (await room.api.get(path)).ok()
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "a=b"}
    scale["spec"]["replicas"] = 4
    assert (await room.api.put(path, scale)).ok()["spec"] == {"replicas": 4}
    (await room.api.put(path, scale)).refused(409, "Conflict")
    (await room.api.patch(path, {"spec": {"replicas": 6}})).ok()
    made = (await room.api.get(f"{room.widgets}/a")).ok()
    assert made["spec"]["replicas"] == 6
    assert made["metadata"]["generation"] == 3


async def test_a_pod_is_bound_once(room: Room) -> None:
    """Binding sets the node and the PodScheduled condition; a second one conflicts."""
    await room.pod("p")
    path = f"{room.pods}/p/binding"

    def binding(node: str) -> dict[str, object]:
        return {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}}

    assert (await room.api.post(path, binding("n0"))).status == 201
    made = (await room.api.get(f"{room.pods}/p")).ok()
    assert made["spec"]["nodeName"] == "n0"
    conditions = {item["type"]: item["status"] for item in made["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"
    assert made["metadata"]["generation"] == 1
    status = (await room.api.post(path, binding("n1"))).refused(409, "Conflict")
    assert 'pod p is already assigned to node "n0"' in status["message"]


async def test_a_pod_status_can_be_patched_by_json_patch(room: Room) -> None:
    """JSON Patch works on subresources too."""
    await room.pod("p")
    steps = [{"op": "replace", "path": "/status/phase", "value": "Running"}]
    made = (await room.api.patch(f"{room.pods}/p/status", steps, JSON_PATCH)).ok()
    assert made["status"]["phase"] == "Running"


async def test_an_unknown_subresource_is_not_found(room: Room) -> None:
    """Only declared subresources exist."""
    await room.widget("a")
    assert (await room.api.get(f"{room.widgets}/a/nothing")).status == 404
    await room.config("c")
    assert (await room.api.patch(f"{room.maps}/c/status", {"status": {}})).status == 404


async def test_a_binding_brings_its_labels_and_annotations(room: Room) -> None:
    """The Pod has them besides its own."""
    await room.pod("p", labels={"a": "b"})
    metadata = {"name": "p", "labels": {"c": "d"}, "annotations": {"e": "f"}}
    target = {"kind": "Node", "name": "nowhere"}
    (await room.api.post(f"{room.pods}/p/binding", {"metadata": metadata, "target": target})).ok()
    bound = (await room.api.get(f"{room.pods}/p")).ok()["metadata"]
    assert (bound["labels"], bound["annotations"]) == ({"a": "b", "c": "d"}, {"e": "f"})


async def test_a_gated_pod_is_not_bound(room: Room) -> None:
    """Whoever holds a gate has to open it first."""
    gated = pod("p")
    gated["spec"]["schedulingGates"] = [{"name": "laws.dev/gate"}]
    (await room.api.post(room.pods, gated)).ok()
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "nowhere"}}
    reply = await room.api.post(f"{room.pods}/p/binding", body)
    assert "non-empty .spec.schedulingGates" in reply.refused(409, "Conflict")["message"]


async def test_a_status_of_a_pod_does_not_say_how_good_or_whose_it_is(room: Room) -> None:
    """Its quality of service, its owners and its deletion are decided elsewhere."""
    made = (await room.api.post(room.pods, pod("p"))).ok()
    quality = made["status"]["qosClass"]
    path = f"{room.pods}/p/status"
    metadata = {"ownerReferences": [{}], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    body = {"metadata": metadata, "status": None}
    patched = (await room.api.patch(path, body)).ok()
    assert patched["status"]["qosClass"] == quality
    put = (await room.api.put(path, {**patched, "status": {"phase": "Running"}})).ok()
    assert put["status"] == {"phase": "Running", "qosClass": quality}
    assert not {"ownerReferences", "deletionTimestamp"} & put["metadata"].keys()


async def test_the_record_of_a_custom_object_is_not_ended_by_its_status(room: Room) -> None:
    """Nothing of its metadata is taken."""
    made = await room.widget("w")
    body = {"metadata": {"managedFields": [{}]}, "status": {"replicas": 1}}
    after = (await room.api.patch(f"{room.widgets}/w/status", body)).ok()["metadata"]
    assert made["metadata"]["managedFields"][0] in after["managedFields"]

"""Objects of built-in kinds, good and bad, are answered as by kube-apiserver 1.36.

``kinds.json`` has a line for each: the path, what is posted, and what was answered. Nothing is
stored, and all of it is asked in the namespace ``default``. Addresses, node ports and what
admission mounts are left out of the comparison.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.conformance.api import APPLY, Api, Room
from tests.conformance.kinds import CASES, comparable
from tests.conformance.objects import pod

Json = dict[str, Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("number", range(len(CASES)))
async def test_an_object_of_a_built_in_kind(api: Api, number: int) -> None:
    """Code, causes and their texts; of an accepted object everything but its metadata."""
    path, body, answer = CASES[number]
    reply = await api.post(path, body, dryRun="All")
    assert reply.status == answer["code"], reply.body
    if reply.status == 201:
        assert comparable(reply.json) == answer["made"]
    elif reply.status == 422:
        found = reply.json["details"]["causes"]
        shown = sorted((one["field"], one["reason"], one["message"]) for one in found)
        known = [(one["field"], one["reason"], one["message"]) for one in answer["causes"]]
        assert shown == sorted(known)
    else:
        assert reply.message == answer["message"]


async def test_the_credentials_of_a_registry_are_read_however_deep(api: Api) -> None:
    """What is no JSON, or nests without end, is refused as any other text would be."""
    for text in (b"[" * 100_000, b"{", b"\xff"):
        data = {".dockerconfigjson": base64.b64encode(text).decode()}
        body = {
            "metadata": {"name": "x"},
            "type": "kubernetes.io/dockerconfigjson",
            "data": data,
        }
        reply = await api.post("/api/v1/namespaces/default/secrets", body, dryRun="All")
        refused = reply.refused(422, "Invalid")
        assert [one["field"] for one in refused["details"]["causes"]] == ["data[.dockerconfigjson]"]


def service(name: str, **spec: Any) -> Json:
    """Return a Service with one port."""
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def test_an_address_is_given_once(room: Room) -> None:
    """A second Service cannot have that of the first one; a Service without one gets its own."""
    path = f"{room.core}/services"
    first = (await room.api.post(path, service("a"))).ok()["spec"]
    second = (await room.api.post(path, service("b"))).ok()["spec"]
    assert second["clusterIP"] not in ("", first["clusterIP"])
    for address in (first["clusterIP"], "1.2.3.4"):
        reply = await room.api.post(path, service("c", clusterIP=address))
        refused = reply.refused(422, "Invalid")
        assert refused["details"]["causes"][0]["field"] == "spec.clusterIPs"


async def test_a_service_keeps_its_address(room: Room) -> None:
    """It never changes, whatever becomes of the type."""
    path = f"{room.core}/services"
    made = (await room.api.post(path, service("a", type="NodePort"))).ok()["spec"]
    changed = await room.api.patch(f"{path}/a", {"spec": {"clusterIP": "10.0.200.200"}})
    assert "may not change once set" in changed.refused(422, "Invalid")["message"]
    spec = (await room.api.patch(f"{path}/a", {"spec": {"type": "ClusterIP"}})).ok()["spec"]
    assert spec["clusterIP"] == made["clusterIP"]


async def test_a_node_port_is_given_once(room: Room) -> None:
    """A published Service gets one, and has none of another's until that one is gone."""
    path = f"{room.core}/services"
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP"}]
    made = (await room.api.post(path, service("a", type="NodePort", ports=ports))).ok()
    first, second = [one["nodePort"] for one in made["spec"]["ports"]]
    assert first == second
    taken = {"type": "LoadBalancer", "ports": [{"port": 81, "nodePort": first}]}
    for more in ({}, {"dryRun": "All"}):
        refused = (await room.api.post(path, service("b", **taken), **more)).refused(422, "Invalid")
        text = f"Invalid value: {first}: provided port is already allocated"
        assert [one["message"] for one in refused["details"]["causes"]] == [text]
    (await room.api.delete(f"{path}/a")).ok()
    (await room.api.post(path, service("b", **taken))).ok()
    plain = (await room.api.patch(f"{path}/b", {"spec": {"type": "ClusterIP"}})).ok()
    assert "nodePort" not in plain["spec"]["ports"][0]


async def test_a_port_keeps_its_node_port(room: Room) -> None:
    """It is that of its name, unless another one is asked for that is free and in the range."""
    path = f"{room.core}/services"
    other = (await room.api.post(path, service("a", type="NodePort"))).ok()["spec"]["ports"][0]
    own = (await room.api.post(path, service("b", type="NodePort"))).ok()["spec"]["ports"][0]
    assert own["nodePort"] != other["nodePort"]
    for number, text in (
        (other["nodePort"], "already allocated"),
        (29999, "not in the valid range. The range of valid ports is 30000-32767"),
    ):
        change = {"spec": {"ports": [{**own, "nodePort": number}]}}
        assert (
            text in (await room.api.patch(f"{path}/b", change)).refused(422, "Invalid")["message"]
        )
    change = {"spec": {"ports": [{"port": 82}]}}
    kept = (await room.api.patch(f"{path}/b", change)).ok()["spec"]["ports"][0]
    assert (kept["port"], kept["nodePort"]) == (82, own["nodePort"])
    moved = [{"name": "a", "port": 83, "nodePort": own["nodePort"]}, {"name": "b", "port": 82}]
    ports = (await room.api.patch(f"{path}/b", {"spec": {"ports": moved}})).ok()["spec"]["ports"]
    swapped = [{"name": "b", "port": 83, "nodePort": own["nodePort"]}, {"name": "a", "port": 82}]
    assert ports[0]["nodePort"] == own["nodePort"]
    ports = (await room.api.patch(f"{path}/b", {"spec": {"ports": swapped}})).ok()["spec"]["ports"]
    assert ports[0]["nodePort"] == own["nodePort"] != ports[1]["nodePort"]


async def test_a_share_is_read_however_long(api: Api) -> None:
    """A percentage of thousands of digits is more than all of them, as a short one is."""
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    body = {"metadata": {"name": "x"}, "spec": {"minAvailable": "9" * 5000 + "%"}}
    refused = (await api.post(path, body, dryRun="All")).refused(422, "Invalid")
    assert [one["field"] for one in refused["details"]["causes"]] == ["spec.minAvailable"]


async def test_a_pod_has_the_priority_and_the_overhead_of_its_classes(room: Room) -> None:
    """Both are looked up when it is created, and nobody sets them without a class."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    runtimes = "/apis/node.k8s.io/v1/runtimeclasses"
    name = room.name
    urgent = {"metadata": {"name": name}, "value": 7, "preemptionPolicy": "Never"}
    (await room.api.post(classes, urgent)).ok()
    overhead = {"podFixed": {"cpu": "250m"}}
    runtime = {"metadata": {"name": name}, "handler": "h", "overhead": overhead}
    (await room.api.post(runtimes, runtime)).ok()
    body = pod("p")
    body["spec"] |= {"priorityClassName": name, "runtimeClassName": name}
    spec = (await room.api.post(room.pods, body)).ok()["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")
    assert spec["overhead"] == {"cpu": "250m"}
    await room.api.delete(f"{classes}/{name}")
    await room.api.delete(f"{runtimes}/{name}")


async def test_what_is_applied_is_stored_in_its_one_form(room: Room) -> None:
    """Quantities, times and empty fields of an applied object look as those of a created one."""
    body = pod("p")
    limits = {"cpu": "1000m", "memory": "1024Mi"}
    body["spec"]["containers"][0] |= {"resources": {"limits": limits}, "env": []}
    reply = await room.api.ask(
        "PATCH", f"{room.pods}/p", body, content=APPLY, fieldManager="me", force="true"
    )
    container = reply.ok()["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}
    assert "env" not in container

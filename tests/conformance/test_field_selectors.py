"""Laws of field selectors: which fields they may name, and what absent ones count as."""

from __future__ import annotations

import pytest

from lean_sandbox.local import recorded
from tests.conformance.api import Api, Room, answers
from tests.conformance.kinds import Json, Sample, samples
from tests.conformance.objects import GROUP, pod

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _selectable(sample: Sample) -> set[str]:
    kind = sample.kind
    for group in recorded.discovery():
        if group["metadata"].get("name", "") == kind.group:
            for resource in group["versions"][0]["resources"]:
                if resource["resource"] == kind.plural:
                    return set(resource["selectable"])
    raise KeyError(kind.qualified_plural)


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.kind.qualified_plural)
async def test_a_selector_may_name_what_a_real_server_lets_it_name(
    api: Api, room: Room, sample: Sample
) -> None:
    """Every field that any kind knows is asked of every kind."""
    path = sample.path(room.name)
    known = {field for each in samples() for field in _selectable(each)} | {"spec.nope", ".a", ""}
    taken = set()
    for field in known:
        reply = await api.get(path, fieldSelector=f"{field}=x", limit="1")
        assert reply.status in (200, 400), reply.body
        if reply.status == 200:
            taken.add(field)
    assert taken == _selectable(sample)


async def _names(room: Room, path: str, selector: str) -> set[str]:
    listed = (await room.api.get(path, fieldSelector=selector)).ok()
    return {item["metadata"]["name"] for item in listed["items"]}


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("spec.hostNetwork=false", {"a"}),
        ("spec.hostNetwork=true", {"b"}),
        ("spec.hostNetwork=", set()),
        ("spec.hostNetwork!=true", {"a"}),
        ("status.podIPs=", {"a", "b"}),
        ("spec.nodeName=", {"a", "b"}),
        ("spec.restartPolicy==Never", {"b"}),
        ("status.phase=Pending,metadata.name=b", {"b"}),
        ("metadata.name=a,", {"a"}),
        (r"metadata.name=a\,b", set()),
    ],
)
async def test_fields_of_pods_select(room: Room, selector: str, found: set[str]) -> None:
    """What is absent counts as false, as the default or as nothing."""
    await room.pod("a")
    second = pod("b")
    second["spec"] |= {"hostNetwork": True, "restartPolicy": "Never"}
    (await room.api.post(room.pods, second)).ok()
    assert await _names(room, room.pods, selector) == found


@pytest.mark.parametrize(
    "selector",
    ["status.phase", "metadata.name in (a)", r"metadata.name=a\x", "metadata.name=a=b", "=x"],
)
async def test_what_is_no_selector_is_refused(room: Room, selector: str) -> None:
    """Neither a lone field nor another operator, nor an unknown escape."""
    (await room.api.get(room.pods, fieldSelector=selector)).refused(400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("spec.type=ClusterIP", {"a", "b"}),
        ("spec.clusterIP=None", {"b"}),
        ("spec.type=ExternalName", {"c"}),
        ("spec.clusterIP=", {"c"}),
    ],
)
async def test_fields_of_services_select(room: Room, selector: str, found: set[str]) -> None:
    """The type that a Service has by default is selected, too."""
    ports = {"ports": [{"port": 80}]}
    external = {"type": "ExternalName", "externalName": "a.dev"}
    for name, spec in (("a", ports), ("b", {**ports, "clusterIP": "None"}), ("c", external)):
        body = {"metadata": {"name": name}, "spec": spec}
        (await room.api.post(f"{room.core}/services", body)).ok()
    assert await _names(room, f"{room.core}/services", selector) == found


_CORE = "/api/v1"
_NEW = "/apis/events.k8s.io/v1"


@pytest.mark.parametrize(
    ("group", "selector", "found"),
    [
        (_CORE, "involvedObject.name=some", {"a", "b"}),
        (_CORE, "reportingComponent=", {"a"}),
        (_CORE, "reportingComponent=tests/conformance", {"b"}),
        (_CORE, "source=tests", {"a"}),
        (_CORE, "source=tests/conformance", {"b"}),
        (_CORE, "type=Warning", {"b"}),
        (_NEW, "regarding.name=some", {"a", "b"}),
        (_NEW, "regarding.name=other", set()),
        (_NEW, "reportingController=", {"a"}),
        (_NEW, "reportingController=tests/conformance", {"b"}),
        (_NEW, "type=Warning", {"b"}),
    ],
)
async def test_both_kinds_of_event_select(
    room: Room, group: str, selector: str, found: set[str]
) -> None:
    """Each by its own names, whichever of the two created the Event."""
    for sample in samples():
        if sample.kind.plural == "events":
            body: Json = sample.body("b" if sample.kind.group else "a", room.name)
            (await room.api.post(sample.path(room.name), body)).ok()
    assert await _names(room, f"{group}/namespaces/{room.name}/events", selector) == found


async def test_nodes_select_by_whether_they_take_pods(room: Room) -> None:
    """A Node that does not say so is schedulable."""
    for name, spec in (("open", {}), ("closed", {"unschedulable": True})):
        body = {"metadata": {"name": f"{room.name}-{name}"}, "spec": spec}
        (await room.api.post("/api/v1/nodes", body)).ok()
    for value, name in (("false", "open"), ("true", "closed")):
        found = await _names(room, "/api/v1/nodes", f"spec.unschedulable={value}")
        ours = {each for each in found if each.startswith(room.name)}
        assert ours == {f"{room.name}-{name}"}
    for name in ("open", "closed"):
        (await room.api.delete(f"/api/v1/nodes/{room.name}-{name}")).ok()


async def test_fields_of_custom_kinds_select(room: Room) -> None:
    """Text, numbers and flags; what is absent is the empty text."""
    group = f"selectors.{GROUP}"
    types = {"s": "string", "i": "integer", "b": "boolean"}
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {name: {"type": type_} for name, type_ in types.items()},
            }
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "selectableFields": [{"jsonPath": f".spec.{name}"} for name in types],
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"selected.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "selected", "kind": "Selected"},
            "versions": [version],
        },
    }
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    (await room.api.post(definitions, definition)).ok()
    path = f"/apis/{group}/v1/namespaces/{room.name}/selected"
    await answers(room.api, path)
    for name, spec in (
        ("a", {"s": "x", "i": 3, "b": True}),
        ("b", {}),
        ("c", {"s": "", "i": 0, "b": False}),
    ):
        body = {"metadata": {"name": name}, "spec": spec}
        (await room.api.post(path, {"apiVersion": f"{group}/v1", "kind": "Selected", **body})).ok()
    expected = {
        "spec.s=x": {"a"},
        "spec.s=": {"b", "c"},
        "spec.i=3": {"a"},
        "spec.i=": {"b"},
        "spec.i=0": {"c"},
        "spec.b=true": {"a"},
        "spec.b=false": {"c"},
        "spec.b=": {"b"},
    }
    found = {selector: await _names(room, path, selector) for selector in expected}
    (await room.api.delete(f"{definitions}/selected.{group}")).ok()
    assert found == expected

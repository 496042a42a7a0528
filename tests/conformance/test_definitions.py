"""Laws of CustomResourceDefinitions and of what the server says about itself."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.conformance.api import Api, Reply, Room, answers, is_deleting, until
from tests.conformance.objects import GROUP, WIDGET_DEFINITION, WIDGETS

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def gadgets() -> Json:
    """Return the definition of a second kind."""
    made = copy.deepcopy(WIDGET_DEFINITION)
    made["metadata"]["name"] = f"gadgets.{GROUP}"
    made["spec"]["names"] = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}
    return made


async def created(api: Api, path: str, body: Json) -> Json:
    """Create the first object of a kind, as soon as the server takes one."""
    replies: list[Reply] = []

    async def check() -> bool:
        replies.append(await api.post(path, body))
        return replies[-1].status == 201

    await until(check)
    return dict(replies[-1].json)


async def test_a_definition_brings_a_kind_and_takes_it_away(room: Room) -> None:
    """Established and served; after its deletion its objects and its path are gone."""
    api = room.api
    made = (await api.post(_CRDS, gadgets())).ok()
    assert made["spec"]["names"]["listKind"] == "GadgetList"
    path = f"{WIDGETS}/namespaces/{room.name}/gadgets"
    await answers(api, path)
    crd = (await api.get(f"{_CRDS}/gadgets.{GROUP}")).ok()
    conditions = {item["type"]: item["status"] for item in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert crd["status"]["acceptedNames"]["kind"] == "Gadget"
    assert crd["status"]["storedVersions"] == ["v1"]
    gadget = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Gadget",
        "metadata": {"name": "g", "finalizers": ["laws.dev/hold"]},
        "spec": {"size": 1},
    }
    await created(api, path, gadget)
    (await api.delete(f"{_CRDS}/gadgets.{GROUP}")).ok()
    await until(lambda: is_deleting(api, f"{path}/g"))
    (await api.patch(f"{path}/g", {"metadata": {"finalizers": None}})).ok()
    await answers(api, f"{_CRDS}/gadgets.{GROUP}", 404)
    await answers(api, path, 404)


async def test_a_watch_ends_with_its_definition_and_its_versions_are_forgotten(room: Room) -> None:
    """The last event is that of the last object; a definition made anew starts a new history."""
    api = room.api
    definition = gadgets()
    definition["metadata"]["name"] = f"gears.{GROUP}"
    definition["spec"]["names"] = {"plural": "gears", "singular": "gear", "kind": "Gear"}
    (await api.post(_CRDS, definition)).ok()
    path = f"{WIDGETS}/namespaces/{room.name}/gears"
    await answers(api, path)
    body: Json = {"apiVersion": f"{GROUP}/v1", "kind": "Gear", "metadata": {"name": "g"}}
    made = await created(api, path, {**body, "spec": {"size": 1}})
    before = made["metadata"]["resourceVersion"]
    async with api.watch(path, resourceVersion=before) as watch:
        (await api.delete(f"{_CRDS}/gears.{GROUP}")).ok()
        seen = [event["type"] for event in await watch.rest()]
    assert seen == ["DELETED"]
    await answers(api, path, 404)
    (await api.post(_CRDS, definition)).ok()
    await answers(api, path)
    async with api.watch(path, resourceVersion=before) as watch:
        (event,) = await watch.rest()
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410
    (await api.delete(f"{_CRDS}/gears.{GROUP}")).ok()


async def test_a_changed_schema_holds_for_the_next_write(room: Room) -> None:
    """Fields added to the schema are kept from then on; stored versions keep their place."""
    api = room.api
    definition = gadgets()
    definition["metadata"]["name"] = f"gizmos.{GROUP}"
    definition["spec"]["names"] = {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo"}
    (await api.post(_CRDS, definition)).ok()
    path = f"{WIDGETS}/namespaces/{room.name}/gizmos"
    await answers(api, path)
    gizmo = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Gizmo",
        "metadata": {"name": "g"},
        "spec": {"size": 1, "colour": "red"},
    }
    assert "colour" not in (await created(api, path, gizmo))["spec"]
    at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/colour"
    change = [{"op": "add", "path": at, "value": {"type": "string"}}]
    patched = await api.patch(f"{_CRDS}/gizmos.{GROUP}", change, "application/json-patch+json")
    assert patched.ok()["metadata"]["generation"] == 2

    async def is_kept() -> bool:
        reply = await api.patch(f"{path}/g", {"spec": {"colour": "red"}})
        return "colour" in reply.ok()["spec"]

    await until(is_kept)
    (await api.delete(f"{_CRDS}/gizmos.{GROUP}")).ok()


async def test_discovery_lists_kinds_with_their_subresources(api: Api) -> None:
    """Groups, versions and resources, one by one and aggregated."""
    groups = (await api.get("/apis")).ok()["groups"]
    assert GROUP in {group["name"] for group in groups}
    resources = {item["name"]: item for item in (await api.get(WIDGETS)).ok()["resources"]}
    assert {"widgets", "widgets/status", "widgets/scale"} <= set(resources)
    assert resources["widgets"]["kind"] == "Widget"
    assert resources["widgets"]["namespaced"] is True
    assert {"get", "list", "watch", "create", "patch", "delete"} <= set(
        resources["widgets"]["verbs"]
    )
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    reply = await api.get("/apis", accept=f"{accept},application/json")
    assert reply.ok()["kind"] == "APIGroupDiscoveryList"
    assert GROUP in {item["metadata"]["name"] for item in reply.json["items"]}
    core = {item["name"] for item in (await api.get("/api/v1")).ok()["resources"]}
    assert {"pods", "pods/status", "pods/binding", "serviceaccounts/token"} <= core


async def test_the_server_says_its_version_and_that_it_is_well(api: Api) -> None:
    """/version and the health paths."""
    assert (await api.get("/version")).ok()["gitVersion"].startswith("v1.")
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await api.get(path)).body == b"ok"


async def test_openapi_describes_custom_kinds(api: Api) -> None:
    """The v3 index leads to a document with the schema of the kind."""
    path = f"apis/{GROUP}/v1"

    async def is_listed() -> bool:
        return path in (await api.get("/openapi/v3")).ok()["paths"]

    await until(is_listed)
    index = (await api.get("/openapi/v3")).ok()["paths"]
    document = (await api.get(index[path]["serverRelativeURL"].partition("?")[0])).ok()
    assert any(name.endswith(".Widget") for name in document["components"]["schemas"])


async def test_a_definition_that_makes_no_sense_is_refused(api: Api) -> None:
    """The name has to be plural.group."""
    wrong = gadgets()
    wrong["metadata"]["name"] = "other.name"
    (await api.post(_CRDS, wrong)).refused(422, "Invalid")

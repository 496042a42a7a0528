"""Laws of discovery and OpenAPI documents."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from lean_sandbox.local import recorded
from lean_sandbox.local.http import documents
from lean_sandbox.local.http.documents import openapi_document, openapi_index
from lean_sandbox.local.kinds import builtin_kinds, make_kind, read_definition
from tests.model.crds.definitions import definitions

Json = dict[str, Any]


_BUILT_IN = ("namespaces", "pods", "deployments.apps")
KINDS = [
    *(kind for kind in builtin_kinds() if kind.qualified_plural in _BUILT_IN),
    *(
        kind
        for definition in definitions().values()
        for kind in read_definition(msgspec.json.encode(definition["spec"])).kinds
    ),
]


def _document(path: str) -> Json:
    found = openapi_document(KINDS, path)
    assert found is not None
    return found


def test_groups_and_their_preferred_version() -> None:
    """`/apis` names every group but the core one, `/apis/<group>` one of them."""
    groups = documents.group_list(KINDS)["groups"]
    names = [group["name"] for group in groups]
    assert names == ["apps", "agents.x-k8s.io", "extensions.agents.x-k8s.io"]
    found = documents.api_group(KINDS, "agents.x-k8s.io")
    assert found is not None
    assert found["preferredVersion"] == {
        "groupVersion": "agents.x-k8s.io/v1beta1",
        "version": "v1beta1",
    }
    assert documents.api_group(KINDS, "nope") is None
    assert documents.api_versions("h:1")["versions"] == ["v1"]


@pytest.mark.parametrize("path", ["api", "apis"])
def test_built_in_kinds_are_described_as_a_real_server_does(path: str) -> None:
    """Discovery is the recording without the kinds and subresources that are not served."""
    kinds = list(builtin_kinds())
    served = {(kind.group, kind.version, kind.plural): kind for kind in kinds}
    said = documents.aggregated_discovery(kinds, is_core=path == "api")["items"]
    expected = []
    for group in recorded.discovery():
        name = group["metadata"].get("name", "")
        versions = []
        for version in group["versions"]:
            resources = []
            for recording in version["resources"]:
                resource = dict(recording)
                kind = served.get((name, version["version"], resource["resource"]))
                resource.pop("selectable", None)
                subresources = resource.pop("subresources", [])
                if kind is None:
                    continue
                if kept := [sub for sub in subresources if sub["subresource"] not in kind.unserved]:
                    resource["subresources"] = kept
                resources.append(resource)
            if resources:
                versions.append({**version, "resources": resources, "freshness": "Current"})
        if versions and bool(name) is (path == "apis"):
            expected.append({"metadata": group["metadata"], "versions": versions})
    assert said == expected


def test_the_most_stable_version_is_preferred() -> None:
    """Versions go by stage and number, groups of definitions by name after the built-in ones."""
    versions = ["foo1", "v1", "v10", "v11alpha2", "v1beta1", "v2", "v2beta1", "v2beta10", "foo10"]
    kinds = [make_kind("z.dev", name, "a", "A", is_custom=True) for name in versions]
    more = [make_kind("b.dev", "v1", "a", "A", is_custom=True), *KINDS]
    groups = documents.group_list([*kinds, *more])["groups"]
    order = ["apps", "agents.x-k8s.io", "b.dev", "extensions.agents.x-k8s.io", "z.dev"]
    assert [group["name"] for group in groups] == order
    assert [version["version"] for version in groups[-1]["versions"]] == [
        "v10", "v2", "v1", "v2beta10", "v2beta1", "v1beta1", "v11alpha2", "foo1", "foo10",
    ]  # fmt: skip


def test_a_list_of_resources_names_subresources_with_the_kind_of_their_body() -> None:
    """A list names subresources with the kind of their body."""
    found = documents.resource_list(KINDS, "", "v1")
    assert found is not None
    entries = {entry["name"]: entry for entry in found["resources"]}
    assert entries["pods/eviction"]["kind"] == "Eviction"
    assert entries["pods/eviction"]["group"] == "policy"
    assert entries["pods/binding"]["verbs"] == ["create"]
    assert entries["pods"]["shortNames"] == ["po"]
    assert "deletecollection" not in entries["namespaces"]["verbs"]
    assert documents.resource_list(KINDS, "agents.x-k8s.io", "v1alpha1") is None


def test_aggregated_discovery_says_the_same_as_the_single_lists() -> None:
    """Both styles name the same resources, subresources and verbs."""
    for is_core in (True, False):
        items = documents.aggregated_discovery(KINDS, is_core=is_core)["items"]
        assert items
        for item in items:
            group = item["metadata"].get("name", "")
            for version in item["versions"]:
                found = documents.resource_list(KINDS, group, version["version"])
                assert found is not None
                single = {entry["name"]: entry["verbs"] for entry in found["resources"]}
                both = {}
                for resource in version["resources"]:
                    both[resource["resource"]] = resource["verbs"]
                    for sub in resource.get("subresources", ()):
                        both[f"{resource['resource']}/{sub['subresource']}"] = sub["verbs"]
                assert both == single


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
         True),
        ("application/json; as=APIGroupDiscoveryList; v=v2; g=apidiscovery.k8s.io", True),
        ("application/json", False),
        ("*/*", False),
        ("", False),
        ("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList", False),
    ],
)  # fmt: skip
def test_aggregated_discovery_is_negotiated(*, accept: str, wanted: bool) -> None:
    """Only an Accept header that asks for it gets the aggregated form."""
    assert documents.wants_aggregated(accept) is wanted


def test_version_is_one_that_clients_can_parse() -> None:
    """`gitVersion` is a semantic version with our name as build metadata."""
    info = documents.version_info()
    assert re.fullmatch(r"v\d+\.\d+\.\d+\+lean", info["gitVersion"])
    assert info["gitVersion"].startswith(f"v{info['major']}.{info['minor']}.")


def test_index_names_every_document_with_its_hash() -> None:
    """The index leads to documents; hashes change when a schema does."""
    index = openapi_index(KINDS)["paths"]
    assert set(index) == {
        "api/v1",
        "apis/apps/v1",
        "apis/agents.x-k8s.io/v1beta1",
        "apis/extensions.agents.x-k8s.io/v1beta1",
    }
    path = "apis/agents.x-k8s.io/v1beta1"
    assert index[path]["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=")
    changed = [
        make_kind("agents.x-k8s.io", "v1beta1", "sandboxes", "Sandbox", is_custom=True, schema={})
    ]
    assert openapi_index(changed)["paths"][path] != index[path]
    assert openapi_document(KINDS, "apis/nope/v1") is None


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return found.union(*map(_references, value.values()))
    if isinstance(value, list):
        return set().union(*map(_references, value))
    return set()


@pytest.mark.parametrize("path", ["api/v1", "apis/apps/v1", "apis/agents.x-k8s.io/v1beta1"])
def test_every_reference_leads_somewhere(path: str) -> None:
    """No dangling `$ref`."""
    document = _document(path)
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert _references(document) <= known


def test_kinds_are_found_by_path_and_by_schema() -> None:
    """What `kubectl explain` looks for: the path's GET operation and the schema name the kind."""
    document = _document("apis/agents.x-k8s.io/v1beta1")
    identity = {"group": "agents.x-k8s.io", "kind": "Sandbox", "version": "v1beta1"}
    base = "/apis/agents.x-k8s.io/v1beta1/namespaces/{namespace}/sandboxes"
    assert document["paths"][base]["get"]["x-kubernetes-group-version-kind"] == identity
    schema = document["components"]["schemas"]["io.x-k8s.agents.v1beta1.Sandbox"]
    assert schema["x-kubernetes-group-version-kind"] == [identity]
    containers = schema["properties"]["spec"]["properties"]["podTemplate"]["properties"]["spec"][
        "properties"
    ]["containers"]
    assert containers["items"]["properties"]["image"] == {"type": "string"}


def test_server_side_field_validation_is_announced() -> None:
    """Kubectl leaves unknown fields to the server when PATCH takes `fieldValidation`."""
    for path, name in (("api/v1", "pods"), ("apis/agents.x-k8s.io/v1beta1", "sandboxes")):
        item = _document(path)["paths"][f"/{path}/namespaces/{{namespace}}/{name}/{{name}}"]
        assert "fieldValidation" in {entry["name"] for entry in item["patch"]["parameters"]}
        strategic = (
            "application/strategic-merge-patch+json" in item["patch"]["requestBody"]["content"]
        )
        assert strategic is (name == "pods")


def test_fields_are_described_and_tell_how_to_merge() -> None:
    """Built-in types have descriptions and strategic merge keys."""
    schemas = _document("api/v1")["components"]["schemas"]
    env = schemas["io.k8s.api.core.v1.Container"]["properties"]["env"]
    assert env["description"].startswith("List of environment variables")
    assert env["x-kubernetes-patch-merge-key"] == "name"
    volumes = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["volumes"]
    assert volumes["x-kubernetes-patch-strategy"] == "merge,retainKeys"

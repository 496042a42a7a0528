"""The recording of kube-apiserver's kinds holds together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lean_sandbox.local import recorded
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kinds import builtin_kinds
from tests.conformance.servers import Embedded

_SCALARS = {"string", "int32", "int64", "bool", "bytes", "double"}


def _resources() -> Iterator[tuple[str, dict[str, Any]]]:
    for group in recorded.discovery():
        for version in group["versions"]:
            name = group["metadata"].get("name")
            api_version = "/".join(filter(None, (name, version["version"])))
            yield from ((api_version, resource) for resource in version["resources"])


def test_every_resource_has_its_schema_and_its_columns() -> None:
    """Whatever can be listed can be shown, checked and described."""
    for api_version, resource in _resources():
        component = recorded.component_of(api_version, resource["responseKind"]["kind"])
        assert recorded.linked_schema(component)["type"] == "object"
        group = api_version.rpartition("/")[0]
        name = ".".join(filter(None, (resource["resource"], group)))
        assert (name in recorded.columns()) == ("list" in resource["verbs"])


def test_every_type_of_a_message_is_recorded() -> None:
    """A decoder never meets a message that it does not know."""
    for component, fields in recorded.protobuf().items():
        for _, name, type_, _ in fields:
            known = type_ in _SCALARS or type_ in recorded.protobuf() or type_.endswith("Watch")
            assert known, f"{component}.{name}: {type_}"


def test_schemas_refer_to_what_they_share() -> None:
    """A recursive type is a circle of the same dicts; empty values of Go are no defaults."""
    component = recorded.component_of("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    version = recorded.linked_schema(component)["properties"]["spec"]["properties"]["versions"]
    schema = version["items"]["properties"]["schema"]["properties"]["openAPIV3Schema"]
    assert schema["properties"]["not"] is schema
    pod = recorded.linked_schema(recorded.component_of("v1", "Pod"))
    port = recorded.linked_schema("io.k8s.api.core.v1.ContainerPort")
    assert "default" not in pod["properties"]["spec"]
    assert port["properties"]["protocol"]["default"] == "TCP"


def test_flags_say_what_go_leaves_out() -> None:
    """A pointer keeps its empty value, a plain field of a JSON object does not."""
    flags = recorded.flags("io.k8s.api.core.v1.PodSpec")
    assert flags["hostNetwork"] == "o"
    assert flags["terminationGracePeriodSeconds"] == "po"
    assert "emptyDir" in recorded.flags("io.k8s.api.core.v1.Volume")


async def test_discovery_names_the_reviews_that_are_answered() -> None:
    """What can only be created is listed if, and only if, a POST finds it."""
    listed = {(kind.api_version, kind.plural) for kind in builtin_kinds() if kind.is_review}
    found = set()
    async with ControlPlane(crds=[]) as plane, Embedded(plane).api() as api:
        for api_version, resource in _resources():
            if resource["verbs"] != ["create"]:
                continue
            base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            place = "/namespaces/default" if resource["scope"] == "Namespaced" else ""
            if (await api.post(f"{base}{place}/{resource['resource']}", {})).status != 404:
                found.add((api_version, resource["resource"]))
    assert found == listed

"""Resource declarations and the paths made of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightkube.core.resource import GlobalResource
from lightkube.resources import (
    apps_v1,
    autoscaling_v2,
    coordination_v1,
    core_v1,
    events_v1,
    networking_v1,
)

from lean_sandbox.kube import resources
from lean_sandbox.kube.errors import NotFound
from lean_sandbox.kube.resources import Resource, path


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (resources.PODS, core_v1.Pod),
        (resources.SERVICES, core_v1.Service),
        (resources.PVCS, core_v1.PersistentVolumeClaim),
        (resources.NAMESPACES, core_v1.Namespace),
        (resources.NODES, core_v1.Node),
        (resources.EVENTS, events_v1.Event),
        (resources.LEASES, coordination_v1.Lease),
        (resources.DEPLOYMENTS, apps_v1.Deployment),
        (resources.HPAS, autoscaling_v2.HorizontalPodAutoscaler),
        (resources.NETWORKPOLICIES, networking_v1.NetworkPolicy),
    ],
)
def test_our_declarations_equal_lightkubes(ours: Resource, theirs: Any) -> None:
    """Group, version, plural, kind and scope are those of lightkube's generated classes."""
    info = theirs._api_info
    assert (ours.group, ours.version, ours.plural, ours.kind) == (
        info.resource.group,
        info.resource.version,
        info.plural,
        info.resource.kind,
    )
    assert ours.namespaced is not issubclass(theirs, GlobalResource)
    assert ours.api_version == info.resource.api_version


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((resources.PODS,), "/api/v1/pods"),
        ((resources.PODS, "a"), "/api/v1/namespaces/a/pods"),
        ((resources.PODS, "a", "b", "status"), "/api/v1/namespaces/a/pods/b/status"),
        ((resources.NODES, "ignored", "x.y"), "/api/v1/nodes/x.y"),
        ((resources.SANDBOXES, "a", "b"), "/apis/agents.x-k8s.io/v1beta1/namespaces/a/sandboxes/b"),
        (
            (resources.SANDBOXCLAIMS, "a"),
            "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/a/sandboxclaims",
        ),
    ],
)
def test_paths_are_those_of_the_api(arguments: tuple[Any, ...], expected: str) -> None:
    """Core and named groups, collections, objects and subresources."""
    assert path(*arguments) == expected


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2Fb", "a?b", "A", "a.", "-", "a" * 254])
def test_a_name_that_no_object_has_is_not_asked_for(name: str) -> None:
    """An empty name would mean a collection, dots would climb, slashes reach a subresource."""
    with pytest.raises(NotFound, match="cannot be the name"):
        path(resources.PODS, "a", name)
    with pytest.raises(NotFound, match="cannot be the namespace"):
        path(resources.PODS, name, "a")


@given(st.text(min_size=1))
def test_a_name_stays_as_it_is_or_is_refused(name: str) -> None:
    """Whatever is sent is one segment of lower-case letters, digits, hyphens and dots."""
    prefix = "/api/v1/namespaces/a/pods/"
    try:
        result = path(resources.PODS, "a", name)
    except NotFound:
        return
    assert result == prefix + name
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    assert name not in (".", "..")


def test_names_for_people_and_rbac() -> None:
    """The qualified name has the group behind the plural."""
    assert resources.PODS.qualified == "pods"
    assert resources.SANDBOXES.qualified == "sandboxes.agents.x-k8s.io"

"""Labels derived from targets."""

from __future__ import annotations

import pytest

from lean_sandbox.kube.telemetry import Label, label_of


@pytest.mark.parametrize(
    ("method", "target", "verb", "resource"),
    [
        ("GET", "/api/v1/pods", "list", "pods"),
        ("GET", "/api/v1/namespaces/a/pods?limit=1", "list", "pods"),
        ("GET", "/api/v1/pods?watch=1&x=y", "watch", "pods"),
        ("GET", "/api/v1/namespaces/a", "get", "namespaces"),
        ("GET", "/api/v1/namespaces", "list", "namespaces"),
        ("GET", "/api/v1/nodes/n", "get", "nodes"),
        ("PATCH", "/apis/g.io/v1/namespaces/a/things/t/status", "patch", "things.g.io/status"),
        ("POST", "/apis/g.io/v1/namespaces/a/things", "create", "things.g.io"),
        ("PUT", "/apis/g.io/v1/things/t", "update", "things.g.io"),
        ("DELETE", "/api/v1/namespaces/a/pods/p", "delete", "pods"),
        ("GET", "/readyz", "get", "nonresource"),
        ("GET", "/apis/g.io/v1", "get", "nonresource"),
        ("GET", "/", "get", "nonresource"),
    ],
)
def test_labels_never_hold_names(method: str, target: str, verb: str, resource: str) -> None:
    """Verb and resource come from the shape of the path; object names never get into metrics."""
    assert label_of(method, target) == Label(verb, resource)

"""A stand-in for metrics.k8s.io: a kind of custom objects, which a test writes."""

from __future__ import annotations

from typing import Any

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.model.names import name_hash
from tests.support.world import HASH_LABEL, NS

__all__ = ["METRICS_API", "use_cpu"]

Json = dict[str, Any]
_PLURAL = "pods.metrics.k8s.io"
METRICS_API: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": _PLURAL,
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "metrics.k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "pods", "singular": "pod", "kind": "PodMetrics"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def use_cpu(plane: ControlPlane, pod: str, *cpu: str) -> None:
    """Say how much CPU each container of a Pod uses; nothing: the Pod is not sampled."""
    if plane.store.find(_PLURAL, NS, pod) is not None:
        plane.store.delete(_PLURAL, NS, pod)
    if not cpu:
        return
    labels = {HASH_LABEL: name_hash(pod)}
    plane.store.create(
        {
            "apiVersion": "metrics.k8s.io/v1beta1",
            "kind": "PodMetrics",
            "metadata": {"name": pod, "namespace": NS, "labels": labels},
            "containers": [
                {"name": f"c-{number}", "usage": {"cpu": one}} for number, one in enumerate(cpu)
            ],
        }
    )

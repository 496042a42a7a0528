"""The objects that laws of the API are about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

GROUP = "laws.lean-sandbox.dev"
WIDGETS = f"/apis/{GROUP}/v1"

WIDGET_DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "selectableFields": [{"jsonPath": ".spec.mode"}],
                "additionalPrinterColumns": [
                    {
                        "name": "Ready",
                        "type": "string",
                        "jsonPath": ".status.conditions[?(@.type=='Ready')].status",
                    },
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "properties": {
                                    "size": {"type": "integer"},
                                    "replicas": {"type": "integer"},
                                    "mode": {
                                        "type": "string",
                                        "default": "Fast",
                                        "enum": ["Fast", "Slow"],
                                    },
                                    "tags": {"type": "array", "items": {"type": "string"}},
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer"},
                                    "selector": {"type": "string"},
                                    "conditions": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "properties": {
                                                "type": {"type": "string"},
                                                "status": {"type": "string"},
                                            },
                                        },
                                    },
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}


def widget(name: str, *, metadata: Json | None = None, **spec: Any) -> Json:
    """Return a Widget."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"size": 1, **spec},
    }


def config(
    name: str, data: Mapping[str, str] | None = None, *, metadata: Json | None = None
) -> Json:
    """Return a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **(metadata or {})},
        "data": dict(data or {}),
    }


def pod(name: str, **metadata: Any) -> Json:
    """Return a Pod that no scheduler of a real cluster touches."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "busybox"}],
        },
    }


def owner(obj: Json, **more: Any) -> Json:
    """Return a reference to an owner."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        **more,
    }

"""What several CustomResourceDefinitions share: kinds of schemas, conditions, templates."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from tests.model.crds.schema import model, tree_schema

Json = dict[str, Any]


def described(text: str, schema: Json) -> Json:
    """Return a schema with a description."""
    return {"description": text, **schema}


def string(text: str, **more: Any) -> Json:
    """Return the schema of a text."""
    return {"description": text, **more, "type": "string"}


def structure(text: str, properties: Json, required: Iterable[str] = ()) -> Json:
    """Return the schema of an object with these properties."""
    schema: Json = {"description": text, "properties": properties}
    if needed := sorted(required):
        schema["required"] = needed
    schema["type"] = "object"
    return schema


def strings(text: str) -> Json:
    """Return the schema of a map of texts."""
    return {"description": text, "additionalProperties": {"type": "string"}, "type": "object"}


def choice(text: str, values: Iterable[str], default: str) -> Json:
    """Return the schema of one of some texts."""
    return string(text, default=default, enum=list(values))


def moment(text: str) -> Json:
    """Return the schema of a date with a time."""
    return string(text, format="date-time")


def conditions() -> Json:
    """Return an atomic list of metav1.Condition with the limits of apimachinery's type."""
    label = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
    domain = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/"
    properties: Json = {
        "lastTransitionTime": {"format": "date-time", "type": "string"},
        "message": {"maxLength": 32768, "type": "string"},
        "observedGeneration": {"format": "int64", "minimum": 0, "type": "integer"},
        "reason": {
            "maxLength": 1024,
            "minLength": 1,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            "type": "string",
        },
        "status": {"enum": ["True", "False", "Unknown"], "type": "string"},
        "type": {"maxLength": 316, "pattern": f"^({domain})?({label})$", "type": "string"},
    }
    required = ["lastTransitionTime", "message", "reason", "status", "type"]
    return {
        "description": "Observations of the current state.",
        "items": {"properties": properties, "required": required, "type": "object"},
        "type": "array",
    }


@cache
def core_model(name: str, module: str = "core_v1") -> Json:
    """Return the schema of a type of Kubernetes itself, without descriptions."""
    return tree_schema(model(module, name))


def _pod_template() -> Json:
    metadata = structure(
        "Labels and annotations given to the Pod.",
        {
            "annotations": strings("Annotations of the Pod."),
            "labels": strings("Labels of the Pod."),
        },
    )
    spec = described("The Pod to run, as in core/v1.", core_model("PodSpec"))
    return structure("Template of the one Pod.", {"metadata": metadata, "spec": spec}, ["spec"])


def claim_templates() -> Json:
    """Return the schema of a list of templates of volume claims."""
    metadata = structure(
        "Name, labels and annotations of the claim.",
        {
            "annotations": strings("Annotations of the claim."),
            "labels": strings("Labels of the claim."),
            "name": string("Name of the volume; the claim is called <name>-<sandbox>."),
        },
    )
    spec = described("The claim, as in core/v1.", core_model("PersistentVolumeClaimSpec"))
    item = structure("A claim to create.", {"metadata": metadata, "spec": spec}, ["spec"])
    return {
        "description": "PersistentVolumeClaims that belong to the sandbox and outlive its Pods.",
        "items": item,
        "type": "array",
        "x-kubernetes-list-type": "atomic",
    }


def blueprint() -> Json:
    """Return the fields that Sandbox and SandboxTemplate share."""
    return {
        "podTemplate": _pod_template(),
        "service": described(
            "Whether a headless Service is wanted: true creates it, false removes it, unset keeps "
            "what exists.",
            {"type": "boolean"},
        ),
        "volumeClaimTemplates": claim_templates(),
    }

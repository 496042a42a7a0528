"""The four CustomResourceDefinitions, generated.

`python -m lean_sandbox.model.crds.definitions FOLDER...` writes them as YAML.

Only `v1beta1` is served and stored. The embedded core types carry no descriptions, so that a
definition stays small enough for a client-side `kubectl apply`; our own fields have short ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from lean_sandbox.model.crds.schema import model, tree_schema
from lean_sandbox.model.warmpool import LEAST_GRACE_S

Json = dict[str, Any]

CORE_GROUP = "agents.x-k8s.io"
EXTENSIONS_GROUP = "extensions.agents.x-k8s.io"
VERSION = "v1beta1"

_READY = ".status.conditions[?(@.type=='Ready')]"
_AGE: Json = {"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}


def _described(text: str, schema: Json) -> Json:
    return {"description": text, **schema}


def _text(text: str, **more: Any) -> Json:
    return {"description": text, **more, "type": "string"}


def _object(text: str, properties: Json, required: Iterable[str] = ()) -> Json:
    schema: Json = {"description": text, "properties": properties}
    if needed := sorted(required):
        schema["required"] = needed
    schema["type"] = "object"
    return schema


def _strings(text: str) -> Json:
    return {"description": text, "additionalProperties": {"type": "string"}, "type": "object"}


def _choice(text: str, values: Iterable[str], default: str) -> Json:
    return _text(text, default=default, enum=list(values))


def _time(text: str) -> Json:
    return _text(text, format="date-time")


def _conditions() -> Json:
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
def _core(name: str, module: str = "core_v1") -> Json:
    return tree_schema(model(module, name))


def _pod_template() -> Json:
    metadata = _object(
        "Labels and annotations given to the Pod.",
        {
            "annotations": _strings("Annotations of the Pod."),
            "labels": _strings("Labels of the Pod."),
        },
    )
    spec = _described("The Pod to run, as in core/v1.", _core("PodSpec"))
    return _object("Template of the one Pod.", {"metadata": metadata, "spec": spec}, ["spec"])


def _claim_templates() -> Json:
    metadata = _object(
        "Name, labels and annotations of the claim.",
        {
            "annotations": _strings("Annotations of the claim."),
            "labels": _strings("Labels of the claim."),
            "name": _text("Name of the volume; the claim is called <name>-<sandbox>."),
        },
    )
    spec = _described("The claim, as in core/v1.", _core("PersistentVolumeClaimSpec"))
    item = _object("A claim to create.", {"metadata": metadata, "spec": spec}, ["spec"])
    return {
        "description": "PersistentVolumeClaims that belong to the sandbox and outlive its Pods.",
        "items": item,
        "type": "array",
        "x-kubernetes-list-type": "atomic",
    }


def _blueprint() -> Json:
    """Return the fields that Sandbox and SandboxTemplate share."""
    return {
        "podTemplate": _pod_template(),
        "service": _described(
            "Whether a headless Service is wanted: true creates it, false removes it, unset keeps "
            "what exists.",
            {"type": "boolean"},
        ),
        "volumeClaimTemplates": _claim_templates(),
    }


def _sandbox() -> Json:
    spec = _object(
        "The wanted state.",
        _blueprint()
        | {
            "operatingMode": _choice(
                "Running keeps a Pod, Suspended removes it and keeps the volumes.",
                ["Running", "Suspended"],
                "Running",
            ),
            "shutdownPolicy": _choice(
                "What happens to this object at shutdownTime.", ["Delete", "Retain"], "Retain"
            ),
            "shutdownTime": _time("When the sandbox expires; unset is never."),
        },
        ["podTemplate"],
    )
    both = "has(self.volumeClaimTemplates) == has(oldSelf.volumeClaimTemplates)"
    same = "self.volumeClaimTemplates == oldSelf.volumeClaimTemplates"
    spec["x-kubernetes-validations"] = [
        {
            "message": "volumeClaimTemplates is immutable",
            "rule": f"{both} && (!has(self.volumeClaimTemplates) || {same})",
        }
    ]
    status = _object(
        "The observed state.",
        {
            "conditions": _conditions(),
            "nodeName": _text("Node the Pod runs on."),
            "podIPs": _described(
                "Addresses of the Pod.", {"items": {"type": "string"}, "type": "array"}
            ),
            "selector": _text("Label selector of the Pod."),
            "service": _text("Name of the Service."),
            "serviceFQDN": _text("Fully qualified name of the Service."),
        },
    )
    root = _root("A long-lived, isolated workload of one Pod with a stable identity.", spec, status)
    # A Service carries the name of its sandbox, and names of Services end at 63 characters.
    root["x-kubernetes-validations"] = [
        {
            "message": "metadata.name must be no more than 63 characters when spec.service is true",
            "rule": "!has(self.spec.service) || !self.spec.service || "
            "size(self.metadata.name) <= 63",
        }
    ]
    columns = [
        {"jsonPath": f"{_READY}.status", "name": "Ready", "type": "string"},
        {"jsonPath": f"{_READY}.reason", "name": "Reason", "type": "string"},
        _AGE,
        _wide("Since", f"{_READY}.lastTransitionTime", "date"),
        _wide("Claim", _owner("SandboxClaim")),
        _wide("Pool", _owner("SandboxWarmPool")),
        _wide("Mode", ".spec.operatingMode"),
        _wide("IP", ".status.podIPs[0]"),
        _wide("Node", ".status.nodeName"),
    ]
    return _definition(CORE_GROUP, "Sandbox", "sandboxes", "sandbox", root, columns, {"status": {}})


def _template() -> Json:
    ingress = _core("NetworkPolicyIngressRule", "networking_v1")
    egress = _core("NetworkPolicyEgressRule", "networking_v1")
    policy = _object(
        "Rules that replace the secure default ones.",
        {
            "egress": {"description": "Allowed egress.", "items": egress, "type": "array"},
            "ingress": {"description": "Allowed ingress.", "items": ingress, "type": "array"},
        },
    )
    spec = _object(
        "What sandboxes made from the template look like.",
        _blueprint()
        | {
            "envVarsInjectionPolicy": _choice(
                "Whether claims may set environment variables.",
                ["Allowed", "Overrides", "Disallowed"],
                "Disallowed",
            ),
            "networkPolicy": policy,
            "networkPolicyManagement": _choice(
                "Whether the controller keeps a NetworkPolicy for the template.",
                ["Managed", "Unmanaged"],
                "Managed",
            ),
            "volumeClaimTemplatesPolicy": _choice(
                "Whether claims may set volumeClaimTemplates.",
                ["Disallowed", "Allowed", "Overrides"],
                "Disallowed",
            ),
        },
        ["podTemplate"],
    )
    root = _root("A blueprint for sandboxes.", spec)
    return _definition(
        EXTENSIONS_GROUP, "SandboxTemplate", "sandboxtemplates", "sandboxtemplate", root
    )


def _claim() -> Json:
    lifecycle = _object(
        "When and how the claim ends; unset is never.",
        {
            "shutdownPolicy": _choice(
                "What happens to the claim when it expires.",
                ["Delete", "DeleteForeground", "Retain"],
                "Retain",
            ),
            "shutdownTime": _time("When the claim expires."),
            "ttlSecondsAfterFinished": _described(
                "Seconds the claim lives after its Pod finished.",
                {"format": "int32", "minimum": 0, "type": "integer"},
            ),
        },
    )
    variable = _object(
        "One variable.",
        {
            "containerName": _text("Container that gets it; unset is the first one."),
            "name": _text("Name of the variable."),
            "value": _text("Its literal value."),
        },
        ["name", "value"],
    )
    spec = _object(
        "What is claimed.",
        {
            "additionalPodMetadata": _object(
                "Labels and annotations merged into the Pod's.",
                {"annotations": _strings("Annotations."), "labels": _strings("Labels.")},
            ),
            "env": {
                "description": "Environment variables; any entry forces a cold start.",
                "items": variable,
                "type": "array",
                "x-kubernetes-list-type": "atomic",
            },
            "lifecycle": lifecycle,
            "volumeClaimTemplates": _claim_templates(),
            "warmPoolRef": _object(
                "The pool to take from, in the same namespace.",
                {"name": _text("Name of a SandboxWarmPool.")},
                ["name"],
            ),
        },
        ["warmPoolRef"],
    )
    bound = _object(
        "The sandbox bound to the claim.",
        {
            "name": _text("Name of the Sandbox."),
            "podIPs": _described(
                "Addresses of its Pod.", {"items": {"type": "string"}, "type": "array"}
            ),
            "serviceFQDN": _text("Fully qualified name of its Service."),
        },
    )
    status = _object("What was given.", {"conditions": _conditions(), "sandbox": bound})
    columns = [
        {"jsonPath": f"{_READY}.status", "name": "Ready", "type": "string"},
        {"jsonPath": ".status.sandbox.name", "name": "Sandbox", "type": "string"},
        {"jsonPath": f"{_READY}.reason", "name": "Reason", "type": "string"},
        _AGE,
        # Not since when it is Ready: that time is the Sandbox's, from before there was a claim.
        _wide("Pool", ".spec.warmPoolRef.name"),
        _wide("IP", ".status.sandbox.podIPs[0]"),
    ]
    root = _root("A request for one sandbox.", spec, status)
    return _definition(
        EXTENSIONS_GROUP,
        "SandboxClaim",
        "sandboxclaims",
        "sandboxclaim",
        root,
        columns,
        {"status": {}},
    )


def _warm_pool() -> Json:
    count: Json = {"format": "int32", "type": "integer"}
    spec = _object(
        "The wanted pool.",
        {
            "readinessGracePeriodSeconds": _described(
                "How long a member may be unready before it is replaced; the controller's setting"
                " holds where it is absent.",
                {"format": "int32", "minimum": LEAST_GRACE_S, "type": "integer"},
            ),
            "replicas": _described(
                "Number of unclaimed sandboxes to keep.",
                {"default": 1, "format": "int32", "minimum": 0, "type": "integer"},
            ),
            "sandboxTemplateRef": _object(
                "The template to use, in the same namespace.",
                {"name": _text("Name of a SandboxTemplate.")},
                ["name"],
            ),
            "updateStrategy": _object(
                "How members made from an older template are replaced.",
                {
                    "type": _choice(
                        "Recreate replaces them at once, OnReplenish when they are claimed.",
                        ["Recreate", "OnReplenish"],
                        "OnReplenish",
                    )
                },
            ),
        },
        ["sandboxTemplateRef"],
    )
    status = _object(
        "The observed pool.",
        {
            "observedGeneration": _described(
                "Generation the counts belong to.",
                {"format": "int64", "minimum": 0, "type": "integer"},
            ),
            "readyReplicas": _described("Members that are ready.", count),
            "replicas": _described("Members that are not being deleted.", count),
            "selector": _text("Label selector of the members' Pods."),
        },
    )
    scale = {
        "labelSelectorPath": ".status.selector",
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
    }
    columns = [
        {"jsonPath": ".status.readyReplicas", "name": "Ready", "type": "integer"},
        {"jsonPath": ".spec.replicas", "name": "Desired", "type": "integer"},
        _AGE,
        _wide("Members", ".status.replicas", "integer"),
        _wide("Template", ".spec.sandboxTemplateRef.name"),
    ]
    return _definition(
        EXTENSIONS_GROUP,
        "SandboxWarmPool",
        "sandboxwarmpools",
        "swp",
        _root("A stock of sandboxes that are ready to be claimed.", spec, status),
        columns,
        {"scale": scale, "status": {}},
    )


def _root(text: str, spec: Json, status: Json | None = None) -> Json:
    properties: Json = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
    }
    if status is not None:
        properties["status"] = status
    return _object(text, properties, ["spec"])


def _owner(kind: str) -> str:
    return f".metadata.ownerReferences[?(@.kind=='{kind}')].name"


def _wide(name: str, path: str, type_: str = "string") -> Json:
    """Return a column that only `kubectl get -o wide` shows."""
    return {"jsonPath": path, "name": name, "priority": 1, "type": type_}


def _definition(
    group: str,
    kind: str,
    plural: str,
    short_name: str,
    schema: Json,
    columns: list[Json] | None = None,
    subresources: Json | None = None,
) -> Json:
    version: Json = {"additionalPrinterColumns": columns} if columns else {}
    version.update(name=VERSION, schema={"openAPIV3Schema": schema}, served=True, storage=True)
    if subresources:
        version["subresources"] = subresources
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "shortNames": [short_name],
                "singular": kind.lower(),
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def definitions() -> dict[str, Json]:
    """Return the four definitions by file name. Sub-schemas are shared: copy before changing."""
    found = (_sandbox(), _claim(), _template(), _warm_pool())
    return {f"{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml": crd for crd in found}


def generate() -> dict[str, str]:
    """Return file name -> YAML text of each definition; the same text on every machine."""
    import yaml  # noqa: PLC0415 -- generating is not part of running the controller

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
            super().increase_indent(flow, indentless=False)

    return {
        name: "---\n" + yaml.dump(crd, Dumper=Dumper, sort_keys=True, width=sys.maxsize)
        for name, crd in definitions().items()
    }


def write(folder: Path) -> None:
    """Write the definitions into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in generate().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        write(Path(given))

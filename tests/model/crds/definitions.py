"""The four CustomResourceDefinitions, generated.

`python -m tests.model.crds.definitions FOLDER...` writes them as YAML.

Only `v1beta1` is served and stored. The embedded core types carry no descriptions, so that a
definition stays small enough for a client-side `kubectl apply`; our own fields have short ones.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lean_sandbox.model.warmpool import LEAST_GRACE_S
from tests.model.crds.parts import (
    blueprint,
    choice,
    claim_templates,
    conditions,
    core_model,
    described,
    moment,
    string,
    strings,
    structure,
)

Json = dict[str, Any]

CORE_GROUP = "agents.x-k8s.io"
EXTENSIONS_GROUP = "extensions.agents.x-k8s.io"
VERSION = "v1beta1"

_READY = ".status.conditions[?(@.type=='Ready')]"
_AGE: Json = {"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}


def _sandbox() -> Json:
    spec = structure(
        "The wanted state.",
        blueprint()
        | {
            "operatingMode": choice(
                "Running keeps a Pod, Suspended removes it and keeps the volumes.",
                ["Running", "Suspended"],
                "Running",
            ),
            "shutdownPolicy": choice(
                "What happens to this object at shutdownTime.", ["Delete", "Retain"], "Retain"
            ),
            "shutdownTime": moment("When the sandbox expires; unset is never."),
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
    status = structure(
        "The observed state.",
        {
            "conditions": conditions(),
            "nodeName": string("Node the Pod runs on."),
            "podIPs": described(
                "Addresses of the Pod.", {"items": {"type": "string"}, "type": "array"}
            ),
            "selector": string("Label selector of the Pod."),
            "service": string("Name of the Service."),
            "serviceFQDN": string("Fully qualified name of the Service."),
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
    ingress = core_model("NetworkPolicyIngressRule", "networking_v1")
    egress = core_model("NetworkPolicyEgressRule", "networking_v1")
    policy = structure(
        "Rules that replace the secure default ones.",
        {
            "egress": {"description": "Allowed egress.", "items": egress, "type": "array"},
            "ingress": {"description": "Allowed ingress.", "items": ingress, "type": "array"},
        },
    )
    spec = structure(
        "What sandboxes made from the template look like.",
        blueprint()
        | {
            "envVarsInjectionPolicy": choice(
                "Whether claims may set environment variables.",
                ["Allowed", "Overrides", "Disallowed"],
                "Disallowed",
            ),
            "networkPolicy": policy,
            "networkPolicyManagement": choice(
                "Whether the controller keeps a NetworkPolicy for the template.",
                ["Managed", "Unmanaged"],
                "Managed",
            ),
            "volumeClaimTemplatesPolicy": choice(
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
    lifecycle = structure(
        "When and how the claim ends; unset is never.",
        {
            "shutdownPolicy": choice(
                "What happens to the claim when it expires.",
                ["Delete", "DeleteForeground", "Retain"],
                "Retain",
            ),
            "shutdownTime": moment("When the claim expires."),
            "ttlSecondsAfterFinished": described(
                "Seconds the claim lives after its Pod finished.",
                {"format": "int32", "minimum": 0, "type": "integer"},
            ),
        },
    )
    variable = structure(
        "One variable.",
        {
            "containerName": string("Container that gets it; unset is the first one."),
            "name": string("Name of the variable."),
            "value": string("Its literal value."),
        },
        ["name", "value"],
    )
    spec = structure(
        "What is claimed.",
        {
            "additionalPodMetadata": structure(
                "Labels and annotations merged into the Pod's.",
                {"annotations": strings("Annotations."), "labels": strings("Labels.")},
            ),
            "env": {
                "description": "Environment variables; any entry forces a cold start.",
                "items": variable,
                "type": "array",
                "x-kubernetes-list-type": "atomic",
            },
            "lifecycle": lifecycle,
            "volumeClaimTemplates": claim_templates(),
            "warmPoolRef": structure(
                "The pool to take from, in the same namespace.",
                {"name": string("Name of a SandboxWarmPool.")},
                ["name"],
            ),
        },
        ["warmPoolRef"],
    )
    bound = structure(
        "The sandbox bound to the claim.",
        {
            "name": string("Name of the Sandbox."),
            "podIPs": described(
                "Addresses of its Pod.", {"items": {"type": "string"}, "type": "array"}
            ),
            "serviceFQDN": string("Fully qualified name of its Service."),
        },
    )
    status = structure("What was given.", {"conditions": conditions(), "sandbox": bound})
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
    spec = structure(
        "The wanted pool.",
        {
            "readinessGracePeriodSeconds": described(
                "How long a member may be unready before it is replaced; the controller's setting"
                " holds where it is absent.",
                {"format": "int32", "minimum": LEAST_GRACE_S, "type": "integer"},
            ),
            "replicas": described(
                "Number of unclaimed sandboxes to keep.",
                {"default": 1, "format": "int32", "minimum": 0, "type": "integer"},
            ),
            "sandboxTemplateRef": structure(
                "The template to use, in the same namespace.",
                {"name": string("Name of a SandboxTemplate.")},
                ["name"],
            ),
            "updateStrategy": structure(
                "How members made from an older template are replaced.",
                {
                    "type": choice(
                        "Recreate replaces them at once, OnReplenish when they are claimed.",
                        ["Recreate", "OnReplenish"],
                        "OnReplenish",
                    )
                },
            ),
        },
        ["sandboxTemplateRef"],
    )
    status = structure(
        "The observed pool.",
        {
            "observedGeneration": described(
                "Generation the counts belong to.",
                {"format": "int64", "minimum": 0, "type": "integer"},
            ),
            "readyReplicas": described("Members that are ready.", count),
            "replicas": described("Members that are not being deleted.", count),
            "selector": string("Label selector of the members' Pods."),
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
    return structure(text, properties, ["spec"])


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
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT001, FBT002
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

"""Defaults and validation of the built-in kinds: what a server's Go code adds to their schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors, names, paths
from lean_sandbox.local.schema.claims import check_claim, claim_defaults
from lean_sandbox.local.schema.events import check_event_place
from lean_sandbox.local.schema.kinddefaults import default_rows
from lean_sandbox.local.schema.kindrules import check_rows
from lean_sandbox.local.schema.metadata import name_rule, validate_metadata
from lean_sandbox.local.schema.pod_defaults import pod_defaults, pod_spec_defaults
from lean_sandbox.local.schema.pods import check_pod, check_pod_addresses
from lean_sandbox.local.schema.services import check_service, service_defaults

Json = dict[str, Any]

CLUSTER_KINDS = frozenset(
    {
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "Namespace",
        "Node",
        "PriorityClass",
        "RuntimeClass",
        "StorageClass",
    }
)
# Requests rather than objects: nothing is stored, so nothing is named.
_NAMELESS = frozenset(
    {
        "Binding",
        "Eviction",
        "Scale",
        "SelfSubjectAccessReview",
        "SelfSubjectRulesReview",
        "SubjectAccessReview",
        "TokenRequest",
        "TokenReview",
    }
)
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
# Kinds of the core group, whose finalizers must be domain-qualified.
_STRICT_FINALIZERS = frozenset(
    {
        "ConfigMap",
        "Namespace",
        "Node",
        "PersistentVolumeClaim",
        "Pod",
        "Secret",
        "Service",
        "ServiceAccount",
    }
)
_CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name', "
    " or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def _deployment_defaults(obj: Json) -> None:
    strategy = obj["spec"]["strategy"]
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")


def _update_defaults(**values: Any) -> Callable[[Json], None]:
    def apply(obj: Json) -> None:
        strategy = obj["spec"]["updateStrategy"]
        if strategy["type"] == "RollingUpdate":
            strategy["rollingUpdate"] = {**values, **(strategy.get("rollingUpdate") or {})}

    return apply


def _job_defaults(obj: Json) -> None:
    """Let a Job select its Pods by a label of its uid, unless it says how itself."""
    spec, metadata = obj["spec"], obj["metadata"]
    if spec.get("completionMode") != "Indexed":
        spec.setdefault("completions", 1)
    uid = metadata.get("uid")
    if spec.get("manualSelector") or not uid or spec.get("selector"):
        return
    key = "batch.kubernetes.io/controller-uid"
    template = spec.setdefault("template", {}).setdefault("metadata", {})
    labels = {key: uid, "controller-uid": uid}
    labels |= {"batch.kubernetes.io/job-name": metadata["name"], "job-name": metadata["name"]}
    template["labels"] = {**(template.get("labels") or {}), **labels}
    # A Job without labels has those of its template.
    if not metadata.get("labels"):
        metadata["labels"] = dict(template["labels"])
    spec["selector"] = {"matchLabels": {key: uid}}


def _namespace_defaults(obj: Json) -> None:
    name = (obj.get("metadata") or {}).get("name")
    if name:
        labels = obj["metadata"].get("labels")
        if not labels:
            labels = obj["metadata"]["labels"] = {}
        labels.setdefault("kubernetes.io/metadata.name", name)
    spec = obj.setdefault("spec", {})
    spec.setdefault("finalizers", ["kubernetes"])


def _network_policy_defaults(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _role_binding_defaults(obj: Json) -> None:
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in {"User", "Group"}:
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


_TEMPLATES = {
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"), ("spec", "template")
    ),
}
_DEFAULTS: dict[str, Callable[[Json], None]] = {
    "ClusterRoleBinding": _role_binding_defaults,
    "DaemonSet": _update_defaults(maxSurge=0, maxUnavailable=1),
    "Deployment": _deployment_defaults,
    "Job": _job_defaults,
    "Namespace": _namespace_defaults,
    "NetworkPolicy": _network_policy_defaults,
    "PersistentVolumeClaim": claim_defaults,
    "Pod": pod_defaults,
    "RoleBinding": _role_binding_defaults,
    "Service": service_defaults,
    "StatefulSet": _update_defaults(partition=0),
}


def core_defaults(kind: str, obj: Json) -> None:
    """Write the defaults of a built-in kind into an object, in place; unknown kinds are left alone.

    Allocated values (cluster IPs, node ports) and what admission adds beside the service account
    (priority, token volumes, tolerations) are the server's part.
    """
    default_rows(kind, obj)
    if steps := _TEMPLATES.get(kind):
        template = obj
        for step in steps:
            template = template.setdefault(step, {})
        pod_spec_defaults(template.setdefault("spec", {}))
    if (apply := _DEFAULTS.get(kind)) is not None:
        apply(obj)


def _check_keys(obj: Json, _old: Json | None) -> list[Cause]:
    found: list[Cause] = []
    for part in ("data", "binaryData"):
        for key in sorted(obj.get(part) or {}):
            where = paths.key(part, key)
            if len(key) > 253:
                found.append(errors.invalid(where, key, "must be no more than 253 characters"))
            if not key or not all(
                char.isascii() and (char.isalnum() or char in "-._") for char in key
            ):
                found.append(errors.invalid(where, key, _CONFIG_KEY))
            elif key in {".", ".."}:
                found.append(errors.invalid(where, key, f"must not be '{key}'"))
    if old := _old:
        found += _immutable_data(obj, old)
    return found


def _immutable_data(obj: Json, old: Json) -> list[Cause]:
    if not old.get("immutable"):
        return []
    text = "field is immutable when `immutable` is set"
    parts = ("data", "binaryData", "immutable")
    return [
        errors.forbidden(part, text)
        for part in parts
        if (obj.get(part) or {}) != (old.get(part) or {})
    ]


_CHECKS: dict[str, Callable[[Json, Json | None], list[Cause]]] = {
    "ConfigMap": _check_keys,
    "Event": check_event_place,
    "PersistentVolumeClaim": check_claim,
    "Pod": check_pod,
    "Secret": _check_keys,
    "Service": check_service,
}


def _check_finalizers(obj: Json) -> list[Cause]:
    path = "metadata.finalizers"
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        errors.invalid(paths.index(path, position), name, text)
        for position, name in enumerate((obj.get("metadata") or {}).get("finalizers") or ())
        if "/" not in name and name not in _STANDARD_FINALIZERS
        if not names.label_key_problems(name)
    ]


def core_validate(
    kind: str, obj: Json, old: Json | None = None, *, is_status: bool = False
) -> list[Cause]:
    """Return what a server refuses in an object of a built-in kind, its metadata included.

    `old` is the stored object of an update. Defaults must be in place. Kinds without a check of
    their own get the metadata rules only; JSON types are the matter of ``decode``. With
    `is_status` nothing but the status is new.
    """
    if kind in _NAMELESS:
        return []
    found = validate_metadata(obj, old, rule=name_rule(kind), namespaced=kind not in CLUSTER_KINDS)
    if kind in _STRICT_FINALIZERS:
        found += _check_finalizers(obj)
    if is_status:
        return [*found, *check_pod_addresses(obj.get("status") or {})] if kind == "Pod" else found
    check = _CHECKS.get(kind)
    if check is not None:
        found += check(obj, old)
    return [*found, *check_rows(kind, obj, old)]

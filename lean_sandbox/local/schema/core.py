"""Defaults and validation of the built-in kinds: what a server's Go code adds to their schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lean_sandbox.local.schema import errors, names, paths
from lean_sandbox.local.schema.claims import check_claim, claim_defaults
from lean_sandbox.local.schema.errors import FieldError
from lean_sandbox.local.schema.events import check_event_place
from lean_sandbox.local.schema.metadata import name_rule, validate_metadata
from lean_sandbox.local.schema.pod_defaults import pod_defaults, pod_spec_defaults
from lean_sandbox.local.schema.pods import check_pod
from lean_sandbox.local.schema.services import check_service, service_defaults

Json = dict[str, Any]

CLUSTER_KINDS = frozenset(
    {
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "Namespace",
        "Node",
        "PersistentVolume",
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
        "Endpoints",
        "LimitRange",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "ResourceQuota",
        "Secret",
        "Service",
        "ServiceAccount",
    }
)
_CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name', "
    " or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def _workload_defaults(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    pod_spec_defaults(spec.setdefault("template", {}).setdefault("spec", {}))


def _deployment_defaults(obj: Json) -> None:
    _workload_defaults(obj)
    spec = obj["spec"]
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")


def _secret_defaults(obj: Json) -> None:
    obj.setdefault("type", "Opaque")


def _namespace_defaults(obj: Json) -> None:
    name = (obj.get("metadata") or {}).get("name")
    if name:
        labels = obj["metadata"].get("labels")
        if not labels:
            labels = obj["metadata"]["labels"] = {}
        labels.setdefault("kubernetes.io/metadata.name", name)
    spec = obj.setdefault("spec", {})
    spec.setdefault("finalizers", ["kubernetes"])


def _storage_class_defaults(obj: Json) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _network_policy_defaults(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
        for port in (rule or {}).get("ports") or ():
            port.setdefault("protocol", "TCP")


def _role_binding_defaults(obj: Json) -> None:
    reference = obj.setdefault("roleRef", {})
    reference.setdefault("apiGroup", "rbac.authorization.k8s.io")
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in {"User", "Group"}:
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


_DEFAULTS: dict[str, Callable[[Json], None]] = {
    "ClusterRoleBinding": _role_binding_defaults,
    "Deployment": _deployment_defaults,
    "Namespace": _namespace_defaults,
    "NetworkPolicy": _network_policy_defaults,
    "PersistentVolumeClaim": claim_defaults,
    "Pod": pod_defaults,
    "ReplicaSet": _workload_defaults,
    "RoleBinding": _role_binding_defaults,
    "Secret": _secret_defaults,
    "Service": service_defaults,
    "StatefulSet": _workload_defaults,
    "StorageClass": _storage_class_defaults,
}


def core_defaults(kind: str, obj: Json) -> None:
    """Write the defaults of a built-in kind into an object, in place; unknown kinds are left alone.

    Allocated values (cluster IPs, node ports) and what admission adds beside priority and service
    account (token volumes, tolerations) are the server's part. Of the status only the times of a
    Pod's conditions are touched.
    """
    apply = _DEFAULTS.get(kind)
    if apply is not None:
        apply(obj)


def _check_keys(obj: Json, _old: Json | None) -> list[FieldError]:
    found: list[FieldError] = []
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


def _immutable_data(obj: Json, old: Json) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    text = "field is immutable when `immutable` is set"
    parts = ("data", "binaryData", "immutable")
    return [
        errors.forbidden(part, text)
        for part in parts
        if (obj.get(part) or {}) != (old.get(part) or {})
    ]


def _check_network_policy(obj: Json, _old: Json | None) -> list[FieldError]:
    found: list[FieldError] = []
    spec: Json = obj.get("spec") or {}
    for position, name in enumerate(spec.get("policyTypes") or ()):
        if name not in {"Ingress", "Egress"}:
            where = paths.index("spec.policyTypes", position)
            found.append(errors.not_supported(where, name, ["Egress", "Ingress"]))
    return found


def _check_role_binding(obj: Json, old: Json | None) -> list[FieldError]:
    reference: Json = obj.get("roleRef") or {}
    found: list[FieldError] = []
    if old is not None and reference != (old.get("roleRef") or {}):
        found.append(errors.invalid("roleRef", reference, "cannot change roleRef"))
    if not reference.get("name"):
        found.append(errors.required("roleRef.name"))
    return found


_CHECKS: dict[str, Callable[[Json, Json | None], list[FieldError]]] = {
    "ClusterRoleBinding": _check_role_binding,
    "ConfigMap": _check_keys,
    "Event": check_event_place,
    "NetworkPolicy": _check_network_policy,
    "PersistentVolumeClaim": check_claim,
    "Pod": check_pod,
    "RoleBinding": _check_role_binding,
    "Secret": _check_keys,
    "Service": check_service,
}


def _check_finalizers(obj: Json) -> list[FieldError]:
    path = "metadata.finalizers"
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        errors.invalid(paths.index(path, position), name, text)
        for position, name in enumerate((obj.get("metadata") or {}).get("finalizers") or ())
        if "/" not in name and name not in _STANDARD_FINALIZERS
        if not names.label_key_problems(name)
    ]


def core_validate(kind: str, obj: Json, old: Json | None = None) -> list[FieldError]:
    """Return what a server refuses in an object of a built-in kind, its metadata included.

    `old` is the stored object of an update. Defaults must be in place. Kinds without a check of
    their own get the metadata rules only; JSON types are the matter of ``decode_errors``.
    """
    if kind in _NAMELESS:
        return []
    found = validate_metadata(obj, old, rule=name_rule(kind), namespaced=kind not in CLUSTER_KINDS)
    if kind in _STRICT_FINALIZERS:
        found += _check_finalizers(obj)
    check = _CHECKS.get(kind)
    if check is not None:
        found += check(obj, old)
    return found

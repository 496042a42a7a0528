"""Schemas of the built-in kinds, read off the models when first asked for."""

from __future__ import annotations

from functools import cache
from typing import Any

Json = dict[str, Any]

_GROUPS: dict[str, tuple[str, ...]] = {
    "v1": (
        "Binding",
        "ConfigMap",
        "Endpoints",
        "Event",
        "LimitRange",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "PodTemplate",
        "ReplicationController",
        "ResourceQuota",
        "Secret",
        "Service",
        "ServiceAccount",
    ),
    "apiextensions.k8s.io/v1": ("CustomResourceDefinition",),
    "apps/v1": ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
    "authentication.k8s.io/v1": ("TokenRequest", "TokenReview"),
    "authorization.k8s.io/v1": (
        "SelfSubjectAccessReview",
        "SelfSubjectRulesReview",
        "SubjectAccessReview",
    ),
    "autoscaling/v1": ("Scale",),
    "batch/v1": ("CronJob", "Job"),
    "coordination.k8s.io/v1": ("Lease",),
    "discovery.k8s.io/v1": ("EndpointSlice",),
    "events.k8s.io/v1": ("Event",),
    "networking.k8s.io/v1": ("Ingress", "NetworkPolicy"),
    "node.k8s.io/v1": ("RuntimeClass",),
    "policy/v1": ("Eviction", "PodDisruptionBudget"),
    "rbac.authorization.k8s.io/v1": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "scheduling.k8s.io/v1": ("PriorityClass",),
    "storage.k8s.io/v1": ("StorageClass",),
}
BUILTIN_KINDS = frozenset(
    (api_version, kind) for api_version, kinds in _GROUPS.items() for kind in kinds
)
_HOME = {kind: api_version for api_version, kinds in reversed(_GROUPS.items()) for kind in kinds}


def model_module(api_version: str) -> str:
    """Return the module of the models of a group and version, e.g. ``core_v1``."""
    group, _, version = api_version.rpartition("/")
    name = group.removesuffix(".authorization.k8s.io").removesuffix(".k8s.io")
    return f"{name or 'core'}_{version}"


def builtin_model(kind: str, api_version: str | None = None) -> type:
    """Return the model of a built-in kind. Raises KeyError for others."""
    from lean_sandbox.model.crds.schema import model  # noqa: PLC0415 -- models cost 100 ms to import

    home = api_version or _HOME[kind]
    if (home, kind) not in BUILTIN_KINDS:
        raise KeyError(kind)
    return model(model_module(home), kind)


@cache
def builtin_schema(kind: str, api_version: str | None = None) -> Json:
    """Return the schema of a built-in kind (core/v1 Event unless `api_version` says otherwise).

    Raises KeyError for kinds that are not known. The result is shared: read only.
    """
    from lean_sandbox.model.crds.schema import linked_schema  # noqa: PLC0415 -- as above

    return linked_schema(builtin_model(kind, api_version))

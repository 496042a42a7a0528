"""Defaults of the built-in kinds, which their schemas do not say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from lean_sandbox.local.schema.definition import definition_defaults
from lean_sandbox.local.schema.pod_defaults import pod_defaults, pod_spec_defaults
from lean_sandbox.local.schema.rows import fill
from lean_sandbox.local.schema.services import service_defaults

Json = dict[str, Any]

_RBAC: Final = "rbac.authorization.k8s.io"


def _namespace_defaults(obj: Json) -> None:
    labels = obj["metadata"].get("labels") or {}
    labels.setdefault("kubernetes.io/metadata.name", obj["metadata"].get("name", ""))
    obj["metadata"]["labels"] = labels
    fill(obj, {"spec": {"finalizers": ["kubernetes"]}})


def _network_policy_defaults(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _rolling(**steps: Any) -> Json:
    return {"type": "RollingUpdate", "type=RollingUpdate": {"rollingUpdate": steps}}


_POLICY_PORTS: Final[Json] = {"ports[*]": {"protocol": "TCP"}}
_BINDING: Final[Json] = {
    "roleRef": {"apiGroup": _RBAC},
    "subjects[*]": {"kind=User": {"apiGroup": _RBAC}, "kind=Group": {"apiGroup": _RBAC}},
}
_CPU: Final[Json] = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_DEFAULTS: Final[Mapping[str, Json]] = {
    "ClusterRoleBinding": _BINDING,
    "HorizontalPodAutoscaler": {"spec": {"minReplicas": 1, "metrics": [_CPU]}},
    "NetworkPolicy": {"spec": {"ingress[*]": _POLICY_PORTS, "egress[*]": _POLICY_PORTS}},
    "PersistentVolumeClaim": {"spec": {"volumeMode": "Filesystem"}},
    "PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "RoleBinding": _BINDING,
    "Secret": {"type": "Opaque"},
    "StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
}
_WORKLOADS: Final[Mapping[str, Json]] = {
    "CronJob": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "DaemonSet": {
        "revisionHistoryLimit": 10,
        "updateStrategy": _rolling(maxSurge=0, maxUnavailable=1),
    },
    "Deployment": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": _rolling(maxSurge="25%", maxUnavailable="25%"),
    },
    "Job": {
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "completionMode=NonIndexed": {"completions": 1},
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "suspend": False,
    },
    "ReplicaSet": {"replicas": 1},
    "StatefulSet": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "podManagementPolicy": "OrderedReady",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "updateStrategy": _rolling(partition=0),
    },
}
"""The defaults of specs that hold a template of Pods."""
_OWN_DEFAULTS: Final[Mapping[str, Callable[[Json], None]]] = {
    "CustomResourceDefinition": definition_defaults,
    "Namespace": _namespace_defaults,
    "NetworkPolicy": _network_policy_defaults,
    "Pod": pod_defaults,
    "Service": service_defaults,
}


def core_defaults(kind: str, obj: Json) -> None:
    """Write the defaults of a built-in kind into an object, in place; unknown kinds are left alone.

    Allocated values (cluster IPs, node ports) and what admission adds beside the service account
    (priority, token volumes, tolerations) are the server's part.
    """
    fill(obj, _DEFAULTS.get(kind, {}))
    if kind in _WORKLOADS:
        fill(obj, {"spec": _WORKLOADS[kind]})
        holder = obj["spec"].setdefault("jobTemplate", {}) if kind == "CronJob" else obj
        fill(holder, {"spec": {"template": {"spec": {}}}})
        pod_spec_defaults(holder["spec"]["template"]["spec"])
    if (apply := _OWN_DEFAULTS.get(kind)) is not None:
        apply(obj)

"""Defaults of kinds that need little: rows of a path and what is written where nothing is.

In a path `[*]` stands for every item of a list, and `?` after a name for what may be absent: a
default is not written into it then.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

Json = dict[str, Any]

_RBAC: Final = "rbac.authorization.k8s.io"

_DEFAULTS: Final[dict[str, tuple[tuple[str, Any], ...]]] = {
    "Deployment": (
        ("spec.replicas", 1),
        ("spec.revisionHistoryLimit", 10),
        ("spec.progressDeadlineSeconds", 600),
        ("spec.strategy.type", "RollingUpdate"),
    ),
    "ReplicaSet": (("spec.replicas", 1),),
    "StatefulSet": (
        ("spec.replicas", 1),
        ("spec.revisionHistoryLimit", 10),
        ("spec.podManagementPolicy", "OrderedReady"),
        ("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain"),
        ("spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain"),
        ("spec.updateStrategy.type", "RollingUpdate"),
    ),
    "DaemonSet": (
        ("spec.revisionHistoryLimit", 10),
        ("spec.updateStrategy.type", "RollingUpdate"),
    ),
    "Job": (
        ("spec.parallelism", 1),
        ("spec.backoffLimit", 6),
        ("spec.completionMode", "NonIndexed"),
        ("spec.manualSelector", False),
        ("spec.podReplacementPolicy", "TerminatingOrFailed"),
        ("spec.suspend", False),
    ),
    "CronJob": (
        ("spec.concurrencyPolicy", "Allow"),
        ("spec.suspend", False),
        ("spec.successfulJobsHistoryLimit", 3),
        ("spec.failedJobsHistoryLimit", 1),
    ),
    "NetworkPolicy": (
        ("spec.ingress[*].ports[*].protocol", "TCP"),
        ("spec.egress[*].ports[*].protocol", "TCP"),
    ),
    "StorageClass": (("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate")),
    "PriorityClass": (("preemptionPolicy", "PreemptLowerPriority"),),
    "RoleBinding": (("roleRef.apiGroup", _RBAC),),
    "ClusterRoleBinding": (("roleRef.apiGroup", _RBAC),),
    "Secret": (("type", "Opaque"),),
}


def default_rows(kind: str, obj: Json) -> None:
    """Write the defaults of a kind's rows where nothing is."""
    for path, value in _DEFAULTS.get(kind, ()):
        parents, _, name = path.rpartition(".")
        targets = [obj] if not parents else list(_made(obj, parents))
        for target in targets:
            if target.get(name) in (None, ""):
                target[name] = copy.copy(value)


def _made(obj: Json, path: str) -> Iterator[Json]:
    """Give the objects at a path; those that may not be absent are made."""
    found = [obj]
    for step in path.split("."):
        name, _, is_list = step.partition("[")
        plain = name.rstrip("?")
        if is_list:
            found = [item for one in found for item in one.get(plain) or ()]
        elif name.endswith("?"):
            found = [one[plain] for one in found if one.get(plain) is not None]
        else:
            found = [one.setdefault(plain, {}) for one in found]
    yield from found

"""Facts of the Kubernetes API that its Python models do not carry.

The models give names, nesting, which fields are required, and the base types. Everything else a
schema needs is here, keyed by ``Type.field`` (Kubernetes API reference, 1.36 and 1.37):

- integers are int32 unless listed in INT64;
- lists are atomic unless listed in MAP_LISTS or SET_LISTS;
- maps have string values unless listed in QUANTITY_MAPS.
"""

from __future__ import annotations

from typing import Any

INT64 = frozenset(
    {
        "PodSecurityContext.fsGroup",
        "PodSecurityContext.runAsGroup",
        "PodSecurityContext.runAsUser",
        "PodSecurityContext.supplementalGroups",
        "PodSpec.activeDeadlineSeconds",
        "PodSpec.terminationGracePeriodSeconds",
        "Probe.terminationGracePeriodSeconds",
        "SecurityContext.runAsGroup",
        "SecurityContext.runAsUser",
        "ServiceAccountTokenProjection.expirationSeconds",
        "SleepAction.seconds",
        "Toleration.tolerationSeconds",
    }
)

_NAME = ("name",)

MAP_LISTS: dict[str, tuple[str, ...]] = {
    "Container.env": _NAME,
    "Container.ports": ("containerPort", "protocol"),
    "Container.volumeDevices": ("devicePath",),
    "Container.volumeMounts": ("mountPath",),
    "EphemeralContainer.env": _NAME,
    "EphemeralContainer.ports": ("containerPort", "protocol"),
    "EphemeralContainer.volumeDevices": ("devicePath",),
    "EphemeralContainer.volumeMounts": ("mountPath",),
    "PodSpec.containers": _NAME,
    "PodSpec.ephemeralContainers": _NAME,
    "PodSpec.evictionResponders": _NAME,
    "PodSpec.hostAliases": ("ip",),
    "PodSpec.imagePullSecrets": _NAME,
    "PodSpec.initContainers": _NAME,
    "PodSpec.resourceClaims": _NAME,
    "PodSpec.schedulingGates": _NAME,
    "PodSpec.topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "PodSpec.volumes": _NAME,
    "ResourceRequirements.claims": _NAME,
}

SET_LISTS = frozenset(
    {
        "ContainerRestartRuleOnExitCodes.values",
    }
)

ATOMIC_TYPES = frozenset(
    {
        "ConfigMapKeySelector",
        "FileKeySelector",
        "LabelSelector",
        "LocalObjectReference",
        "NodeSelector",
        "NodeSelectorTerm",
        "ObjectFieldSelector",
        "ResourceFieldSelector",
        "SecretKeySelector",
        "TypedLocalObjectReference",
    }
)
ATOMIC_FIELDS = frozenset({"PodSpec.nodeSelector"})

# Only defaults that a schema can express and that end up in stored custom objects.
DEFAULTS: dict[str, Any] = {
    "AzureDiskVolumeSource.fsType": "ext4",
    "AzureDiskVolumeSource.readOnly": False,
    "ConfigMapEnvSource.name": "",
    "ConfigMapKeySelector.name": "",
    "ConfigMapProjection.name": "",
    "ConfigMapVolumeSource.name": "",
    "ContainerPort.protocol": "TCP",
    "FileKeySelector.optional": False,
    "GRPCAction.service": "",
    "ISCSIVolumeSource.iscsiInterface": "default",
    "LocalObjectReference.name": "",
    "RBDVolumeSource.keyring": "/etc/ceph/keyring",
    "RBDVolumeSource.pool": "rbd",
    "RBDVolumeSource.user": "admin",
    "ScaleIOVolumeSource.fsType": "xfs",
    "ScaleIOVolumeSource.storageMode": "ThinProvisioned",
    "SecretEnvSource.name": "",
    "SecretKeySelector.name": "",
    "SecretProjection.name": "",
}

QUANTITY_MAPS = frozenset(
    {
        "PodSpec.overhead",
        "ResourceRequirements.limits",
        "ResourceRequirements.requests",
        "VolumeResourceRequirements.limits",
        "VolumeResourceRequirements.requests",
    }
)

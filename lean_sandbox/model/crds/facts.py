"""Facts of the Kubernetes API that its Python models do not carry.

The models give names, nesting, which fields are required, and the base types. Everything else a
schema needs is here, keyed by ``Type.field`` (Kubernetes API reference, 1.36 and 1.37):

- integers are int32 unless listed in INT64;
- lists are atomic unless listed in MAP_LISTS or SET_LISTS;
- maps have string values unless listed in QUANTITY_MAPS, BYTE_MAPS or OTHER_MAPS.
"""

from __future__ import annotations

from typing import Any

INT64 = frozenset(
    {
        "Condition.observedGeneration",
        "ContainerImage.sizeBytes",
        "CustomResourceDefinitionCondition.observedGeneration",
        "CustomResourceDefinitionStatus.observedGeneration",
        "DaemonSetStatus.observedGeneration",
        "DeleteOptions.gracePeriodSeconds",
        "DeploymentStatus.observedGeneration",
        "JSONSchemaProps.maxItems",
        "JSONSchemaProps.maxLength",
        "JSONSchemaProps.maxProperties",
        "JSONSchemaProps.minItems",
        "JSONSchemaProps.minLength",
        "JSONSchemaProps.minProperties",
        "JobSpec.activeDeadlineSeconds",
        "CronJobSpec.startingDeadlineSeconds",
        "LinuxContainerUser.gid",
        "LinuxContainerUser.supplementalGroups",
        "LinuxContainerUser.uid",
        "ListMeta.remainingItemCount",
        "NodeSwapStatus.capacity",
        "ObjectMeta.deletionGracePeriodSeconds",
        "ObjectMeta.generation",
        "PodCondition.observedGeneration",
        "PodDisruptionBudgetStatus.observedGeneration",
        "PodSecurityContext.fsGroup",
        "PodSecurityContext.runAsGroup",
        "PodSecurityContext.runAsUser",
        "PodSecurityContext.supplementalGroups",
        "PodSpec.activeDeadlineSeconds",
        "PodSpec.terminationGracePeriodSeconds",
        "PodStatus.observedGeneration",
        "Probe.terminationGracePeriodSeconds",
        "ReplicaSetStatus.observedGeneration",
        "ReplicationControllerStatus.observedGeneration",
        "SecurityContext.runAsGroup",
        "SecurityContext.runAsUser",
        "ServiceAccountTokenProjection.expirationSeconds",
        "SleepAction.seconds",
        "StatefulSetStatus.observedGeneration",
        "TokenRequestSpec.expirationSeconds",
        "Toleration.tolerationSeconds",
    }
)

_NAME = ("name",)
_TYPE = ("type",)

MAP_LISTS: dict[str, tuple[str, ...]] = {
    "Container.env": _NAME,
    "Container.ports": ("containerPort", "protocol"),
    "Container.volumeDevices": ("devicePath",),
    "Container.volumeMounts": ("mountPath",),
    "ContainerStatus.allocatedResourcesStatus": _NAME,
    "ContainerStatus.volumeMounts": ("mountPath",),
    "CustomResourceDefinitionStatus.conditions": _TYPE,
    "DaemonSetStatus.conditions": _TYPE,
    "DeploymentStatus.conditions": _TYPE,
    "EphemeralContainer.env": _NAME,
    "EphemeralContainer.ports": ("containerPort", "protocol"),
    "EphemeralContainer.volumeDevices": ("devicePath",),
    "EphemeralContainer.volumeMounts": ("mountPath",),
    "JSONSchemaProps.x-kubernetes-validations": ("rule",),
    "NamespaceStatus.conditions": _TYPE,
    "NodeStatus.addresses": _TYPE,
    "NodeStatus.conditions": _TYPE,
    "ObjectMeta.ownerReferences": ("uid",),
    "PersistentVolumeClaimStatus.conditions": _TYPE,
    "PodDisruptionBudgetStatus.conditions": _TYPE,
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
    "PodStatus.conditions": _TYPE,
    "PodStatus.podIPs": ("ip",),
    "PodStatus.resourceClaimStatuses": _NAME,
    "ReplicaSetStatus.conditions": _TYPE,
    "ReplicationControllerStatus.conditions": _TYPE,
    "ResourceRequirements.claims": _NAME,
    "ResourceStatus.resources": ("resourceID",),
    "ServiceAccount.secrets": _NAME,
    "ServiceSpec.ports": ("port", "protocol"),
    "ServiceStatus.conditions": _TYPE,
    "StatefulSetStatus.conditions": _TYPE,
}

SET_LISTS = frozenset(
    {
        "ContainerRestartRuleOnExitCodes.values",
        "NodeAllocatableResourceClaimStatus.containers",
        "NodeSpec.podCIDRs",
        "ObjectMeta.finalizers",
    }
)

# Strategic merge patch: (merge key, strategy). Map lists not named here merge by their first key.
MERGE: dict[str, tuple[str | None, str]] = {
    "DeploymentSpec.strategy": (None, "retainKeys"),
    "NodeSpec.podCIDRs": (None, "merge"),
    "ObjectMeta.finalizers": (None, "merge"),
    "PodDisruptionBudgetSpec.selector": (None, "replace"),
    "PodSpec.resourceClaims": ("name", "merge,retainKeys"),
    "PodSpec.volumes": ("name", "merge,retainKeys"),
    "PodStatus.hostIPs": ("ip", "merge"),
    "PodStatus.resourceClaimStatuses": ("name", "merge,retainKeys"),
}
# Map lists for apply that a strategic merge patch nevertheless replaces.
REPLACED_MAP_LISTS = frozenset({"ResourceRequirements.claims", "ResourceStatus.resources"})

ATOMIC_TYPES = frozenset(
    {
        "ConfigMapKeySelector",
        "EndpointAddress",
        "EndpointPort",
        "FileKeySelector",
        "LabelSelector",
        "LocalObjectReference",
        "NodeSelector",
        "NodeSelectorTerm",
        "ObjectFieldSelector",
        "ObjectReference",
        "OwnerReference",
        "ResourceFieldSelector",
        "RoleRef",
        "ScopeSelector",
        "SecretKeySelector",
        "SecretReference",
        "Subject",
        "TopologySelectorTerm",
        "TypedLocalObjectReference",
    }
)
ATOMIC_FIELDS = frozenset(
    {"PodSpec.nodeSelector", "ReplicationControllerSpec.selector", "ServiceSpec.selector"}
)

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
    "ServicePort.protocol": "TCP",
}

QUANTITY_MAPS = frozenset(
    {
        "ContainerStatus.allocatedResources",
        "LimitRangeItem.default",
        "LimitRangeItem.defaultRequest",
        "LimitRangeItem.max",
        "LimitRangeItem.maxLimitRequestRatio",
        "LimitRangeItem.min",
        "NodeStatus.allocatable",
        "NodeStatus.capacity",
        "PersistentVolumeClaimStatus.allocatedResources",
        "PersistentVolumeClaimStatus.capacity",
        "PersistentVolumeSpec.capacity",
        "PodSpec.overhead",
        "PodStatus.allocatedResources",
        "ResourceQuotaSpec.hard",
        "ResourceQuotaStatus.hard",
        "ResourceQuotaStatus.used",
        "ResourceRequirements.limits",
        "ResourceRequirements.requests",
        "VolumeResourceRequirements.limits",
        "VolumeResourceRequirements.requests",
    }
)
BYTE_MAPS = frozenset({"ConfigMap.binaryData", "Secret.data"})
BYTE_FIELDS = frozenset({"WebhookClientConfig.caBundle"})

_STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
# A value that starts with "$" names a model type.
OTHER_MAPS: dict[str, Any] = {
    "JSONSchemaProps.definitions": "$JSONSchemaProps",
    "JSONSchemaProps.dependencies": {"x-kubernetes-preserve-unknown-fields": True},
    "JSONSchemaProps.patternProperties": "$JSONSchemaProps",
    "JSONSchemaProps.properties": "$JSONSchemaProps",
    "PodDisruptionBudgetStatus.disruptedPods": {"type": "string", "format": "date-time"},
    "SubjectAccessReviewSpec.extra": _STRINGS,
    "UserInfo.extra": _STRINGS,
}

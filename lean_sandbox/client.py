"""The four kinds as typed resources of lightkube, for Python programs that use them.

``lightkube.Client`` and ``lightkube.AsyncClient`` create, get, list, watch, patch and delete them
as they do Pods; ``docs/python.md`` has examples. The controller imports nothing of this module.

Names and types are those of the CustomResourceDefinitions; what is left out is absent in the
request. Custom resources are patched with ``PatchType.MERGE``: servers refuse lightkube's default.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from lightkube.core.resource import (
    ApiInfo,
    NamespacedResourceG,
    NamespacedSubResource,
    ResourceDef,
    api_info,
)
from lightkube.core.schema import DictMixin
from lightkube.models import autoscaling_v1
from lightkube.models.core_v1 import PersistentVolumeClaimSpec, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.networking_v1 import NetworkPolicyEgressRule, NetworkPolicyIngressRule

READY: Final = "Ready"
"""The condition that says whether a Sandbox, or that of a claim, can be used."""

_VERBS: Final = [
    *("delete", "deletecollection", "get", "list", "patch", "post", "put", "watch"),
    *("global_list", "global_watch"),
]

Injection = Literal["Allowed", "Overrides", "Disallowed"]


def _resource(group: str, kind: str, plural: str) -> ApiInfo:
    return ApiInfo(ResourceDef(group, "v1beta1", kind), plural, list(_VERBS))


def _subresource(of: ApiInfo, action: str, answers: ResourceDef | None = None) -> ApiInfo:
    verbs = ["get", "patch", "put"]
    return ApiInfo(answers or of.resource, of.plural, verbs, parent=of.resource, action=action)


_SANDBOXES: Final = _resource("agents.x-k8s.io", "Sandbox", "sandboxes")
_CLAIMS: Final = _resource("extensions.agents.x-k8s.io", "SandboxClaim", "sandboxclaims")
_TEMPLATES: Final = _resource("extensions.agents.x-k8s.io", "SandboxTemplate", "sandboxtemplates")
_POOLS: Final = _resource("extensions.agents.x-k8s.io", "SandboxWarmPool", "sandboxwarmpools")


class _Object(DictMixin, kw_only=True):
    apiVersion: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None

    def __post_init__(self) -> None:
        # A subresource is sent with the kind of its object.
        resource = api_info(self).resource  # type: ignore[arg-type]
        self.apiVersion = resource.api_version
        self.kind = resource.kind


class Condition(DictMixin, kw_only=True):
    """One condition of a status, as metav1.Condition."""

    type: str
    status: Literal["True", "False", "Unknown"]
    lastTransitionTime: datetime
    reason: str
    message: str
    observedGeneration: int | None = None


class Reference(DictMixin, kw_only=True):
    """A reference by name to another object in the same namespace."""

    name: str


class EmbeddedMetadata(DictMixin, kw_only=True):
    """Labels and annotations of the objects made from a template."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(DictMixin, kw_only=True):
    """What the Pod of a Sandbox is made from."""

    spec: PodSpec
    metadata: EmbeddedMetadata | None = None


class VolumeMetadata(EmbeddedMetadata, kw_only=True):
    """Metadata of a PersistentVolumeClaim; ``name`` is that of the Pod's volume."""

    name: str | None = None


class VolumeClaimTemplate(DictMixin, kw_only=True):
    """What a PersistentVolumeClaim of a Sandbox is made from."""

    spec: PersistentVolumeClaimSpec
    metadata: VolumeMetadata | None = None


class SandboxSpec(DictMixin, kw_only=True):
    """The Sandbox as it should be."""

    podTemplate: PodTemplate
    operatingMode: Literal["Running", "Suspended"] | None = None
    service: bool | None = None
    shutdownPolicy: Literal["Delete", "Retain"] | None = None
    shutdownTime: datetime | None = None
    volumeClaimTemplates: list[VolumeClaimTemplate] | None = None


class SandboxStatus(DictMixin, kw_only=True):
    """The Sandbox as it is."""

    conditions: list[Condition] | None = None
    nodeName: str | None = None
    podIPs: list[str] | None = None
    selector: str | None = None
    service: str | None = None
    serviceFQDN: str | None = None


class _Sandbox(_Object, kw_only=True):
    spec: SandboxSpec
    status: SandboxStatus | None = None


class Sandbox(NamespacedResourceG, _Sandbox):
    """One isolated workload with a stable identity."""

    _api_info = _SANDBOXES

    class Status(NamespacedSubResource, _Sandbox):
        """The status subresource."""

        _api_info = _subresource(_SANDBOXES, "status")


class NetworkPolicyRules(DictMixin, kw_only=True):
    """The rules of the NetworkPolicy that is made for the template's Sandboxes."""

    ingress: list[NetworkPolicyIngressRule] | None = None
    egress: list[NetworkPolicyEgressRule] | None = None


class SandboxTemplateSpec(DictMixin, kw_only=True):
    """What Sandboxes made from the template have in common."""

    podTemplate: PodTemplate
    envVarsInjectionPolicy: Injection | None = None
    networkPolicy: NetworkPolicyRules | None = None
    networkPolicyManagement: Literal["Managed", "Unmanaged"] | None = None
    service: bool | None = None
    volumeClaimTemplates: list[VolumeClaimTemplate] | None = None
    volumeClaimTemplatesPolicy: Injection | None = None


class SandboxTemplate(NamespacedResourceG, _Object, kw_only=True):
    """What Sandboxes of a pool are made from. It has no status."""

    spec: SandboxTemplateSpec

    _api_info = _TEMPLATES


class UpdateStrategy(DictMixin, kw_only=True):
    """How members are replaced when their template has changed."""

    type: Literal["Recreate", "OnReplenish"] | None = None


class SandboxWarmPoolSpec(DictMixin, kw_only=True):
    """How many Sandboxes are kept ready, and from which template."""

    sandboxTemplateRef: Reference
    replicas: int | None = None
    readinessGracePeriodSeconds: int | None = None
    updateStrategy: UpdateStrategy | None = None


class SandboxWarmPoolStatus(DictMixin, kw_only=True):
    """How many Sandboxes there are."""

    observedGeneration: int | None = None
    readyReplicas: int = 0
    replicas: int = 0
    selector: str | None = None


class _SandboxWarmPool(_Object, kw_only=True):
    spec: SandboxWarmPoolSpec
    status: SandboxWarmPoolStatus | None = None


class SandboxWarmPool(NamespacedResourceG, _SandboxWarmPool):
    """Sandboxes that are kept ready for claims."""

    _api_info = _POOLS

    class Status(NamespacedSubResource, _SandboxWarmPool):
        """The status subresource."""

        _api_info = _subresource(_POOLS, "status")

    class Scale(NamespacedSubResource, autoscaling_v1.Scale):
        """The subresource that sets ``spec.replicas``."""

        _api_info = _subresource(_POOLS, "scale", ResourceDef("autoscaling", "v1", "Scale"))


class ClaimEnv(DictMixin, kw_only=True):
    """A variable for a container of the Sandbox; without a container for the first one."""

    name: str
    value: str
    containerName: str | None = None


class ClaimLifecycle(DictMixin, kw_only=True):
    """When the claim ends, and what happens to it then."""

    shutdownPolicy: Literal["Delete", "DeleteForeground", "Retain"] | None = None
    shutdownTime: datetime | None = None
    ttlSecondsAfterFinished: int | None = None


class SandboxClaimSpec(DictMixin, kw_only=True):
    """The pool to take a Sandbox from, and what is particular to it."""

    warmPoolRef: Reference
    additionalPodMetadata: EmbeddedMetadata | None = None
    env: list[ClaimEnv] | None = None
    lifecycle: ClaimLifecycle | None = None
    volumeClaimTemplates: list[VolumeClaimTemplate] | None = None


class ClaimedSandbox(DictMixin, kw_only=True):
    """The Sandbox that a claim was given."""

    name: str | None = None
    podIPs: list[str] | None = None
    serviceFQDN: str | None = None


class SandboxClaimStatus(DictMixin, kw_only=True):
    """What the claim has been given."""

    conditions: list[Condition] | None = None
    sandbox: ClaimedSandbox | None = None


class _SandboxClaim(_Object, kw_only=True):
    spec: SandboxClaimSpec
    status: SandboxClaimStatus | None = None


class SandboxClaim(NamespacedResourceG, _SandboxClaim):
    """A request for a Sandbox, which comes from a pool if one is ready."""

    _api_info = _CLAIMS

    class Status(NamespacedSubResource, _SandboxClaim):
        """The status subresource."""

        _api_info = _subresource(_CLAIMS, "status")


KINDS: Final = (Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool)


def condition(of: _Sandbox | _SandboxClaim, type_: str = READY) -> Condition | None:
    """Return a condition of an object's status, None while it has none of that type."""
    conditions = of.status.conditions if of.status is not None else None
    return next((one for one in conditions or () if one.type == type_), None)


def is_ready(of: _Sandbox | _SandboxClaim) -> bool:
    """Return whether the condition Ready is True, and says so of the object as it is now.

    An object that was just changed keeps its old conditions until the controller has seen it: one
    that is to be suspended is not ready, although it still says so.
    """
    found = condition(of)
    if found is None or found.status != "True":
        return False
    seen = found.observedGeneration
    newest = of.metadata.generation if of.metadata is not None else None
    return seen is None or newest is None or seen >= newest

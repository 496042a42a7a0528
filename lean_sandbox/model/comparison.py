"""Whether objects still say what they should, compared as the typed API would.

Null, empty and absent lists and maps are one, quantities count by value, and a zero counts as
absent unless its field tells the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from lean_sandbox.model.names import TEMPLATE_HASH_LABEL, TEMPLATE_REF_HASH_LABEL
from lean_sandbox.model.quantity import canonical_quantity
from lean_sandbox.model.sandbox import PodTemplateMetadata, SandboxSpec
from lean_sandbox.model.service import DEFAULT_PROTOCOL
from lean_sandbox.model.template import TemplateView, blueprint_spec
from lean_sandbox.model.wire import ODD

# Fields that tell absent from zero (false, 0, "") in core/v1; every other scalar does not, and a
# controller that sends typed objects leaves the zero of those out.
_TELLS_ABSENT: Final = frozenset(
    # Of Pods,
    {"activeDeadlineSeconds", "automountServiceAccountToken", "enableServiceLinks", "hostUsers"}
    | {"hostnameOverride", "preemptionPolicy", "priority", "resourceClaimName"}
    | {"resourceClaimTemplateName", "runtimeClassName", "setHostnameAsFQDN"}
    | {"shareProcessNamespace", "terminationGracePeriodSeconds", "tolerationSeconds"}
    | {"minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy"}
    # of security contexts,
    | {"allowPrivilegeEscalation", "fsGroup", "fsGroupChangePolicy", "gmsaCredentialSpec"}
    | {"gmsaCredentialSpecName", "hostProcess", "localhostProfile", "privileged", "procMount"}
    | {"readOnlyRootFilesystem", "runAsGroup", "runAsNonRoot", "runAsUser", "runAsUserName"}
    | {"seLinuxChangePolicy", "supplementalGroupsPolicy"}
    # of containers and volumes.
    | {"stopSignal", "optional", "mountPropagation", "recursiveReadOnly"}
    | {"cachingMode", "defaultMode", "expirationSeconds", "lun", "maxExpirationSeconds", "mode"}
    | {"signerName", "storageClassName", "volumeAttributesClassName", "volumeMode"}
)
# The same by the field around it, for names that are plain elsewhere.
_TELLS_ABSENT_WITHIN: Final = frozenset(
    {("azureDisk", "fsType"), ("azureDisk", "kind"), ("azureDisk", "readOnly")}
    | {("csi", "fsType"), ("csi", "readOnly"), ("clusterTrustBundle", "name")}
    | {("emptyDir", "sizeLimit"), ("grpc", "service"), ("hostPath", "type")}
    | {("iscsi", "initiatorName"), ("options", "value")}
)
_QUANTITY_MAPS: Final = frozenset({"limits", "overhead", "requests"})
_QUANTITY_FIELDS: Final = frozenset({("emptyDir", "sizeLimit"), ("resourceFieldRef", "divisor")})
# Maps: an empty value in one is a value. No string map of core/v1 holds an object, so a name here
# can only be met as the map it is meant to be.
_MAPS: Final = _QUANTITY_MAPS | frozenset(
    {"annotations", "labels", "matchLabels", "nodeSelector", "volumeAttributes"}
)
# Objects whose emptiness means the same as their absence: maps, and structs held by value.
_SAME_WHEN_EMPTY: Final = _MAPS | frozenset({"metadata", "resources"})


def canonical(value: Any, key: str = "spec", parent: str = "") -> Any:
    """Return a value that equals that of every other notation with the same meaning.

    ``value`` is the field ``key`` of an object that is itself called ``parent``.
    """
    if isinstance(value, Mapping):
        fields = {k: canonical(v, k, key) for k, v in value.items()}
        if key in _MAPS:
            return {k: v for k, v in fields.items() if v is not None}
        if key == "ports":
            fields["protocol"] = fields.get("protocol") or DEFAULT_PROTOCOL
        return {k: v for k, v in fields.items() if not _is_absent(v, k, key)}
    if isinstance(value, list | tuple):
        # The elements are called like their list.
        return [canonical(entry, key, parent) for entry in value]
    if parent in _QUANTITY_MAPS or (parent, key) in _QUANTITY_FIELDS:
        return canonical_quantity(value)
    return value


def _is_absent(value: Any, key: str, parent: str) -> bool:
    if value is None or value == []:
        return True
    if value == {}:
        return key in _SAME_WHEN_EMPTY
    if isinstance(value, dict | list) or value:
        return False
    return key not in _TELLS_ABSENT and (parent, key) not in _TELLS_ABSENT_WITHIN


# --- blueprints ----------------------------------------------------------------------------------


def is_same_blueprint(template: TemplateView, spec: SandboxSpec) -> bool:
    """Return whether ``template`` would now give a Sandbox the Pod and claims of ``spec``.

    Labels and annotations, of the Pod and of claim templates, never count; order of claim templates
    does.
    """
    return _comparable(blueprint_spec(template, PodTemplateMetadata())) == _comparable(spec)


def _comparable(spec: SandboxSpec) -> tuple[Any, ...]:
    claims = [
        (entry.name, canonical(msgspec.json.decode(entry.spec) or {}))
        for entry in spec.volumeClaimTemplates or ()
    ]
    pod_spec = msgspec.json.decode(spec.podTemplate.spec) or {}
    return canonical(pod_spec), claims, spec.service


class Verdict(Enum):
    """Whether a pool member still fits its template."""

    FRESH = "fresh"
    STALE = "stale"
    # Labels do not tell: the spec of the Sandbox has to be compared.
    UNDECIDED = "undecided"


class Staleness:
    """Which members of a pool no longer fit one state of its template.

    The stamp of a member, the hash of its blueprint, tells at once when it is the template's own.
    Any other stamp, or none, proves nothing: another implementation hashes differently. Then the
    spec is compared, once for all members with the same stamp.
    """

    __slots__ = ("_verdicts", "template")

    def __init__(self, template: TemplateView) -> None:
        self.template = template
        self._verdicts: dict[str, Verdict] = {}

    def by_stamp(self, stamp: str) -> Verdict:
        """Return what a stamp tells; the name of the template is not looked at."""
        if stamp == self.template.blueprint_hash:
            return Verdict.FRESH
        return self._verdicts.get(stamp, Verdict.UNDECIDED)

    def by_labels(self, labels: Mapping[str, str] | None, *, is_orphan: bool) -> Verdict:
        """Return what the labels of a Sandbox tell; the stamp of an orphan is not trusted."""
        labels = labels or {}
        if labels.get(TEMPLATE_REF_HASH_LABEL) != self.template.ref_hash:
            return Verdict.STALE
        return (
            Verdict.UNDECIDED if is_orphan else self.by_stamp(labels.get(TEMPLATE_HASH_LABEL, ""))
        )

    def by_spec(self, stamp: str, spec: SandboxSpec) -> Verdict:
        """Compare the spec of a Sandbox, and remember the verdict for its stamp if it has one."""
        try:
            verdict = Verdict.FRESH if is_same_blueprint(self.template, spec) else Verdict.STALE
        except ODD:
            verdict = Verdict.STALE
        if stamp:
            self._verdicts[stamp] = verdict
        return verdict

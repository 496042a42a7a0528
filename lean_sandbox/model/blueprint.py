"""Blueprints: what of a template goes into a Sandbox, their hashes, and whether one is outdated.

A blueprint is ``podTemplate`` + ``volumeClaimTemplates`` + ``service``. Hashes are labels of this
implementation alone: a member stamped by another one mismatches and is judged by comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Protocol

import msgspec

from lean_sandbox.model.names import (
    MANAGEMENT_UNMANAGED,
    TEMPLATE_HASH_LABEL,
    TEMPLATE_REF_HASH_LABEL,
)
from lean_sandbox.model.quantity import canonical_quantity
from lean_sandbox.model.sandbox import PodTemplate, SandboxSpec, VolumeClaimTemplate
from lean_sandbox.model.sharing import small_values
from lean_sandbox.model.wire import ODD

Json = dict[str, Any]

# Resolvers outside the cluster: the default policy cuts Pods off from private addresses.
_PUBLIC_NAMESERVERS: Final = ("8.8.8.8", "1.1.1.1")

# Fields that tell absent from zero (false, 0, "") in core/v1; every other scalar does not, and a
# controller that sends typed objects leaves the zero of those out.
_TELLS_ABSENT: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "allowPrivilegeEscalation",
        "automountServiceAccountToken",
        "cachingMode",
        "defaultMode",
        "enableServiceLinks",
        "expirationSeconds",
        "fsGroup",
        "fsGroupChangePolicy",
        "gmsaCredentialSpec",
        "gmsaCredentialSpecName",
        "hostProcess",
        "hostUsers",
        "hostnameOverride",
        "localhostProfile",
        "lun",
        "maxExpirationSeconds",
        "minDomains",
        "mode",
        "mountPropagation",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "optional",
        "preemptionPolicy",
        "priority",
        "privileged",
        "procMount",
        "readOnlyRootFilesystem",
        "recursiveReadOnly",
        "resourceClaimName",
        "resourceClaimTemplateName",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "runAsUserName",
        "runtimeClassName",
        "seLinuxChangePolicy",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "signerName",
        "stopSignal",
        "storageClassName",
        "supplementalGroupsPolicy",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
        "volumeAttributesClassName",
        "volumeMode",
    }
)
# The same by the field around it, for names that are plain elsewhere.
_TELLS_ABSENT_WITHIN: Final = frozenset(
    {
        ("azureDisk", "fsType"),
        ("azureDisk", "kind"),
        ("azureDisk", "readOnly"),
        ("clusterTrustBundle", "name"),
        ("csi", "fsType"),
        ("csi", "readOnly"),
        ("emptyDir", "sizeLimit"),
        ("grpc", "service"),
        ("hostPath", "type"),
        ("iscsi", "initiatorName"),
        ("options", "value"),
    }
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


class BlueprintSource(Protocol):
    """What judging a Sandbox needs of its template."""

    @property
    def ref_hash(self) -> str:
        """Hash of the template's name."""

    @property
    def blueprint_hash(self) -> str:
        """Hash of the blueprint."""

    @property
    def sandbox_spec_json(self) -> bytes:
        """The spec of a Sandbox made from it, secure defaults applied."""


# --- hashes --------------------------------------------------------------------------------------


def pod_template_body(template: PodTemplate) -> Json:
    """Return a ``podTemplate`` as plain data; its metadata is always there."""
    metadata = {"labels": template.metadata.labels, "annotations": template.metadata.annotations}
    return {
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": template.read_spec(),
    }


def blueprint_body(
    template: PodTemplate,
    claims: Iterable[VolumeClaimTemplate] | None,
    *,
    service: bool | None,
) -> Json:
    """Return a blueprint as plain data, without the parts that are unset."""
    body: Json = {"podTemplate": pod_template_body(template)}
    if claims:
        try:
            body["volumeClaimTemplates"] = [
                msgspec.json.decode(msgspec.json.encode(entry)) for entry in claims
            ]
        except ODD as error:
            raise ValueError(f"spec.volumeClaimTemplates: {error}") from None
    if service is not None:
        body["service"] = service
    return body


def blueprint_hash(blueprint: Json) -> str:
    """Return the hash of what :func:`blueprint_body` returned; the order of keys is no matter."""
    return _json_hash(blueprint)


def pod_template_hash(pod_template: Json) -> str:
    """Return the hash of a ``podTemplate`` alone, kept for readers outside."""
    return _json_hash(pod_template)


def _json_hash(value: Json) -> str:
    from hashlib import blake2b  # noqa: PLC0415 -- with the first template only

    # A template may have a megabyte, and bytewise arithmetic would hold up everybody else.
    return blake2b(msgspec.json.encode(value, order="sorted"), digest_size=4).hexdigest()


# --- secure defaults -----------------------------------------------------------------------------


def apply_secure_defaults(pod_spec: Json, management: str, *, network_policy_present: bool) -> Json:
    """Return ``pod_spec`` as it goes into Sandboxes of a template (rules D1 and D2).

    No token unless asked for; public resolvers where the default policy makes the cluster's own
    unreachable. ``pod_spec`` itself is not changed; applying twice changes nothing more.
    """
    secured = dict(pod_spec)
    if secured.get("automountServiceAccountToken") is None:
        secured["automountServiceAccountToken"] = False
    is_managed = management != MANAGEMENT_UNMANAGED
    if is_managed and not network_policy_present and not secured.get("dnsPolicy"):
        secured["dnsPolicy"] = "None"
        secured["dnsConfig"] = {"nameservers": list(_PUBLIC_NAMESERVERS)}
    return secured


# --- comparison ----------------------------------------------------------------------------------


def is_same_blueprint(template: BlueprintSource, spec: SandboxSpec) -> bool:
    """Return whether ``template`` would now give a Sandbox the Pod and claims of ``spec``.

    Equality is that of the typed API: null, empty and absent lists and maps are one, quantities
    count by value, fields that tell absent from zero do so. Labels and annotations, of the Pod
    and of claim templates, never count; order of claim templates does.
    """
    return _canonical_template(template.sandbox_spec_json) == _comparable(spec)


# As objects, a spec takes about ten times the bytes of its JSON.
@small_values(16, 16 * 1024)
def _canonical_template(spec_json: bytes) -> tuple[Any, ...]:
    return _comparable(msgspec.json.decode(spec_json, type=SandboxSpec))


def _comparable(spec: SandboxSpec) -> tuple[Any, ...]:
    claims = tuple(
        (entry.name, _canonical(msgspec.json.decode(entry.spec) or {}, "spec", ""))
        for entry in spec.volumeClaimTemplates or ()
    )
    pod_spec = msgspec.json.decode(spec.podTemplate.spec) or {}
    return _canonical(pod_spec, "spec", ""), claims, spec.service


def _canonical(value: Any, key: str, parent: str) -> Any:
    """Return ``value``, the field ``key`` of an object that is itself called ``parent``."""
    if isinstance(value, dict):
        fields = ((k, _canonical(v, k, key)) for k, v in value.items())
        if key in _MAPS:
            return {k: v for k, v in fields if v is not None}
        return {k: v for k, v in fields if not _is_absent(v, k, key)}
    if isinstance(value, list):
        # The elements are called like their list.
        return [_canonical(entry, key, parent) for entry in value]
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


# --- staleness -----------------------------------------------------------------------------------


class Verdict(Enum):
    """Whether a pool member still fits its template."""

    FRESH = "fresh"
    STALE = "stale"
    # Labels do not tell: the spec of the Sandbox has to be compared.
    UNDECIDED = "undecided"


class Staleness:
    """Judges the members of one pool against one template during one pass.

    Ask :meth:`by_labels` first, and fetch the spec for :meth:`by_spec` only when it is undecided:
    of all members with the same old hash one comparison is made.
    """

    __slots__ = ("_template", "_verdicts")

    def __init__(self, template: BlueprintSource) -> None:
        self._template = template
        self._verdicts: dict[str, Verdict] = {}

    def by_labels(self, labels: Mapping[str, str] | None, *, is_orphan: bool) -> Verdict:
        """Return what the labels of a Sandbox tell; those of an orphan are not trusted."""
        labels = labels or {}
        if labels.get(TEMPLATE_REF_HASH_LABEL) != self._template.ref_hash:
            return Verdict.STALE
        if is_orphan:
            return Verdict.UNDECIDED
        stamped = labels.get(TEMPLATE_HASH_LABEL, "")
        if stamped and stamped == self._template.blueprint_hash:
            return Verdict.FRESH
        if not self._template.blueprint_hash:
            return Verdict.FRESH
        return self._verdicts.get(stamped, Verdict.UNDECIDED) if stamped else Verdict.UNDECIDED

    def by_spec(
        self, labels: Mapping[str, str] | None, spec: SandboxSpec, *, is_orphan: bool
    ) -> Verdict:
        """Return the verdict on a Sandbox whose labels left it undecided, and remember it."""
        try:
            verdict = Verdict.FRESH if is_same_blueprint(self._template, spec) else Verdict.STALE
        except ODD:
            verdict = Verdict.STALE
        stamped = (labels or {}).get(TEMPLATE_HASH_LABEL, "")
        if stamped and not is_orphan:
            self._verdicts[stamped] = verdict
        return verdict


def claim_verdict(template: BlueprintSource, labels: Mapping[str, str] | None) -> Verdict:
    """Return whether a claim of a Recreate pool may take the member with ``labels``.

    Never stale at once: an unknown or missing hash is undecided, and :func:`is_same_blueprint`
    decides. The name of the template is not looked at.
    """
    stamped = (labels or {}).get(TEMPLATE_HASH_LABEL, "")
    return Verdict.FRESH if stamped == template.blueprint_hash else Verdict.UNDECIDED

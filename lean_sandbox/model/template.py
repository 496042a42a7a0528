"""The SandboxTemplate kind, and what is remembered of each one.

The view holds everything a cold claim, a pool member or the shared NetworkPolicy is made of, so
that none of them costs a GET of the template.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.sandbox import PodTemplate, PodTemplateMetadata, VolumeClaimTemplate
from lean_sandbox.model.sharing import interned, small_values
from lean_sandbox.model.wire import ODD, Lenient, OrNull

Json = dict[str, Any]

# Of a template whose parsed spec is remembered.
_MOST_SPEC_BYTES: Final = 32 * 1024
# Resolvers outside the cluster: the default policy cuts Pods off from private addresses.
_PUBLIC_NAMESERVERS: Final = ("8.8.8.8", "1.1.1.1")
_ABSENT: Final = msgspec.Raw(b"null")


class SandboxTemplateSpec(Lenient, frozen=True):
    """``spec`` of a SandboxTemplate; an empty enum value means its default."""

    podTemplate: OrNull[PodTemplate] = PodTemplate()
    volumeClaimTemplates: tuple[VolumeClaimTemplate, ...] | None = None
    service: bool | None = None
    # Absent (null) and present but empty are two different things.
    networkPolicy: msgspec.Raw = _ABSENT
    networkPolicyManagement: OrNull[str] = names.MANAGEMENT_MANAGED
    envVarsInjectionPolicy: OrNull[str] = names.INJECTION_DISALLOWED
    volumeClaimTemplatesPolicy: OrNull[str] = names.INJECTION_DISALLOWED

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, default in (
            ("networkPolicyManagement", names.MANAGEMENT_MANAGED),
            ("envVarsInjectionPolicy", names.INJECTION_DISALLOWED),
            ("volumeClaimTemplatesPolicy", names.INJECTION_DISALLOWED),
        ):
            # Objects stored before the default existed have none.
            msgspec.structs.force_setattr(self, field, getattr(self, field) or default)

    @property
    def has_network_policy(self) -> bool:
        """Whether the template brings rules of its own, be it none at all (``{}``)."""
        return bytes(self.networkPolicy) != bytes(_ABSENT)

    @property
    def is_managed(self) -> bool:
        """Whether the controller keeps a NetworkPolicy for the template."""
        return self.networkPolicyManagement != names.MANAGEMENT_UNMANAGED


class SandboxTemplate(Lenient, frozen=True):
    """A SandboxTemplate. Its Raw parts keep the message it was decoded from alive: make a view."""

    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[SandboxTemplateSpec] = SandboxTemplateSpec()


class TemplateView(msgspec.Struct, frozen=True, gc=False):
    """What is kept in memory of a template: one copy for all pools and claims that use it."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    ref_hash: str = ""
    blueprint_hash: str = ""
    pod_template_hash: str = ""
    # podTemplate.metadata, reserved keys included.
    pod_metadata: PodTemplateMetadata = PodTemplateMetadata()
    is_managed: bool = True
    env_policy: str = names.INJECTION_DISALLOWED
    claim_templates_policy: str = names.INJECTION_DISALLOWED
    # The spec of a Sandbox without podTemplate.metadata, secure defaults applied, as JSON.
    sandbox_spec_json: bytes = b"{}"
    # spec.networkPolicy as JSON; None: the secure default rules apply.
    network_policy_json: bytes | None = None


def view_of_template(template: SandboxTemplate) -> TemplateView:
    """Return what decisions need of ``template``, detached from the message it came in.

    Raises ValueError: the spec of the Pod, of a claim or of the policy is not an object or cannot
    be read; the text names the field.
    """
    meta, spec = template.metadata, template.spec
    blueprint = _blueprint(spec)
    rules = bytes(spec.networkPolicy) if spec.has_network_policy else None
    if rules is not None:
        try:
            msgspec.json.decode(rules, type=dict[str, Any])
        except ODD as error:
            raise ValueError(f"spec.networkPolicy: {error}") from None
    return TemplateView(
        name=meta.name,
        namespace=interned(meta.namespace),
        uid=meta.uid,
        generation=meta.generation,
        ref_hash=names.name_hash(meta.name),
        blueprint_hash=json_hash(blueprint),
        pod_template_hash=json_hash(blueprint["podTemplate"]),
        pod_metadata=spec.podTemplate.metadata,
        is_managed=spec.is_managed,
        env_policy=interned(spec.envVarsInjectionPolicy),
        claim_templates_policy=interned(spec.volumeClaimTemplatesPolicy),
        sandbox_spec_json=_sandbox_spec_json(blueprint, spec),
        network_policy_json=rules,
    )


class _SpecParts(msgspec.Struct, frozen=True, gc=False):
    podTemplate: dict[str, msgspec.Raw]
    volumeClaimTemplates: msgspec.Raw = _ABSENT
    service: bool | None = None


@small_values(32, _MOST_SPEC_BYTES)
def _parts(spec_json: bytes) -> _SpecParts:
    return msgspec.json.decode(spec_json, type=_SpecParts)


def blueprint_spec(view: TemplateView, pod_metadata: PodTemplateMetadata) -> Json:
    """Return the ``spec`` of a Sandbox made from the template, with ``pod_metadata`` on its Pod.

    The Pod's spec and the claim templates stay raw JSON; the top two levels are the caller's own.
    """
    parts = _parts(view.sandbox_spec_json)
    pod_template: Json = {"spec": parts.podTemplate["spec"]}
    if metadata := msgspec.to_builtins(pod_metadata):
        pod_template["metadata"] = metadata
    spec: Json = {"podTemplate": pod_template}
    if bytes(parts.volumeClaimTemplates) != bytes(_ABSENT):
        spec["volumeClaimTemplates"] = parts.volumeClaimTemplates
    if parts.service is not None:
        spec["service"] = parts.service
    return spec


def ref_hash_patch(name: str, labels: dict[str, str] | None) -> Json | None:
    """Return the merge patch that labels the template ``name`` with its hash, None when it is."""
    wanted = names.name_hash(name)
    if (labels or {}).get(names.TEMPLATE_REF_HASH_LABEL) == wanted:
        return None
    return {"metadata": {"labels": {names.TEMPLATE_REF_HASH_LABEL: wanted}}}


def _sandbox_spec_json(blueprint: Json, spec: SandboxTemplateSpec) -> bytes:
    secured = apply_secure_defaults(
        blueprint["podTemplate"]["spec"] or {},
        spec.networkPolicyManagement,
        network_policy_present=spec.has_network_policy,
    )
    return msgspec.json.encode({**blueprint, "podTemplate": {"spec": secured}})


# --- blueprints ----------------------------------------------------------------------------------
# What of a template goes into a Sandbox: podTemplate, volumeClaimTemplates and service. Its hash is
# a label of this implementation alone.


def _blueprint(spec: SandboxTemplateSpec) -> Json:
    """Return a blueprint as plain data, without the parts that are unset."""
    metadata = msgspec.to_builtins(spec.podTemplate.metadata)
    body: Json = {
        "podTemplate": {
            "metadata": {key: value for key, value in metadata.items() if value},
            "spec": spec.podTemplate.read_spec(),
        }
    }
    if spec.volumeClaimTemplates:
        try:
            body["volumeClaimTemplates"] = [
                msgspec.json.decode(msgspec.json.encode(entry))
                for entry in spec.volumeClaimTemplates
            ]
        except ODD as error:
            raise ValueError(f"spec.volumeClaimTemplates: {error}") from None
    if spec.service is not None:
        body["service"] = spec.service
    return body


def json_hash(value: Json) -> str:
    """Return a hash of plain data; the order of keys does not count."""
    from hashlib import blake2b  # noqa: PLC0415 -- with the first template only

    # A template may have a megabyte, and bytewise arithmetic would hold up everybody else.
    return blake2b(msgspec.json.encode(value, order="sorted"), digest_size=4).hexdigest()


def apply_secure_defaults(pod_spec: Json, management: str, *, network_policy_present: bool) -> Json:
    """Return ``pod_spec`` as it goes into Sandboxes of a template (rules D1 and D2).

    No token unless asked for; public resolvers where the default policy makes the cluster's own
    unreachable. ``pod_spec`` itself is not changed; applying twice changes nothing more.
    """
    secured = dict(pod_spec)
    if secured.get("automountServiceAccountToken") is None:
        secured["automountServiceAccountToken"] = False
    is_managed = management != names.MANAGEMENT_UNMANAGED
    if is_managed and not network_policy_present and not secured.get("dnsPolicy"):
        secured["dnsPolicy"] = "None"
        secured["dnsConfig"] = {"nameservers": list(_PUBLIC_NAMESERVERS)}
    return secured

"""The SandboxTemplate kind, and what is remembered of each one."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.comparison import canonical
from lean_sandbox.model.meta import ObjectMeta, controller_reference
from lean_sandbox.model.sandbox import (
    PodTemplate,
    PodTemplateMetadata,
    SandboxSpec,
    VolumeClaimTemplate,
    metadata_fault,
)
from lean_sandbox.model.wire import ODD, Lenient, OrNull, interned

Json = dict[str, Any]

# Resolvers outside the cluster: the default policy cuts Pods off from private addresses.
_PUBLIC_NAMESERVERS: Final = ("8.8.8.8", "1.1.1.1")
_ABSENT: Final = msgspec.Raw(b"null")
_POLICY_SUFFIX: Final = "-network-policy"


class SandboxTemplateSpec(Lenient, frozen=True):
    """``spec`` of a SandboxTemplate; an empty enum value means its default."""

    podTemplate: OrNull[PodTemplate] = PodTemplate()
    volumeClaimTemplates: tuple[VolumeClaimTemplate, ...] | None = None
    service: bool | None = None
    # Absent (null) and present but empty are two different things.
    networkPolicy: msgspec.Raw = _ABSENT
    networkPolicyManagement: OrNull[str] = ""
    envVarsInjectionPolicy: OrNull[str] = ""
    volumeClaimTemplatesPolicy: OrNull[str] = ""


class SandboxTemplate(Lenient, frozen=True):
    """A SandboxTemplate. Its Raw parts keep the message it was decoded from alive: make a view."""

    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[SandboxTemplateSpec] = SandboxTemplateSpec()


class TemplateView(msgspec.Struct, frozen=True, gc=False):
    """All that Sandboxes and the NetworkPolicy are made from, which saves GETs of the template."""

    name: str
    namespace: str = ""
    uid: str = ""
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

    Raises ValueError, naming the field: the spec of Pod, claim or policy is not a readable object,
    or no Pod is given so many or so large labels and annotations.
    """
    meta = template.metadata
    spec = template.spec
    if fault := metadata_fault(spec.podTemplate.metadata, "spec.podTemplate.metadata"):
        raise ValueError(fault)
    blueprint = _blueprint(spec)
    is_managed = spec.networkPolicyManagement != names.MANAGEMENT_UNMANAGED
    rules = bytes(spec.networkPolicy)
    has_rules = rules != bytes(_ABSENT)
    if has_rules:
        try:
            msgspec.json.decode(rules, type=dict[str, Any])
        except ODD as error:
            raise ValueError(f"spec.networkPolicy: {error}") from None
    pod_spec = _secured(
        blueprint["podTemplate"]["spec"] or {}, is_cut_off=is_managed and not has_rules
    )
    return TemplateView(
        name=meta.name,
        namespace=interned(meta.namespace),
        uid=meta.uid,
        ref_hash=names.name_hash(meta.name),
        blueprint_hash=_json_hash(blueprint),
        pod_template_hash=_json_hash(blueprint["podTemplate"]),
        pod_metadata=spec.podTemplate.metadata,
        is_managed=is_managed,
        env_policy=interned(spec.envVarsInjectionPolicy or names.INJECTION_DISALLOWED),
        claim_templates_policy=interned(
            spec.volumeClaimTemplatesPolicy or names.INJECTION_DISALLOWED
        ),
        sandbox_spec_json=msgspec.json.encode({**blueprint, "podTemplate": {"spec": pod_spec}}),
        network_policy_json=rules if has_rules else None,
    )


def blueprint_spec(view: TemplateView, pod_metadata: PodTemplateMetadata) -> SandboxSpec:
    """Return the ``spec`` of a Sandbox made from the template, with ``pod_metadata`` on its Pod."""
    spec = msgspec.json.decode(view.sandbox_spec_json, type=SandboxSpec)
    pod_template = PodTemplate(pod_metadata, spec.podTemplate.spec)
    return msgspec.structs.replace(spec, podTemplate=pod_template)


def ref_hash_patch(name: str, labels: dict[str, str] | None) -> Json | None:
    """Return the merge patch that labels a template with its name's hash, None if it has that."""
    wanted = names.name_hash(name)
    if (labels or {}).get(names.TEMPLATE_REF_HASH_LABEL) == wanted:
        return None
    return {"metadata": {"labels": {names.TEMPLATE_REF_HASH_LABEL: wanted}}}


def _blueprint(spec: SandboxTemplateSpec) -> Json:
    """Return what goes into a Sandbox; its hash is a label that only this implementation sets."""
    body: Json = {
        "podTemplate": {
            "metadata": msgspec.to_builtins(spec.podTemplate.metadata),
            "spec": spec.podTemplate.read_spec(),
        }
    }
    if spec.volumeClaimTemplates:
        encoded = msgspec.json.encode(spec.volumeClaimTemplates)
        body["volumeClaimTemplates"] = msgspec.json.decode(encoded)
    if spec.service is not None:
        body["service"] = spec.service
    return body


def _json_hash(value: Json) -> str:
    from hashlib import blake2b  # noqa: PLC0415 -- with the first template only

    # A template may have a megabyte, and bytewise arithmetic would hold up everybody else.
    return blake2b(msgspec.json.encode(value, order="sorted"), digest_size=4).hexdigest()


def _secured(pod_spec: Json, *, is_cut_off: bool) -> Json:
    # As the reference does: the default policy cuts Pods off from the cluster's own resolvers.
    secured = dict(pod_spec)
    if secured.get("automountServiceAccountToken") is None:
        secured["automountServiceAccountToken"] = False
    if is_cut_off and not secured.get("dnsPolicy"):
        secured["dnsPolicy"] = "None"
        secured["dnsConfig"] = {"nameservers": list(_PUBLIC_NAMESERVERS)}
    return secured


# --- the NetworkPolicy that all Sandboxes of one template share -----------------------------------

# One peer with both selectors: only the router, only in its namespace.
_ROUTER: Final[Json] = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": names.ROUTER_NAMESPACE}},
    "podSelector": {"matchLabels": {names.ROUTER_LABEL: names.ROUTER_VALUE}},
}
# Private and link-local ranges are left out.
_PUBLIC_IPV4: Final[Json] = {
    "cidr": "0.0.0.0/0",
    "except": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"],
}
_PUBLIC_IPV6: Final[Json] = {"cidr": "::/0", "except": ["fc00::/7", "fe80::/10"]}
_DEFAULT_RULES: Final[Json] = {
    "ingress": [{"from": [_ROUTER]}],
    "egress": [{"to": [{"ipBlock": _PUBLIC_IPV4}, {"ipBlock": _PUBLIC_IPV6}]}],
}


def policy_name(template_name: str) -> str:
    """Return the name of the policy of a template."""
    return template_name + _POLICY_SUFFIX


def policy_name_fault(template_name: str) -> str:
    """Return why no policy can have the name that belongs to the template, and what helps."""
    most = names.MAX_NAME_CHARACTERS - len(_POLICY_SUFFIX)
    if len(template_name) <= most:
        return ""
    return (
        f'SandboxTemplate "{template_name}": metadata.name has {len(template_name)} characters, '
        "and its NetworkPolicy would need a name longer than "
        f"{names.MAX_NAME_CHARACTERS}: use a template with a name of at most {most}, "
        "or set spec.networkPolicyManagement to Unmanaged"
    )


def template_of_policy(name: str) -> str | None:
    """Return the template whose policy would be called ``name``, ``None`` for any other name."""
    return name.removesuffix(_POLICY_SUFFIX) if name.endswith(_POLICY_SUFFIX) else None


def desired_policy_spec(template: TemplateView) -> Json:
    """Return the ``spec`` of the template's policy: its own rules, else the secure default ones."""
    spec: Json = {
        "podSelector": {"matchLabels": {names.TEMPLATE_REF_HASH_LABEL: template.ref_hash}},
        "policyTypes": ["Ingress", "Egress"],
    }
    if template.network_policy_json is None:
        return spec | _DEFAULT_RULES
    rules = msgspec.json.decode(template.network_policy_json)
    spec.update({key: rules[key] for key in ("ingress", "egress") if rules.get(key)})
    return spec


def build_policy(template: TemplateView) -> Json:
    """Return the body that creates the policy of ``template``."""
    reference = controller_reference(names.SANDBOX_TEMPLATE_KIND, template.name, template.uid)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": policy_name(template.name),
            "namespace": template.namespace,
            "ownerReferences": [reference],
        },
        "spec": desired_policy_spec(template),
    }


def policy_patch(template: TemplateView, uid: str) -> list[Json]:
    """Return the JSON patch that gives the policy with this uid its whole ``spec``, no more."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": "/spec", "value": desired_policy_spec(template)},
    ]


def is_policy_as_desired(template: TemplateView, stored_spec: bytes | None) -> bool:
    """Return whether the stored spec of a policy is the desired one, defaults included."""
    stored = msgspec.json.decode(stored_spec or b"null")
    return bool(canonical(desired_policy_spec(template)) == canonical(stored))


def policy_refusal(template_name: str) -> str:
    """Return the error for a policy that has the right name and the wrong owner."""
    return (
        f'refusing to update NetworkPolicy "{policy_name(template_name)}" '
        f'as it is not controlled by SandboxTemplate "{template_name}"'
    )

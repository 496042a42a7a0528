"""The NetworkPolicy that all Sandboxes of one template share."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.comparison import canonical
from lean_sandbox.model.meta import extension_reference
from lean_sandbox.model.template import TemplateView

Json = dict[str, Any]

# Private and link-local ranges that the default egress rule leaves out.
_PRIVATE_IPV4: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16")
_PRIVATE_IPV6: Final = ("fc00::/7", "fe80::/10")
_SUFFIX: Final = "-network-policy"


def policy_name(template_name: str) -> str:
    """Return the name of the policy of a template."""
    return template_name + _SUFFIX


def name_fault(template_name: str) -> str:
    """Return why no policy can bear the name that belongs to the template, and what helps."""
    most = names.MAX_NAME_CHARACTERS - len(_SUFFIX)
    if len(template_name) <= most:
        return ""
    return (
        f'SandboxTemplate "{template_name}": metadata.name has {len(template_name)} characters, '
        "and its NetworkPolicy would need a name longer than "
        f"{names.MAX_NAME_CHARACTERS}: use a template with a name of at most {most}, "
        "or set spec.networkPolicyManagement to Unmanaged"
    )


def policy_awaited(template_name: str) -> str:
    """Return what a Sandbox waits for that would start before the policy of its template."""
    return (
        f'waiting for NetworkPolicy "{policy_name(template_name)}" of '
        f'SandboxTemplate "{template_name}"'
    )


def template_of(name: str) -> str | None:
    """Return the template whose policy would bear ``name``, ``None`` for any other name."""
    return name.removesuffix(_SUFFIX) if name.endswith(_SUFFIX) else None


def desired_spec(template: TemplateView) -> Json:
    """Return the ``spec`` of the template's policy: its own rules, else the secure default ones."""
    spec: Json = {
        "podSelector": {"matchLabels": {names.TEMPLATE_REF_HASH_LABEL: template.ref_hash}},
        "policyTypes": ["Ingress", "Egress"],
    }
    if template.network_policy_json is None:
        spec.update(_default_rules())
        return spec
    rules = msgspec.json.decode(template.network_policy_json) or {}
    spec.update({key: rules[key] for key in ("ingress", "egress") if rules.get(key)})
    return spec


def build_policy(template: TemplateView) -> Json:
    """Return the body that creates the policy of ``template``."""
    reference = extension_reference(names.SANDBOX_TEMPLATE_KIND, template.name, template.uid)
    return {
        "apiVersion": names.NETWORKING_API_VERSION,
        "kind": names.NETWORK_POLICY_KIND,
        "metadata": {
            "name": policy_name(template.name),
            "namespace": template.namespace,
            "ownerReferences": [reference],
        },
        "spec": desired_spec(template),
    }


def is_as_desired(template: TemplateView, stored_spec: bytes | None) -> bool:
    """Return whether the stored policy says what it should, as JSON.

    The server's defaults count as said: a port without protocol is a TCP port; null, empty and
    absent lists are one.
    """
    stored = msgspec.json.decode(stored_spec) if stored_spec else None
    return bool(canonical(desired_spec(template)) == canonical(stored or {}))


def refusal(template_name: str) -> str:
    """Return the error for a policy that has the right name and the wrong owner."""
    return (
        f'refusing to update NetworkPolicy "{policy_name(template_name)}" '
        f'as it is not controlled by SandboxTemplate "{template_name}"'
    )


def _default_rules() -> Json:
    # One peer with both selectors: only the router, only in that namespace.
    router = {
        "namespaceSelector": {"matchLabels": {names.NAMESPACE_NAME_LABEL: names.ROUTER_NAMESPACE}},
        "podSelector": {"matchLabels": {names.ROUTER_LABEL: names.ROUTER_VALUE}},
    }
    return {
        "ingress": [{"from": [router]}],
        "egress": [
            {
                "to": [
                    {"ipBlock": {"cidr": "0.0.0.0/0", "except": list(_PRIVATE_IPV4)}},
                    {"ipBlock": {"cidr": "::/0", "except": list(_PRIVATE_IPV6)}},
                ]
            }
        ],
    }

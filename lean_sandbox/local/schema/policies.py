"""Checks of what rules over others: policies, budgets, roles, classes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.assigned import SYSTEM_PRIORITIES
from lean_sandbox.local.schema.causes import (
    SELECTOR,
    at_least,
    at_most,
    labels,
    named,
    needed,
    never,
    one_of,
    port,
)
from lean_sandbox.local.schema.formats import network, parsed_network
from lean_sandbox.local.schema.placement import TOLERATION, resource_names

Json = dict[str, Any]

_RBAC: Final = "rbac.authorization.k8s.io"


def _budget(spec: Json, where: str) -> Iterator[ErrorCause]:
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        members = ("MinAvailable", "Selector", "MaxUnavailable", "UnhealthyPodEvictionPolicy")
        shown = {name: spec.get(name[0].lower() + name[1:]) for name in members}
        yield causes.invalid(where, shown, "minAvailable and maxUnavailable cannot be both set")


def _share(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check a number or percentage that is no more than all."""
    yield from at_least(0)(value, where)
    if isinstance(value, str) and not re.fullmatch("[0-9]+%", value):
        text = (
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%', "
            " or '93%', regex used for validation is '[0-9]+%')"
        )
        yield causes.invalid(where, value, text)
    elif isinstance(value, str) and float(value[:-1]) > 100:
        yield causes.invalid(where, value, "must not be greater than 100%")


def _peer(value: Json, where: str) -> Iterator[ErrorCause]:
    block = value.get("ipBlock")
    others = [key for key in ("podSelector", "namespaceSelector") if value.get(key) is not None]
    if block is None and not others:
        yield causes.required(where, "must specify a peer")
    if block is not None and others:
        yield causes.forbidden(where, "may not specify both ipBlock and another peer")


def _block(block: Json | None, where: str) -> Iterator[ErrorCause]:
    if block is None:
        return
    cidr = block.get("cidr") or ""
    whole = parsed_network(cidr)
    yield from needed()(cidr, f"{where}.cidr")
    yield from network(cidr, f"{where}.cidr") if cidr else ()
    for position, given in enumerate(block.get("except") or ()):
        part = parsed_network(given)
        yield from network(given, f"{where}.except[{position}]")
        if (
            part is not None
            and whole is not None
            and not (part.version == whole.version and part != whole and part.subnet_of(whole))
        ):
            problem = "must be a strict subset of `cidr`"
            yield causes.invalid(f"{where}.except[{position}]", given, problem)


def _port_range(value: Json, where: str) -> Iterator[ErrorCause]:
    first = value.get("port")
    last = value.get("endPort")
    if last is not None and first is None:
        text = "may not be specified when `port` is not specified"
        yield causes.invalid(f"{where}.endPort", last, text)
    elif last is not None and isinstance(first, str):
        text = "may not be specified when `port` is non-numeric"
        yield causes.invalid(f"{where}.endPort", last, text)
    elif last is not None:
        if last < first:
            text = "must be greater than or equal to `port`"
            yield causes.invalid(f"{where}.endPort", first, text)
        yield from port(last, f"{where}.endPort")


_PEERS: Final[Any] = (
    _peer,
    {"ipBlock": _block, "podSelector": SELECTOR, "namespaceSelector": SELECTOR},
)
_PORTS: Final[Any] = (
    _port_range,
    {"protocol": one_of("TCP", "UDP", "SCTP", is_needed=True), "port": port},
)


def _policy_rule(rule: Json, where: str) -> Iterator[ErrorCause]:
    urls = rule.get("nonResourceURLs")
    if urls:
        if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            yield causes.invalid(f"{where}.nonResourceURLs", urls, text)
        return
    for name, text in (("apiGroups", "api group"), ("resources", "resource")):
        problem = f"resource rules must supply at least one {text}"
        yield from needed(problem)(rule.get(name), f"{where}.{name}")


_NO_URLS: Final = never(bool, "namespaced rules cannot apply to non-resource URLs")
_RULE: Final[Any] = (_policy_rule, {"verbs": needed("verbs must contain at least one value")})


def _subject(subject: Json, where: str) -> Iterator[ErrorCause]:
    kind = subject.get("kind")
    group = subject.get("apiGroup") or ""
    if kind == "ServiceAccount":
        yield from named(causes.subdomain_problems)(subject.get("name"), f"{where}.name")
    wanted = {"ServiceAccount": "", "User": _RBAC, "Group": _RBAC}
    if kind in wanted and group != wanted[kind]:
        yield causes.not_supported(f"{where}.apiGroup", group, [wanted[kind]])


def _place(subject: Json, where: str) -> Iterator[ErrorCause]:
    if subject.get("kind") == "ServiceAccount" and not subject.get("namespace"):
        yield causes.required(f"{where}.namespace")


def _binding(*kinds: str) -> Json:
    subject = {"kind": one_of("ServiceAccount", "User", "Group", is_needed=True), "name": needed()}
    return {
        "roleRef": {
            "apiGroup": one_of(_RBAC, is_needed=True),
            "kind": one_of(*kinds, is_needed=True),
            "name": (needed(), named(causes.path_segment_problems)),
        },
        "subjects[*]": (_subject, subject, *((_place,) if len(kinds) == 1 else ())),
    }


def _priority(obj: Json, _where: str) -> Iterator[ErrorCause]:
    name = obj["metadata"].get("name") or ""
    is_known = obj.get("value") == SYSTEM_PRIORITIES.get(name, 0)
    if name.startswith("system-") and not is_known:
        text = "priority class names with 'system-' prefix are reserved for system use only"
        problem = f"{text}. error: {name} is not a known system priority class"
        yield causes.forbidden("metadata.name", problem)
    elif (obj.get("value") or 0) > 10**9 and not is_known:
        text = f"maximum allowed value of a user defined priority is {10**9}"
        yield causes.forbidden("value", text)


def _once(tolerations: Any, where: str) -> Iterator[ErrorCause]:
    """Check that no toleration is said twice."""
    names = ("key", "operator", "value", "effect")
    seen: list[Json] = []
    for position, one in enumerate(tolerations or ()):
        if one in seen:
            shown = {name.title(): one.get(name) or "" for name in names}
            seconds = {"TolerationSeconds": one.get("tolerationSeconds")}
            yield causes.duplicate(f"{where}[{position}]", shown | seconds)
        seen.append(one)


def _overhead(overhead: Json | None, where: str) -> Iterator[ErrorCause]:
    yield from resource_names((overhead or {}).get("podFixed"), f"{where}.limits")


# ------------------------------------------------------------------ by kind

POLICIES: Final[Mapping[str, Any]] = {
    "ClusterRole": {
        "rules[*]": _RULE,
        "aggregationRule": {
            "clusterRoleSelectors": needed(
                "at least one clusterRoleSelector required if aggregationRule is non-nil"
            ),
            "clusterRoleSelectors[*]": SELECTOR,
        },
    },
    "ClusterRoleBinding": _binding("ClusterRole"),
    "NetworkPolicy": {
        "spec": {
            "podSelector": SELECTOR,
            "policyTypes": at_most(2, "may not specify more than two policyTypes"),
            "policyTypes[*]": one_of("Ingress", "Egress", is_needed=True),
            "ingress[*]": {"from[*]": _PEERS, "ports[*]": _PORTS},
            "egress[*]": {"to[*]": _PEERS, "ports[*]": _PORTS},
        }
    },
    "PodDisruptionBudget": {
        "spec": (
            _budget,
            {
                "minAvailable": _share,
                "maxUnavailable": _share,
                "selector": SELECTOR,
                "unhealthyPodEvictionPolicy": one_of("AlwaysAllow", "IfHealthyBudget"),
            },
        )
    },
    "PriorityClass": (
        _priority,
        {"preemptionPolicy": one_of("PreemptLowerPriority", "Never")},
    ),
    "Role": {"rules[*]": (_RULE, {"nonResourceURLs": _NO_URLS})},
    "RoleBinding": _binding("Role", "ClusterRole"),
    "RuntimeClass": {
        "handler": (needed(), named(causes.rfc1123_label_problems)),
        "overhead": _overhead,
        "scheduling": {"nodeSelector": labels, "tolerations": _once, "tolerations[*]": TOLERATION},
    },
}
"""What is checked of an object, by its kind."""

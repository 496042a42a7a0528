"""Validation of the built-in kinds: what a server's Go code adds to their schemas."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import (
    at_least,
    broken,
    named,
    needed,
    never,
    one_of,
    parsed_network,
    port,
    selector,
)
from lean_sandbox.local.schema.definition import check_definition, check_definition_change
from lean_sandbox.local.schema.metadata import (
    NAME_RULES,
    check_standard_finalizers,
    validate_metadata,
)
from lean_sandbox.local.schema.pods import (
    POD,
    POD_STATUS,
    SERVICE,
    check_pod_change,
    check_service_change,
)
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]

_RBAC: Final = "rbac.authorization.k8s.io"
_MIBI: Final = 1024 * 1024


# ------------------------------------------------------------------ ConfigMaps, Secrets, claims


def _key_problems(key: str) -> list[str]:
    if len(key) > 253:
        return ["must be no more than 253 characters"]
    if key in {".", ".."}:
        return [f"must not be '{key}'"]
    text = (
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g."
        " 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is"
        " '[-._a-zA-Z0-9]+')"
    )
    return [] if re.fullmatch("[-._a-zA-Z0-9]+", key) else [text]


def _keys(value: Any, where: str) -> Iterator[ErrorCause]:
    for key in sorted(value or {}):
        for text in _key_problems(key):
            yield causes.invalid(f"{where}[{key}]", key, text)


def _config_map(obj: Json, _where: str) -> Iterator[ErrorCause]:
    texts = sum(len(text.encode()) for text in (obj.get("data") or {}).values())
    octets = sum(len(text) * 3 // 4 for text in (obj.get("binaryData") or {}).values())
    if texts + octets > _MIBI:
        yield causes.too_long("[]", _MIBI)


_SECRET_KEYS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def _secret(obj: Json, _where: str) -> Iterator[ErrorCause]:
    kind = obj.get("type") or ""
    data = obj.get("data") or {}
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            yield causes.required(f"data[{key}]")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield from (causes.required(f"data[{key}]") for key in ("username", "password"))
    account = (obj["metadata"].get("annotations") or {}).get("kubernetes.io/service-account.name")
    if kind == "kubernetes.io/service-account-token" and not account:
        yield causes.required("metadata.annotations[kubernetes.io/service-account.name]")
    # Four letters of base64 are three bytes.
    if sum(len(text) * 3 // 4 for text in data.values()) > _MIBI:
        yield causes.too_long("data", _MIBI)


def _claim(spec: Json, where: str) -> Iterator[ErrorCause]:
    modes = one_of("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
    for mode in spec.get("accessModes") or ():
        yield from modes(mode, f"{where}.accessModes")
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield causes.required(f"{where}.resources[storage]")
    elif (parse_quantity(size) or 0) <= 0:
        yield causes.invalid(f"{where}.resources[storage]", size, "must be greater than zero")


_CLAIM: Final[Any] = (
    _claim,
    {
        "accessModes": needed("at least 1 access mode is required"),
        "storageClassName": named(causes.subdomain_problems),
        "volumeMode": one_of("Block", "Filesystem"),
    },
)


# ------------------------------------------------------------------ policies, roles


def _budget(spec: Json, where: str) -> Iterator[ErrorCause]:
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        members = ("MinAvailable", "Selector", "MaxUnavailable", "UnhealthyPodEvictionPolicy")
        shown = {name: spec.get(name[0].lower() + name[1:]) for name in members}
        yield causes.invalid(where, shown, "minAvailable and maxUnavailable cannot be both set")


def _share(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check a number or percentage that is no more than all."""
    yield from at_least(0)(value, where)
    if isinstance(value, str) and not re.fullmatch(r"\d+%", value):
        text = (
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%', "
            " or '93%', regex used for validation is '[0-9]+%')"
        )
        yield causes.invalid(where, value, text)
    elif isinstance(value, str) and int(value[:-1]) > 100:
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
    text = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    if not cidr:
        yield causes.required(f"{where}.cidr")
    elif whole is None:
        yield causes.invalid(f"{where}.cidr", cidr, text)
    for position, given in enumerate(block.get("except") or ()):
        part = parsed_network(given)
        if part is None:
            yield causes.invalid(f"{where}.except[{position}]", given, text)
        elif whole is not None and not (
            part.version == whole.version and part != whole and part.subnet_of(whole)
        ):
            problem = "must be a strict subset of `cidr`"
            yield causes.invalid(f"{where}.except[{position}]", given, problem)


def _port_range(value: Json, where: str) -> Iterator[ErrorCause]:
    first = value.get("port")
    last = value.get("endPort")
    if last is not None and first is None:
        text = "may not be specified when `port` is not specified"
        yield causes.invalid(f"{where}.endPort", last, text)
    elif last is not None and isinstance(first, int) and last < first:
        text = "must be greater than or equal to `port`"
        yield causes.invalid(f"{where}.endPort", first, text)


_PEERS: Final[Any] = (
    _peer,
    {"ipBlock": _block, "podSelector": selector, "namespaceSelector": selector},
)
_PORTS: Final[Any] = (_port_range, {"protocol": one_of("TCP", "UDP", "SCTP"), "port": port})


def _policy_rule(rule: Json, where: str) -> Iterator[ErrorCause]:
    if rule.get("nonResourceURLs"):
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
            "name": needed(),
        },
        "subjects[*]": (_subject, subject, *((_place,) if len(kinds) == 1 else ())),
    }


def _priority(obj: Json, _where: str) -> Iterator[ErrorCause]:
    name = obj["metadata"].get("name") or ""
    if name.startswith("system-"):
        text = "priority class names with 'system-' prefix are reserved for system use only"
        problem = f"{text}. error: {name} is not a known system priority class"
        yield causes.forbidden("metadata.name", problem)
    elif (obj.get("value") or 0) > 10**9:
        text = f"maximum allowed value of a user defined priority is {10**9}"
        yield causes.forbidden("value", text)


# ------------------------------------------------------------------ Events

_LIMITS: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_REQUIRED: Final = ("eventTime", "reportingInstance", "action", "reason")
_MAY_CHANGE: Final = ("apiVersion", "kind", "metadata", "series")


def check_event_place(obj: Json, _where: str) -> Iterator[ErrorCause]:
    """Give what is wrong with where an Event is: beside the object it is about.

    Events about cluster-wide objects are in the default namespace.
    """
    here = obj["metadata"].get("namespace", "")
    there = (obj.get("involvedObject") or {}).get("namespace") or ""
    if there != here and (there or here != "default"):
        yield causes.invalid("involvedObject.namespace", there, "does not match event.namespace")


def check_event_change(obj: Json, old: Json) -> Iterator[ErrorCause]:
    """Give what events.k8s.io/v1 refuses in the change of an Event under its core names.

    The older core/v1 asks for none of it, and neither of what is new.
    """
    for key in sorted((obj.keys() | old.keys()) - set(_MAY_CHANGE)):
        if (obj.get(key) or None) != (old.get(key) or None):
            name = "reportingController" if key == "reportingComponent" else key
            yield causes.immutable(name, obj.get(key) or "")


def check_new_event(obj: Json) -> Iterator[ErrorCause]:
    """Give what events.k8s.io/v1 refuses in a new Event under its core names."""
    series = obj.get("series")
    if series is not None:
        if (series.get("count") or 0) < 2:
            yield causes.invalid("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield causes.required("series.lastObservedTime")
    controller = obj.get("reportingComponent") or ""
    yield from needed()(controller, "reportingController")
    for text in causes.label_key_problems(controller):
        yield causes.invalid("reportingController", controller, text)
    for key in _REQUIRED:
        yield from needed()(obj.get(key), key)
    for key, limit in _LIMITS.items():
        if len(obj.get(key) or "") > limit:
            yield causes.invalid(key, "", f"can have at most {limit} characters")
    kind = obj.get("type") or ""
    if kind not in ("Normal", "Warning"):
        yield causes.invalid("type", "", f"has invalid value: {kind}")


# ------------------------------------------------------------------ all kinds

_CHECKS: Final[Mapping[str, Any]] = {
    "ClusterRole": {
        "rules[*]": _RULE,
        "aggregationRule": {
            "clusterRoleSelectors": needed(
                "at least one clusterRoleSelector required if aggregationRule is non-nil"
            ),
            "clusterRoleSelectors[*]": selector,
        },
    },
    "ClusterRoleBinding": _binding("ClusterRole"),
    "ConfigMap": (_config_map, {"data": _keys, "binaryData": _keys}),
    "CustomResourceDefinition": check_definition,
    "Event": check_event_place,
    "Lease": {
        "spec": {
            "leaseDurationSeconds": at_least(1, "must be greater than 0"),
            "leaseTransitions": at_least(0),
        }
    },
    "NetworkPolicy": {
        "spec": {
            "podSelector": selector,
            "policyTypes[*]": one_of("Ingress", "Egress", is_needed=True),
            "ingress[*]": {"from[*]": _PEERS, "ports[*]": _PORTS},
            "egress[*]": {"to[*]": _PEERS, "ports[*]": _PORTS},
        }
    },
    "PersistentVolumeClaim": {"spec": _CLAIM},
    "Pod": POD,
    "PodDisruptionBudget": {
        "spec": (
            _budget,
            {
                "minAvailable": _share,
                "maxUnavailable": _share,
                "selector": selector,
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
    "RuntimeClass": {"handler": (needed(), named(causes.rfc1123_label_problems))},
    "Secret": (_secret, {"data": _keys}),
    "Service": SERVICE,
}


# ------------------------------------------------------------------ changes


def _changed(obj: Json, old: Json, *members: str) -> list[str]:
    return [name for name in members if (obj.get(name) or {}) != (old.get(name) or {})]


def _data_change(obj: Json, old: Json) -> Iterator[ErrorCause]:
    if old.get("immutable"):
        text = "field is immutable when `immutable` is set"
        for name in _changed(obj, old, "data", "binaryData", "immutable"):
            yield causes.forbidden(name, text)


def _secret_change(obj: Json, old: Json) -> Iterator[ErrorCause]:
    yield from (causes.immutable(name, obj.get(name)) for name in _changed(obj, old, "type"))
    yield from _data_change(obj, old)


def _binding_change(obj: Json, old: Json) -> Iterator[ErrorCause]:
    for name in _changed(obj, old, "roleRef"):
        yield causes.invalid(name, obj.get(name), "cannot change roleRef")


def _priority_change(obj: Json, old: Json) -> Iterator[ErrorCause]:
    for name in _changed(obj, old, "value"):
        yield causes.forbidden(name, "may not be changed in an update.")


def _claim_change(obj: Json, old: Json) -> Iterator[ErrorCause]:
    """Only the volume may be set, once: no claim is ever bound here, so that none may grow."""
    spec = obj["spec"]
    before = old.get("spec") or {}
    fixed = (spec.keys() | before.keys()) - (set() if before.get("volumeName") else {"volumeName"})
    if _changed(spec, before, *fixed):
        text = (
            "spec is immutable after creation except resources.requests and"
            " volumeAttributesClassName for bound claims"
        )
        yield causes.forbidden("spec", text)


_CHANGES: Final[Mapping[str, Callable[[Json, Json], Iterator[ErrorCause]]]] = {
    "ClusterRoleBinding": _binding_change,
    "ConfigMap": _data_change,
    "CustomResourceDefinition": check_definition_change,
    "PersistentVolumeClaim": _claim_change,
    "Pod": check_pod_change,
    "PriorityClass": _priority_change,
    "RoleBinding": _binding_change,
    "Secret": _secret_change,
    "Service": check_service_change,
}


def core_validate(
    kind: Kind, obj: Json, old: Json | None = None, *, is_status: bool = False
) -> list[ErrorCause]:
    """Return what a server refuses in an object of a built-in kind, its metadata included.

    `old` is the stored object of an update. Defaults must be in place. Kinds without a check of
    their own get the metadata rules only; JSON types are the matter of ``decode``. With
    `is_status` nothing but the status is new.
    """
    rule = NAME_RULES.get(kind.kind, causes.subdomain_problems)
    found = validate_metadata(obj, old, rule=rule, namespaced=kind.namespaced)
    if not kind.group and kind.kind != "Event":
        found += check_standard_finalizers(obj)
    if is_status:
        return [*found, *broken(obj, "", POD_STATUS)] if kind.kind == "Pod" else found
    found += broken(obj, "", _CHECKS.get(kind.kind, {}))
    if old is not None and (check := _CHANGES.get(kind.kind)) is not None:
        found += check(obj, old)
    return found

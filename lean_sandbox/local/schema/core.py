"""Validation of the built-in kinds: what a server's Go code adds to their schemas."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import (
    always,
    amounts,
    at_least,
    broken,
    named,
    needed,
    one_of,
)
from lean_sandbox.local.schema.definition import check_definition, check_definition_change
from lean_sandbox.local.schema.formats import network
from lean_sandbox.local.schema.metadata import NAME_RULES, standard_finalizer, validate_metadata
from lean_sandbox.local.schema.placement import EFFECTS
from lean_sandbox.local.schema.pods import (
    POD,
    POD_STATUS,
    check_pod_change,
    check_pod_status_change,
)
from lean_sandbox.local.schema.policies import POLICIES
from lean_sandbox.local.schema.services import SERVICE, check_service_change
from lean_sandbox.local.schema.volumes import CLAIM, config_key_problems
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]

_MIBI: Final = 1024 * 1024


# ------------------------------------------------------------------ ConfigMaps, Secrets, claims


def _keys(value: Any, where: str) -> Iterator[ErrorCause]:
    for key in sorted(value or {}):
        for text in config_key_problems(key):
            yield causes.invalid(f"{where}[{key}]", key, text)


def _config_map(obj: Json, _where: str) -> Iterator[ErrorCause]:
    texts = sum(len(text.encode()) for text in (obj.get("data") or {}).values())
    octets = sum(len(text) * 3 // 4 for text in (obj.get("binaryData") or {}).values())
    if texts + octets > _MIBI:
        yield causes.too_long("[]", _MIBI)
    for key in (obj.get("data") or {}).keys() & (obj.get("binaryData") or {}).keys():
        yield causes.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")


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
        # Of all these only a private key may not be empty.
        if key not in data or (key == "ssh-privatekey" and not data[key]):
            yield causes.required(f"data[{key}]")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield from (causes.required(f"data[{key}]") for key in ("username", "password"))
    account = (obj["metadata"].get("annotations") or {}).get("kubernetes.io/service-account.name")
    if kind == "kubernetes.io/service-account-token" and not account:
        yield causes.required("metadata.annotations[kubernetes.io/service-account.name]")
    # Four letters of base64 are three bytes.
    for key in {".dockercfg", ".dockerconfigjson"} & data.keys() & set(_SECRET_KEYS.get(kind, ())):
        try:
            msgspec.json.decode(base64.b64decode(data[key]), type=dict[str, Any] | None)
        except (msgspec.DecodeError, RecursionError):
            yield causes.invalid(f"data[{key}]", "<secret contents redacted>", "invalid JSON")
    if sum(len(text) * 3 // 4 for text in data.values()) > _MIBI:
        yield causes.too_long("data", _MIBI)


# ------------------------------------------------------------------ Namespaces and Nodes


def _namespace_finalizers(spec: Json, where: str) -> Iterator[ErrorCause]:
    for name in spec.get("finalizers") or ():
        # The server leaves out which one it is.
        yield from named(causes.label_key_problems)(name, f"{where}.finalizers")
        yield from standard_finalizer(name, f"{where}.finalizers")


def _taint(taint: Json, where: str) -> Iterator[ErrorCause]:
    yield from always(causes.label_key_problems)(taint.get("key"), f"{where}.key")
    for text in causes.label_value_problems(taint.get("value") or ""):
        yield causes.invalid(f"{where}.value", taint["value"], text)
    if effect := taint.get("effect"):
        yield from one_of(*EFFECTS)(effect, f"{where}.effect")
    else:
        yield causes.required(f"{where}.effect")


def _node_amounts(value: Any, where: str) -> Iterator[ErrorCause]:
    for error in amounts(value, where):
        yield error._replace(field=error.field.replace("[", ".").removesuffix("]"))
    count = (value or {}).get("pods")
    if (parse_quantity(count) or 0) % 1:
        yield causes.invalid(f"{where}.pods", count, "must be an integer")


_NODE_STATUS: Final = dict.fromkeys(("allocatable", "capacity"), _node_amounts)


def _node(node: Json, _where: str) -> Iterator[ErrorCause]:
    seen: set[tuple[Any, Any]] = set()
    for position, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        # The server says metadata where it means spec.
        where = f"metadata.taints[{position}]"
        yield from _taint(taint, where)
        key = (taint.get("key"), taint.get("effect"))
        if key in seen:
            shown = {"Key": key[0], "Value": taint.get("value") or "", "Effect": key[1]}
            found = causes.duplicate(where, {**shown, "TimeAdded": taint.get("timeAdded")})
            text = "taints must be unique by key and effect pair"
            yield found._replace(message=f"{found.message}: {text}")
        seen.add(key)


# ------------------------------------------------------------------ Events

_LIMITS: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_REQUIRED: Final = ("eventTime", "reportingInstance", "action", "reason")
_MAY_CHANGE: Final = ("apiVersion", "kind", "metadata", "series")


def check_event(obj: Json, _where: str) -> Iterator[ErrorCause]:
    """Give what is wrong with an Event: it is beside the object it is about.

    Events about cluster-wide objects are in the default namespace. One that names the time it
    happened at is of the newer kind.
    """
    here = obj["metadata"].get("namespace", "")
    there = (obj.get("involvedObject") or {}).get("namespace") or ""
    if there != here and (there or here != "default"):
        yield causes.invalid("involvedObject.namespace", there, "does not match event.namespace")
    if obj.get("eventTime"):
        yield from _check_reporter(obj, "reportingComponent")


def _check_reporter(obj: Json, name: str) -> Iterator[ErrorCause]:
    controller = obj.get("reportingComponent") or ""
    yield from needed()(controller, name)
    yield from always(causes.label_key_problems)(controller, name)
    for key in _REQUIRED:
        yield from needed()(obj.get(key), key)
    for key, limit in _LIMITS.items():
        if len(obj.get(key) or "") > limit:
            yield causes.invalid(key, "", f"can have at most {limit} characters")


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
    yield from _check_reporter(obj, "reportingController")
    kind = obj.get("type") or ""
    if kind not in ("Normal", "Warning"):
        yield causes.invalid("type", "", f"has invalid value: {kind}")


# ------------------------------------------------------------------ all kinds

_CHECKS: Final[Mapping[str, Any]] = {
    **POLICIES,
    "ConfigMap": (_config_map, {"data": _keys, "binaryData": _keys}),
    "CustomResourceDefinition": check_definition,
    "Event": check_event,
    "Lease": {
        "spec": {
            "leaseDurationSeconds": at_least(1, "must be greater than 0"),
            "leaseTransitions": at_least(0),
        }
    },
    "Namespace": {"spec": _namespace_finalizers},
    "Node": (_node, {"spec": {"podCIDRs[*]": network}, "status": _NODE_STATUS}),
    "PersistentVolumeClaim": {"spec": CLAIM},
    "Pod": POD,
    "Secret": (_secret, {"data": _keys}),
    "Service": SERVICE,
}


# ------------------------------------------------------------------ changes


def _balancer(obj: Json, _where: str) -> Iterator[ErrorCause]:
    ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress")
    if ingress and (obj.get("spec") or {}).get("type") != "LoadBalancer":
        text = "may only be used when `spec.type` is 'LoadBalancer'"
        yield causes.forbidden("status.loadBalancer.ingress", text)


def _capacity(capacity: Any, where: str) -> Iterator[ErrorCause]:
    for name, amount in (capacity or {}).items():
        found = parse_quantity(amount) or 0
        if found < 0:
            text = "must be a valid resource quantity"
            yield causes.invalid(f"{where}[{name}]", int(found), text)


_CREATIONS: Final[Mapping[str, Any]] = {
    "Pod": {"spec": {"ephemeralContainers": causes.prohibited("cannot be set on create")}},
}
"""What a new object may not say."""
_COUNTS: Final = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
_STATUS: Final[Mapping[str, Any]] = {
    "Node": {"status": _NODE_STATUS},
    "PersistentVolumeClaim": {"status": {"capacity": _capacity}},
    "Pod": POD_STATUS,
    "PodDisruptionBudget": {"status": dict.fromkeys(_COUNTS, at_least(0))},
    "Service": _balancer,
}
"""What a write to `/status` may not say."""


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
        if spec.get("volumeMode") != before.get("volumeMode"):
            yield causes.immutable("volumeMode", spec.get("volumeMode"))
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
        found += broken(obj["metadata"], "metadata", {"finalizers[*]": standard_finalizer})
    if is_status:
        found += broken(obj, "", _STATUS.get(kind.kind, {}))
        if kind.kind == "Pod" and old is not None:
            found += check_pod_status_change(obj, old)
        return found
    found += broken(obj, "", _CHECKS.get(kind.kind, {}))
    if old is None:
        found += broken(obj, "", _CREATIONS.get(kind.kind, {}))
    if old is not None and (check := _CHANGES.get(kind.kind)) is not None:
        found += check(obj, old)
    return found

"""What the server itself gives new objects.

A Pod gets status, priority, overhead and a token, a Service its address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Container, Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, NoReturn

from lean_sandbox.local.errors import ErrorCause, forbidden, invalid
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.defaults import containers_of
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]

# ------------------------------------------------------------------ Pods

_MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
# An hour, and the 7 s by which the server knows a token that it asked for itself.
_TOKEN_LIFE_S: Final = 3607
_GATED: Final[Json] = {
    "type": "PodScheduled",
    "status": "False",
    "lastTransitionTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_LOST: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_PATIENCE_S: Final = 300


def add_token(obj: Json, account: Mapping[str, Any], suffix: str) -> None:
    """Mount a token of the service account unless Pod or account decline; in place."""
    spec: Json = obj["spec"]
    wanted = spec.get("automountServiceAccountToken")
    if wanted is None:
        wanted = account.get("automountServiceAccountToken")
    if wanted is False:
        return
    name = f"kube-api-access-{suffix}"
    is_used = False
    for _, _, container in containers_of(spec):
        mounts = container.get("volumeMounts") or []
        if all(mount.get("mountPath") != _MOUNT for mount in mounts):
            mount = {"name": name, "readOnly": True, "mountPath": _MOUNT}
            container["volumeMounts"] = [*mounts, mount]
            is_used = True
    if is_used:
        spec["volumes"] = [*(spec.get("volumes") or ()), _volume(name)]


def _volume(name: str) -> Json:
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    root = [{"key": "ca.crt", "path": "ca.crt"}]
    sources: list[Json] = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_LIFE_S, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": root}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}


SYSTEM_PRIORITIES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""The PriorityClasses that every cluster has, with their values."""


def resolve_priority(obj: Json, classes: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the priority of a Pod's class, or of the default one; in place.

    Raises StatusError (403) for a class that is not there, or a priority of the Pod's own.
    """
    spec: Json = obj["spec"]
    name = spec.get("priorityClassName")
    if name and name not in classes:
        _refuse(obj, f"no PriorityClass with name {name} was found")
    if not name:
        chosen = [each for each in classes if classes[each].get("globalDefault")]
        # Of several defaults the lowest counts.
        name = min(chosen, key=lambda each: classes[each]["value"], default="")
        if name:
            spec["priorityClassName"] = name
    found = classes.get(name, {})
    for member, wanted, what in (
        ("priority", found.get("value", 0), "integer value of priority"),
        (
            "preemptionPolicy",
            found.get("preemptionPolicy", "PreemptLowerPriority"),
            "string value of PreemptionPolicy",
        ),
    ):
        given = spec.setdefault(member, wanted)
        if given != wanted:
            text = f"the {what} ({given}) must not be provided in pod spec; priority admission"
            _refuse(obj, f"{text} controller computed {wanted} from the given PriorityClass name")


def resolve_runtime(obj: Json, classes: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the overhead and the nodes of a Pod's RuntimeClass; in place.

    Raises StatusError (403) for a class that is not there, or an overhead of the Pod's own.
    """
    spec: Json = obj["spec"]
    name = spec.get("runtimeClassName")
    if name and name not in classes:
        _refuse(obj, f'pod rejected: RuntimeClass "{name}" not found')
    found: Mapping[str, Any] = classes[name] if name else {}
    overhead = (found.get("overhead") or {}).get("podFixed")
    if spec.get("overhead") and not overhead:
        text = "Pod Overhead set without corresponding RuntimeClass defined Overhead"
        _refuse(obj, f"pod rejected: {text}")
    if spec.setdefault("overhead", overhead) != overhead:
        text = "Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        _refuse(obj, f"pod rejected: {text}")
    if not overhead:
        del spec["overhead"]
    scheduling: Mapping[str, Any] = found.get("scheduling") or {}
    if wanted := scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **wanted}
    if added := scheduling.get("tolerations"):
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]


def _refuse(obj: Json, why: str) -> NoReturn:
    raise forbidden("", "pods", obj["metadata"].get("name", ""), why)


def add_tolerations(obj: Json) -> None:
    """Let a Pod stay five minutes on a node that is lost, unless it says otherwise; in place."""
    spec: Json = obj["spec"]
    said = spec.get("tolerations") or []
    relevant = [one for one in said if one.get("effect") in (None, "", "NoExecute")]
    common = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _PATIENCE_S}
    added = [
        {"key": key, **common}
        for key in _LOST
        if not any(one.get("key") in (None, "", key) for one in relevant)
    ]
    if added:
        spec["tolerations"] = [*said, *added]


def first_status(spec: Json) -> Json:
    """Return the status of a Pod that is created."""
    status: Json = {"phase": "Pending", "qosClass": _quality(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [dict(_GATED)]
    return status


def _above_zero(amounts: Json) -> dict[str, Fraction | None]:
    """Return how much CPU and memory there is, without what is zero."""
    named = ((name, amounts.get(name, "0")) for name in ("cpu", "memory"))
    return {name: parse_quantity(amount) for name, amount in named if amount != "0"}


def _quality(spec: Json) -> str:
    """Return the quality-of-service class that follows from a Pod's resources."""
    given = []
    for one in [spec] if spec.get("resources") else [one for _, _, one in containers_of(spec)]:
        resources: Json = one.get("resources") or {}
        limits = resources.get("limits") or {}
        # What is limited is requested, which is not written yet.
        requests = {**limits, **(resources.get("requests") or {})}
        given.append((_above_zero(limits), _above_zero(requests)))
    if not any(limits or requests for limits, requests in given):
        return "BestEffort"
    is_guaranteed = all(len(limits) == 2 and limits == requests for limits, requests in given)
    return "Guaranteed" if is_guaranteed else "Burstable"


# ------------------------------------------------------------------ Services

_NETWORK: Final = ipaddress.ip_network("10.96.0.0/16")
"""The range of cluster IPs."""


def assign_address(obj: Json, taken: Container[str | None]) -> None:
    """Give a new Service its cluster IP: the one that it asks for, or the first that is free.

    ``taken`` are those of the others. Raises StatusError (422) if there is none.
    """
    spec = obj["spec"]
    address = spec.get("clusterIP")
    why = ""
    if spec.get("type") == "ExternalName" or address == "None":
        return
    if not address:
        address = next((one for one in map(str, _NETWORK.hosts()) if one not in taken), None)
        why = "" if address else "range is full"
    elif ipaddress.ip_address(address) not in _NETWORK:
        why = (
            f"the provided IP ({address}) is not in the valid range. The range of valid IPs is"
            f" {_NETWORK}"
        )
    elif address in taken:
        why = "provided IP is already allocated"
    if why:
        text = f'Invalid value: ["{address}"]: failed to allocate IP {address}: {why}'
        cause = ErrorCause("FieldValueInvalid", text, "spec.clusterIPs")
        raise invalid("", "Service", "", [cause])
    spec["clusterIP"] = address
    spec["clusterIPs"] = [address]


_NODE_PORTS: Final = range(30000, 32768)


def assign_ports(obj: Json, others: Iterable[Json], *, is_stored: bool) -> None:
    """Give each port of a published Service its node port: the one it asks for, or a free one.

    Ports of one number share it. ``others`` are the other Services. Only of one that is stored the
    range is checked, as on a real server. Raises StatusError (422) if one cannot be given.
    """
    spec: Json = obj["spec"]
    if not _is_published(spec):
        return
    ports: list[Json] = spec.get("ports") or []
    asked = {one["port"]: one["nodePort"] for one in reversed(ports) if one.get("nodePort")}
    taken = {one.get("nodePort") for other in others for one in other["spec"].get("ports") or ()}
    shared: dict[int, int] = {}
    for position, one in enumerate(ports):
        number = one.get("nodePort") or asked.get(one["port"]) or shared.get(one["port"])
        if number is None:
            if spec.get("allocateLoadBalancerNodePorts") is False:
                continue
            used = taken.union(asked.values())
            number = next((free for free in _NODE_PORTS if free not in used), 0)
        why = ""
        if number in taken and shared.get(one["port"]) != number:
            why = "provided port is already allocated"
        elif number not in _NODE_PORTS and is_stored:
            why = (
                "provided port is not in the valid range. The range of valid ports is"
                f" {_NODE_PORTS[0]}-{_NODE_PORTS[-1]}"
            )
        if why:
            cause = causes.invalid(f"spec.ports[{position}].nodePort", number, why)
            raise invalid("", "Service", obj["metadata"]["name"], [cause])
        taken.add(number)
        shared.setdefault(one["port"], number)
        one["nodePort"] = number


def _is_addressed(spec: Json) -> bool:
    return spec.get("type") != "ExternalName"


def _is_published(spec: Json) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer")


def _is_balanced(spec: Json) -> bool:
    return spec.get("type") == "LoadBalancer"


# What Services have only under some condition, and lose with it.
_DEPENDENT: Final[dict[str, Callable[[Json], Any]]] = {
    **dict.fromkeys(
        ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"),
        _is_addressed,
    ),
    "externalTrafficPolicy": lambda spec: _is_published(spec) or spec.get("externalIPs"),
    "healthCheckNodePort": lambda spec: (
        _is_balanced(spec) and spec.get("externalTrafficPolicy") == "Local"
    ),
    "allocateLoadBalancerNodePorts": _is_balanced,
    "loadBalancerClass": _is_balanced,
}


def _keep_ports(spec: Json, before: Json) -> None:
    """Let ports keep the node ports of their names, and none that is not published have one."""
    ports: list[Json] = spec.get("ports") or []
    held = {one.get("name"): one.get("nodePort") for one in before.get("ports") or ()}
    said = [one.get("nodePort") for one in ports]
    for one in ports:
        number = held.get(one.get("name"))
        if not _is_published(spec) and one.get("nodePort") in held.values():
            one.pop("nodePort", None)
        elif _is_published(spec) and not one.get("nodePort") and number and number not in said:
            one["nodePort"] = number


def keep_allocated(spec: Json, before: Json) -> None:
    """Put back what a Service was given and a write does not say anew; drop what it cannot keep."""
    for key, has in _DEPENDENT.items():
        if has(before) and not has(spec) and spec.get(key) == before.get(key):
            spec.pop(key, None)
    _keep_ports(spec, before)
    if not _is_addressed(spec):
        return
    for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if key in before and not spec.get(key):
            spec[key] = before[key]
    if spec.get("clusterIP") != before.get("clusterIP") and (
        spec.get("clusterIPs") == before.get("clusterIPs")
    ):
        spec["clusterIPs"] = [spec["clusterIP"]]

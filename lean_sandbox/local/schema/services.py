"""Services: defaults and validation."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors, names
from lean_sandbox.local.schema.metadata import check_labels
from lean_sandbox.local.schema.pods import PROTOCOLS
from lean_sandbox.local.schema.rows import between, fill, named, one_of, port, unique

Json = dict[str, Any]

_IP_TEXT: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_DEFAULTS: Final[Json] = {
    "type": "ClusterIP",
    "sessionAffinity": "None",
    "ports[*]": {"protocol": "TCP"},
}
_PUBLISHED: Final[Json] = {
    "internalTrafficPolicy": "Cluster",
    "sessionAffinity=ClientIP": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}},
    "type=LoadBalancer": {
        "allocateLoadBalancerNodePorts": True,
        "externalTrafficPolicy": "Cluster",
    },
    "type=NodePort": {"externalTrafficPolicy": "Cluster"},
}
_LOOSE: Final[Json] = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
_SINGLE: Final[Json] = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}


def service_defaults(obj: Json) -> None:
    """Write the defaults of a Service (cluster IPs and node ports are the server's matter)."""
    spec = obj.setdefault("spec", {})
    fill(spec, _DEFAULTS)
    for one in spec.get("ports") or ():
        if not one.get("targetPort") and one.get("port") is not None:
            one["targetPort"] = one["port"]
    if spec["type"] == "ExternalName":
        return
    fill(spec, _PUBLISHED)
    address = spec.get("clusterIP")
    if address and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [address]
    elif not address and spec.get("clusterIPs"):
        spec["clusterIP"] = spec["clusterIPs"][0]
    fill(spec, _LOOSE if address == "None" and not spec.get("selector") else _SINGLE)


def _ports(spec: Json, where: str) -> Iterator[Cause]:
    ports: list[Json] = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield errors.required(f"{where}.ports")
    seen: set[tuple[Any, Any]] = set()
    for position, one in enumerate(ports):
        if len(ports) > 1 and not one.get("name"):
            yield errors.required(f"{where}.ports[{position}].name")
        key = (one.get("protocol"), one.get("port"))
        if key in seen:
            shown = {
                "Name": "",
                "Protocol": key[0],
                "AppProtocol": None,
                "Port": key[1],
                "TargetPort": 0,
                "NodePort": 0,
            }
            yield errors.duplicate(f"{where}.ports[{position}]", shown)
        seen.add(key)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _addresses(spec: Json, where: str) -> Iterator[Cause]:
    addresses: list[str] = spec.get("clusterIPs") or []
    kind = spec.get("type")
    if kind == "ExternalName" and not spec.get("externalName"):
        yield errors.required(f"{where}.externalName")
    if addresses[:1] == ["None"] and kind in {"NodePort", "LoadBalancer"}:
        text = f"may not be set to 'None' for {kind} services"
        yield errors.invalid(f"{where}.clusterIPs[0]", "None", text)
    for position, address in enumerate(addresses):
        if address not in {"None", ""} and not _is_address(address):
            yield errors.invalid(f"{where}.clusterIPs[{position}]", address, _IP_TEXT)
    if addresses and spec.get("clusterIP") != addresses[0]:
        text = "first value must match `clusterIP`"
        yield errors.invalid(f"{where}.clusterIPs", addresses, text)


SERVICE: Final[Any] = {
    "spec": (
        _ports,
        _addresses,
        {
            "type": one_of("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"),
            "sessionAffinity": one_of("ClientIP", "None"),
            "selector": check_labels,
            "ports": unique("name"),
            "ports[*]": {
                "name": named(names.rfc1123_label_problems),
                "port": between(1, 65535),
                "protocol": one_of(*PROTOCOLS),
                "targetPort": port,
            },
        },
    )
}


def check_service_change(obj: Json, before: Json) -> Iterator[Cause]:
    """Give what is wrong with the update of a Service: its address never changes."""
    spec, old = obj["spec"], before.get("spec") or {}
    now, was = spec.get("clusterIPs") or [], old.get("clusterIPs") or []
    is_named = "ExternalName" in (spec.get("type"), old.get("type"))
    if now and was and now[0] != was[0] and not is_named:
        yield errors.invalid("spec.clusterIPs[0]", now, "may not change once set")

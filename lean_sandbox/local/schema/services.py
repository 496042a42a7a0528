"""Checks of Services."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import (
    between,
    broken,
    labels,
    named,
    needed,
    one_of,
    port,
    prohibited,
    unique,
)
from lean_sandbox.local.schema.containers import PROTOCOLS
from lean_sandbox.local.schema.formats import address, network

Json = dict[str, Any]


def _ports(spec: Json, where: str) -> Iterator[ErrorCause]:
    ports: list[Json] = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield causes.required(f"{where}.ports")
    seen: set[tuple[Any, Any]] = set()
    for position, one in enumerate(ports):
        if len(ports) > 1 and not one.get("name"):
            yield causes.required(f"{where}.ports[{position}].name")
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
            yield causes.duplicate(f"{where}.ports[{position}]", shown)
        seen.add(key)


_NO_ADDRESS: Final = "may not be set for ExternalName services"
_EXTERNAL: Final = (needed(), named(causes.subdomain_problems))


def _addresses(spec: Json, where: str) -> Iterator[ErrorCause]:
    addresses: list[str] = spec.get("clusterIPs") or []
    kind = spec.get("type")
    if kind == "ExternalName":
        name = (spec.get("externalName") or "").removesuffix(".")
        yield from broken(name, f"{where}.externalName", _EXTERNAL)
        for key in ("ipFamilies", "ipFamilyPolicy"):
            yield from prohibited(_NO_ADDRESS)(spec.get(key), f"{where}.{key}")
    if addresses[:1] == ["None"] and kind in {"NodePort", "LoadBalancer"}:
        text = f"may not be set to 'None' for {kind} services"
        yield causes.invalid(f"{where}.clusterIPs[0]", "None", text)
    for position, one in enumerate(addresses):
        if one != "None":
            yield from address(one, f"{where}.clusterIPs[{position}]")
    text = ""
    if addresses and kind == "ExternalName":
        yield causes.forbidden(f"{where}.clusterIPs", _NO_ADDRESS)
    elif addresses and not spec.get("clusterIP"):
        text = "must be empty when `clusterIP` is not specified"
    elif addresses and spec.get("clusterIP") != addresses[0]:
        text = "first value must match `clusterIP`"
    if text:
        yield causes.invalid(f"{where}.clusterIPs", addresses, text)
    if len({":" in one for one in addresses}) < len(addresses):
        text = "may specify no more than one IP for each IP family"
        yield causes.invalid(f"{where}.clusterIPs", addresses, text)


def _public(value: str, where: str) -> Iterator[ErrorCause]:
    """Check that others can reach an address."""
    try:
        found = ipaddress.ip_address(value)
    except ValueError:
        return
    text = ""
    if found.is_unspecified:
        text = f"may not be unspecified ({found})"
    elif found.is_loopback:
        text = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    elif found.is_link_local:
        text = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    elif found.is_multicast and int(found) & 0xFF00 == 0:
        text = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    if text:
        yield causes.invalid(where, value, text)


def _families(spec: Json, where: str) -> Iterator[ErrorCause]:
    """Check the families of addresses: the server has IPv4 only."""
    seen: list[str] = []
    for position, family in enumerate(spec.get("ipFamilies") or ()):
        place = f"{where}.ipFamilies[{position}]"
        yield from one_of("IPv4", "IPv6")(family, place)
        if family in seen:
            yield causes.duplicate(place, family)
        elif family == "IPv6" and _is_with_address(spec):
            yield causes.invalid(place, family, "not configured on this cluster")
        seen.append(family)
    if spec.get("ipFamilyPolicy") == "RequireDualStack" and _is_with_address(spec):
        text = "this cluster is not configured for dual-stack services"
        yield causes.invalid(f"{where}.ipFamilyPolicy", "RequireDualStack", text)


def _is_with_address(spec: Json) -> bool:
    return spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None"


_PUBLISHED: Final = ("NodePort", "LoadBalancer")
_OF_BALANCERS: Final = ("allocateLoadBalancerNodePorts", "loadBalancerClass")


def _publishing(spec: Json, where: str) -> Iterator[ErrorCause]:
    """Check what only Services of some types may say."""
    kind = spec.get("type") or ""
    only = "may only be used when `type` is 'LoadBalancer'"
    for name in _OF_BALANCERS if kind != "LoadBalancer" else ():
        yield from prohibited(only)(spec.get(name), f"{where}.{name}")
    if kind == "LoadBalancer":
        place = f"{where}.loadBalancerClass"
        yield from named(causes.label_key_problems)(spec.get("loadBalancerClass"), place)
    # The server writes this name with a capital.
    place = f"{where}.LoadBalancerSourceRanges"
    ranges = spec.get("loadBalancerSourceRanges")
    if ranges and kind != "LoadBalancer":
        yield causes.forbidden(place, only)
    for position, one in enumerate(ranges or ()):
        yield from network(one.strip(), f"{place}[{position}]")
    policy = spec.get("externalTrafficPolicy")
    is_reachable = kind in _PUBLISHED or (kind == "ClusterIP" and spec.get("externalIPs"))
    if policy and not is_reachable:
        text = "may only be set for externally-accessible services"
        yield causes.invalid(f"{where}.externalTrafficPolicy", policy, text)
    else:
        yield from one_of("Cluster", "Local")(policy, f"{where}.externalTrafficPolicy")
    health = spec.get("healthCheckNodePort")
    if health and (kind, policy) != ("LoadBalancer", "Local"):
        text = (
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        )
        yield causes.invalid(f"{where}.healthCheckNodePort", health, text)
    for position, one in enumerate(spec.get("ports") or ()):
        if one.get("nodePort") and kind == "ClusterIP":
            text = "may not be used when `type` is 'ClusterIP'"
            yield causes.forbidden(f"{where}.ports[{position}].nodePort", text)


_STICKY: Final = between(1, 86400, "must be greater than 0 and less than 86400")
SERVICE: Final[Any] = {
    "spec": (
        _ports,
        _addresses,
        _families,
        _publishing,
        {
            "type": one_of("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"),
            "healthCheckNodePort": port,
            "internalTrafficPolicy": one_of("Cluster", "Local"),
            "ipFamilyPolicy": one_of("PreferDualStack", "RequireDualStack", "SingleStack"),
            "sessionAffinity": one_of("ClientIP", "None"),
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": _STICKY}},
            "externalIPs[*]": (address, _public),
            "selector": labels,
            "trafficDistribution": one_of("PreferClose", "PreferSameZone", "PreferSameNode"),
            "ports": unique("name"),
            "ports[*]": {
                "name": named(causes.rfc1123_label_problems),
                "port": between(1, 65535),
                "protocol": one_of(*PROTOCOLS),
                "appProtocol": named(causes.label_key_problems),
                "targetPort": port,
            },
        },
    )
}


def check_service_change(obj: Json, before: Json) -> Iterator[ErrorCause]:
    """Give what is wrong with the update of a Service: its address never changes."""
    spec = obj["spec"]
    old = before.get("spec") or {}
    classes = [one.get("loadBalancerClass") for one in (spec, old)]
    if {one.get("type") for one in (spec, old)} == {"LoadBalancer"} and classes[0] != classes[1]:
        yield causes.invalid("spec.loadBalancerClass", classes[0], "may not change once set")
    now = spec.get("clusterIPs") or []
    was = old.get("clusterIPs") or []
    is_named = "ExternalName" in (spec.get("type"), old.get("type"))
    if now and was and now[0] != was[0] and not is_named:
        yield causes.invalid("spec.clusterIPs[0]", now, "may not change once set")

"""Services: defaults, validation, addresses and node ports."""

from __future__ import annotations

import ipaddress
from collections.abc import Container, Iterable, Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause, StatusError, invalid
from lean_sandbox.local.schema import errors, names
from lean_sandbox.local.schema.formats import matches_format
from lean_sandbox.local.schema.pods import PROTOCOLS
from lean_sandbox.local.schema.rows import between, fill, labels, named, one_of, port, unique

Json = dict[str, Any]

_NETWORK: Final = ipaddress.ip_network("10.96.0.0/16")
"""The range of cluster IPs."""
_NODE_PORTS: Final = range(30000, 32768)
_IP_TEXT: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_DEFAULTS: Final[Json] = {"type": "ClusterIP", "sessionAffinity": "None"}
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


def _ports(spec: Json, where: str) -> Iterator[ErrorCause]:
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


def _addresses(spec: Json, where: str) -> Iterator[ErrorCause]:
    addresses: list[str] = spec.get("clusterIPs") or []
    kind = spec.get("type")
    if kind == "ExternalName" and not spec.get("externalName"):
        yield errors.required(f"{where}.externalName")
    if addresses[:1] == ["None"] and kind in {"NodePort", "LoadBalancer"}:
        text = f"may not be set to 'None' for {kind} services"
        yield errors.invalid(f"{where}.clusterIPs[0]", "None", text)
    for position, address in enumerate(addresses):
        is_address = any(matches_format(address, form) for form in ("ipv4", "ipv6"))
        if address not in {"None", ""} and not is_address:
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
            "selector": labels,
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


def check_service_change(obj: Json, before: Json) -> Iterator[ErrorCause]:
    """Give what is wrong with the update of a Service: its address never changes."""
    spec = obj["spec"]
    old = before.get("spec") or {}
    now = spec.get("clusterIPs") or []
    was = old.get("clusterIPs") or []
    is_named = "ExternalName" in (spec.get("type"), old.get("type"))
    if now and was and now[0] != was[0] and not is_named:
        yield errors.invalid("spec.clusterIPs[0]", now, "may not change once set")


# ------------------------------------------------------------------ what is given out


def _refused(what: str, field: str, name: str = "") -> StatusError:
    return invalid("", "Service", name, [ErrorCause("FieldValueInvalid", what, field)])


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
        raise _refused(text, "spec.clusterIPs")
    spec["clusterIP"] = address
    spec["clusterIPs"] = [address]


def assign_node_ports(obj: Json, others: Iterable[Json]) -> None:
    """Give the ports of a Service numbers on all nodes if its type needs them.

    ``others`` are the Services that may have some. Raises StatusError (422) for a number that is
    taken or out of range.
    """
    spec: Json = obj["spec"]
    taken = {one.get("nodePort") for other in others for one in other["spec"].get("ports") or ()}
    is_wanted = spec.get("type") == "NodePort" or (
        spec.get("type") == "LoadBalancer"
        and spec.get("allocateLoadBalancerNodePorts") is not False
    )
    for position, one in enumerate(spec.get("ports") or ()):
        number = one.get("nodePort")
        why = ""
        if not number:
            if is_wanted:
                one["nodePort"] = next((free for free in _NODE_PORTS if free not in taken), None)
                taken.add(one["nodePort"])
        elif number not in _NODE_PORTS:
            why = (
                "provided port is not in the valid range. The range of valid ports is"
                f" {_NODE_PORTS.start}-{_NODE_PORTS.stop - 1}"
            )
        elif number in taken:
            why = "provided port is already allocated"
        if why:
            text = f"Invalid value: {number}: {why}"
            raise _refused(text, f"spec.ports[{position}].nodePort", obj["metadata"]["name"])


def keep_allocated(spec: Json, before: Json) -> None:
    """Put back what a Service was given and a write does not say anew."""
    if spec.get("type") == "ExternalName":
        return
    for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if key in before and not spec.get(key):
            spec[key] = before[key]
    if spec.get("clusterIP") != before.get("clusterIP") and (
        spec.get("clusterIPs") == before.get("clusterIPs")
    ):
        spec["clusterIPs"] = [spec["clusterIP"]]
    had = {
        (one.get("port"), one.get("protocol")): one.get("nodePort")
        for one in before.get("ports") or ()
    }
    needs_ports = spec.get("type") in ("NodePort", "LoadBalancer")
    for one in spec.get("ports") or ():
        number = had.get((one.get("port"), one.get("protocol", "TCP")))
        if number and needs_ports:
            one.setdefault("nodePort", number)
        elif number and one.get("nodePort") == number:
            del one["nodePort"]

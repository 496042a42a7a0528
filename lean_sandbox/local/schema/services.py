"""Services: defaults and validation."""

from __future__ import annotations

import ipaddress
from typing import Any

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors, names, paths
from lean_sandbox.local.schema.metadata import check_labels

Json = dict[str, Any]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_AFFINITIES = ("ClientIP", "None")
_PORT_RANGE = "must be between 1 and 65535, inclusive"
_IP_TEXT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def service_defaults(obj: Json) -> None:
    """Write the defaults of a Service (cluster IPs and node ports are the server's matter)."""
    spec = obj.setdefault("spec", {})
    kind = spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in {None, 0, ""} and port.get("port") is not None:
            port["targetPort"] = port["port"]
    if kind == "ExternalName":
        return
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["sessionAffinity"] == "ClientIP":
        client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client.setdefault("timeoutSeconds", 10800)
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if kind in {"NodePort", "LoadBalancer"}:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    address = spec.get("clusterIP")
    if address and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [address]
    elif not address and spec.get("clusterIPs"):
        spec["clusterIP"] = spec["clusterIPs"][0]
    is_loose = address == "None" and not spec.get("selector")
    families = ["IPv4", "IPv6"] if is_loose else ["IPv4"]
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if is_loose else "SingleStack")
    spec.setdefault("ipFamilies", families)


def _check_target(target: Any, path: str) -> list[Cause]:
    if isinstance(target, str):
        return [errors.invalid(path, target, text) for text in names.port_name_problems(target)]
    if isinstance(target, int) and not 1 <= target <= 65535:
        return [errors.invalid(path, target, _PORT_RANGE)]
    return []


def _check_port(port: Json, path: str, seen_names: set[str], *, needs_name: bool) -> list[Cause]:
    found: list[Cause] = []
    name, where = port.get("name") or "", paths.child(path, "name")
    if not name:
        if needs_name:
            found.append(errors.required(where))
    else:
        problems = names.rfc1123_label_problems(name)
        found += [errors.invalid(where, name, text) for text in problems]
        if name in seen_names:
            found.append(errors.duplicate(where, name))
        seen_names.add(name)
    number = port.get("port") or 0
    if not 1 <= number <= 65535:
        found.append(errors.invalid(paths.child(path, "port"), number, _PORT_RANGE))
    protocol = port.get("protocol") or ""
    where = paths.child(path, "protocol")
    if not protocol:
        found.append(errors.required(where))
    elif protocol not in _PROTOCOLS:
        found.append(errors.not_supported(where, protocol, _PROTOCOLS))
    target = port.get("targetPort", number)
    return found + _check_target(target, paths.child(path, "targetPort"))


def _check_ports(spec: Json) -> list[Cause]:
    ports: list[Json] = spec.get("ports") or []
    is_headless = spec.get("clusterIP") == "None"
    if not ports and not is_headless and spec.get("type") != "ExternalName":
        return [errors.required("spec.ports")]
    found: list[Cause] = []
    seen_names: set[str] = set()
    seen: set[tuple[Any, Any]] = set()
    for position, port in enumerate(ports):
        path = paths.index("spec.ports", position)
        found += _check_port(port, path, seen_names, needs_name=len(ports) > 1)
        key = (port.get("protocol"), port.get("port"))
        if key in seen:
            shown = {
                "Name": "",
                "Protocol": key[0],
                "AppProtocol": None,
                "Port": key[1],
                "TargetPort": 0,
                "NodePort": 0,
            }
            found.append(errors.duplicate(path, shown))
        seen.add(key)
    return found


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_addresses(spec: Json, old: Json | None) -> list[Cause]:
    found: list[Cause] = []
    addresses: list[str] = spec.get("clusterIPs") or []
    kind = spec.get("type")
    if addresses[:1] == ["None"] and kind in {"NodePort", "LoadBalancer"}:
        text = f"may not be set to 'None' for {kind} services"
        found.append(errors.invalid("spec.clusterIPs[0]", "None", text))
    for position, address in enumerate(addresses):
        if address not in {"None", ""} and not _is_address(address):
            where = paths.index("spec.clusterIPs", position)
            found.append(errors.invalid(where, address, _IP_TEXT))
    if addresses and spec.get("clusterIP") != addresses[0]:
        text = "first value must match `clusterIP`"
        found.append(errors.invalid("spec.clusterIPs", addresses, text))
    before: list[str] = (old or {}).get("clusterIPs") or []
    stays = kind != "ExternalName" and (old or {}).get("type") != "ExternalName"
    if stays and before[:1] and addresses[:1] and before[0] != addresses[0]:
        text = "may not change once set"
        found.append(errors.invalid("spec.clusterIPs[0]", addresses, text))
    return found


def check_service(obj: Json, old: Json | None) -> list[Cause]:
    """Return what is wrong with a Service, and on an update with the change of its address."""
    spec: Json = obj.get("spec") or {}
    found = _check_ports(spec)
    if (kind := spec.get("type")) not in _TYPES:
        found.append(errors.not_supported("spec.type", kind, _TYPES))
    if kind == "ExternalName" and not spec.get("externalName"):
        found.append(errors.required("spec.externalName"))
    if (affinity := spec.get("sessionAffinity")) not in _AFFINITIES:
        found.append(errors.not_supported("spec.sessionAffinity", affinity, _AFFINITIES))
    found += check_labels(spec.get("selector"), "spec.selector")
    return found + _check_addresses(spec, None if old is None else old.get("spec") or {})

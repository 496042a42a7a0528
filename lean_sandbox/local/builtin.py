"""What single built-in kinds do on writes beyond their schema: the strategies of an API server."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any, Final

from lean_sandbox.local.errors import Cause, invalid
from lean_sandbox.local.registry import Kind
from lean_sandbox.local.schema.decoding import builtin_schema, complete

Json = dict[str, Any]

_SERVICE_NETWORK: Final = "10.96.0.0/16"
"""The range of cluster IPs."""
_GATED: Json = {
    "type": "PodScheduled",
    "status": "False",
    "lastTransitionTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
"""What the server itself says of a Pod that is created with scheduling gates."""


class ClusterIPs:
    """Hands out cluster IPs of one range; an address returns when its Service goes."""

    def __init__(self) -> None:
        self._network = ipaddress.ip_network(_SERVICE_NETWORK)
        self._fresh: Iterator[Any] = self._network.hosts()
        self._free: list[str] = []
        self._taken: set[str] = set()

    def take(self) -> str:
        """Return an address nobody has."""
        while self._free:
            address = self._free.pop()
            if address not in self._taken:
                self._taken.add(address)
                return address
        for candidate in self._fresh:
            address = str(candidate)
            if address not in self._taken:
                self._taken.add(address)
                return address
        raise invalid(
            "",
            "Service",
            "",
            [Cause("FieldValueInvalid", "failed to allocate IP: range is full", "spec.clusterIPs")],
        )

    def claim(self, address: str) -> None:
        """Take an address that somebody asks for. Raises StatusError (422) if it is not free."""
        why = ""
        if ipaddress.ip_address(address) not in self._network:
            why = (
                f"the provided IP ({address}) is not in the valid range. The range of valid IPs is"
                f" {self._network}"
            )
        elif address in self._taken:
            why = "provided IP is already allocated"
        if why:
            text = f'Invalid value: ["{address}"]: failed to allocate IP {address}: {why}'
            cause = Cause("FieldValueInvalid", text, "spec.clusterIPs")
            raise invalid("", "Service", "", [cause])
        self._taken.add(address)

    def note(self, address: str) -> None:
        """Remember an address someone asked for by name, or had before a restart."""
        self._taken.add(address)

    def give_back(self, address: str) -> None:
        """Take back the address of a Service that is gone."""
        if address in self._taken:
            self._taken.discard(address)
            self._free.append(address)


def prepare_create(kind: Kind, obj: Json) -> None:
    """Set what the server decides about a new object, before defaults."""
    # A kubelet registers its node, and what the node is like, with one POST.
    if kind.has_status and kind.storage != "nodes":
        obj.pop("status", None)
    if kind.is_custom:
        return
    if kind.group:
        if kind.storage == "customresourcedefinitions.apiextensions.k8s.io":
            stored = [
                item["name"]
                for item in (obj.get("spec") or {}).get("versions") or ()
                if item.get("storage") and item.get("name")
            ]
            obj["status"] = {"storedVersions": stored}
        return
    if kind.plural == "pods":
        obj["status"] = {"phase": "Pending", "qosClass": _quality(obj.get("spec") or {})}
        if (obj.get("spec") or {}).get("schedulingGates"):
            obj["status"]["conditions"] = [dict(_GATED)]
    elif kind.plural == "namespaces":
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}
    elif kind.plural == "persistentvolumeclaims":
        obj["status"] = {"phase": "Pending"}
    elif kind.plural == "services":
        obj["status"] = {"loadBalancer": {}}
    elif kind.plural == "secrets":
        _encode_strings(obj)


def _encode_strings(obj: Json) -> None:
    strings = obj.pop("stringData", None)
    if strings:
        data = obj.setdefault("data", {})
        for key, value in strings.items():
            data[key] = base64.b64encode(value.encode()).decode()


def assign_address(obj: Json, addresses: ClusterIPs, *, keep: bool) -> None:
    """Give a new Service its cluster IP; a dry run (not ``keep``) shows one and gives it back."""
    spec = obj.setdefault("spec", {})
    if spec.get("type") == "ExternalName":
        return
    address = spec.get("clusterIP")
    if not address:
        address = addresses.take()
    elif address != "None":
        addresses.claim(address)
    if not keep:
        addresses.give_back(address)
    spec["clusterIP"] = address
    spec["clusterIPs"] = [address]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


_NODE_PORTS: Final = range(30000, 32768)


def assign_node_ports(obj: Json, others: Iterable[Json]) -> None:
    """Give the ports of a Service numbers on all nodes if its type needs them.

    ``others`` are the Services that may have some. Raises StatusError (422) for a number that is
    taken or out of range.
    """
    spec: Json = obj["spec"]
    taken = {port.get("nodePort") for other in others for port in other["spec"].get("ports") or ()}
    causes: list[Cause] = []
    is_balanced = spec.get("type") == "LoadBalancer"
    is_wanted = spec.get("type") == "NodePort" or (
        is_balanced and spec.get("allocateLoadBalancerNodePorts") is not False
    )
    for position, port in enumerate(spec.get("ports") or ()):
        number, why = port.get("nodePort"), ""
        if not number and is_wanted:
            number = next((one for one in _NODE_PORTS if one not in taken), None)
            port["nodePort"] = number
            taken.add(number)
        elif number and number not in _NODE_PORTS:
            why = (
                "provided port is not in the valid range. The range of valid ports is"
                f" {_NODE_PORTS.start}-{_NODE_PORTS.stop - 1}"
            )
        elif number in taken and number:
            why = "provided port is already allocated"
        if why:
            text = f"Invalid value: {number}: {why}"
            causes.append(Cause("FieldValueInvalid", text, f"spec.ports[{position}].nodePort"))
    if causes:
        raise invalid("", "Service", obj["metadata"].get("name", ""), causes)


def _keep_allocated(spec: Json, before: Json) -> None:
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
        (port.get("port"), port.get("protocol")): port.get("nodePort")
        for port in before.get("ports") or ()
    }
    needs_ports = spec.get("type") in ("NodePort", "LoadBalancer")
    for port in spec.get("ports") or ():
        number = had.get((port.get("port"), port.get("protocol", "TCP")))
        if number and needs_ports:
            port.setdefault("nodePort", number)
        elif number and port.get("nodePort") == number:
            del port["nodePort"]


_ADMITTED: Final[dict[str, tuple[str, ...]]] = {
    "pods": ("serviceAccount", "serviceAccountName", "priority", "preemptionPolicy"),
    "namespaces": ("finalizers",),
    "services": ("clusterIPs", "ipFamilies", "ipFamilyPolicy"),
}
"""Fields of spec that admission fills in after ownership has been recorded."""


def unowned(kind: Kind, obj: Json, sent: set[str]) -> Json:
    """Return what a new object is compared with: the part its creator does not come to own.

    ``sent`` are the members of spec the creator named.
    """
    made: Json = {"metadata": {}}
    if kind.is_custom:
        return made
    # What is written of an empty object belongs to nobody.
    complete(made, builtin_schema(kind.kind, kind.api_version))
    _empty_lists(made, obj)
    if not kind.group:
        given = obj.get("spec") or {}
        admitted = (key for key in _ADMITTED.get(kind.plural, ()) if key not in sent)
        made.get("spec", {}).update({key: given[key] for key in admitted if key in given})
    return made


def _empty_lists(made: Json, obj: Json) -> None:
    """Write the lists of an empty object as lists, so that items are owned and not the list."""
    for key, value in made.items():
        if value is None and isinstance(obj.get(key), list):
            made[key] = []
        elif isinstance(value, dict) and isinstance(obj.get(key), dict):
            _empty_lists(value, obj[key])


def prepare_update(kind: Kind, new: Json, old: Json, subresource: str) -> None:
    """Put back what a write to this path cannot change."""
    if subresource == "status":
        kept = {key: value for key, value in old.items() if key not in ("status", "metadata")}
        if not kind.is_custom:
            # Labels and annotations may ride along on a status write of a built-in kind.
            kept["metadata"] = {
                **new["metadata"],
                **{
                    key: old["metadata"][key]
                    for key in ("ownerReferences",)
                    if key in old["metadata"]
                },
            }
        else:
            kept["metadata"] = {
                **old["metadata"],
                "managedFields": new["metadata"].get("managedFields"),
            }
        status = new.get("status")
        new.clear()
        new.update(kept)
        if status is not None:
            new["status"] = status
        return
    if kind.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    if kind.group:
        return
    if kind.plural == "namespaces" and subresource != "finalize":
        new["spec"] = old.get("spec") or {}
    elif kind.plural == "services":
        _keep_allocated(new.setdefault("spec", {}), old.get("spec") or {})
    elif kind.plural == "secrets":
        _encode_strings(new)


def _quality(spec: Json) -> str:
    """Return the quality-of-service class that follows from a Pod's resources."""
    limited = requested = True
    some = False
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for container in [spec] if spec.get("resources") else containers:
        resources = container.get("resources") or {}
        limits, requests = (
            {name: one for name, one in (resources.get(part) or {}).items() if one != "0"}
            for part in ("limits", "requests")
        )
        some = some or bool(limits) or bool(requests)
        for name in ("cpu", "memory"):
            limited = limited and name in limits
            requested = requested and requests.get(name, limits.get(name)) == limits.get(name)
    if not some:
        return "BestEffort"
    return "Guaranteed" if limited and requested else "Burstable"

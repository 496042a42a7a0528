"""Discovery documents: the groups, versions and resources a server has, single and aggregated."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from typing import Any

from lean_sandbox.local.kinds import Kind

Json = dict[str, Any]

# The Kubernetes release whose API the server speaks.
RELEASE = ("1", "36", "v1.36.3")

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
# Resources that only take requests: nothing of them is stored.
_CREATE_ONLY = frozenset(
    {
        "bindings",
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
        "tokenreviews",
    }
)
_SUBRESOURCE_VERBS: dict[str, list[str]] = {
    "binding": ["create"],
    "eviction": ["create"],
    "finalize": ["update"],
    "log": ["get"],
    "token": ["create"],
}
_READ_WRITE = ["get", "patch", "update"]
# Subresources whose bodies are of another kind: group, version, kind.
_SUBRESOURCE_KINDS: dict[str, tuple[str, str, str]] = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}


def _verbs(kind: Kind) -> list[str]:
    if kind.plural in _CREATE_ONLY:
        return ["create"]
    if (kind.group, kind.plural) == ("", "namespaces"):
        return [verb for verb in _VERBS if verb != "deletecollection"]
    return list(_VERBS)


def _group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def _groups(kinds: Iterable[Kind]) -> dict[str, dict[str, list[Kind]]]:
    """Return group -> version -> kinds in the order of the input (first version preferred)."""
    found: dict[str, dict[str, list[Kind]]] = {}
    for kind in kinds:
        found.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
    return found


def api_versions(server_address: str) -> Json:
    """Return `/api`. `server_address` is host and port as the client reaches them."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}]
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": addresses,
    }


def _group(name: str, versions: Iterable[str]) -> Json:
    shown = [{"groupVersion": _group_version(name, v), "version": v} for v in versions]
    return {"name": name, "versions": shown, "preferredVersion": shown[0]}


def group_list(kinds: Iterable[Kind]) -> Json:
    """Return `/apis`: every group but the core one."""
    groups = [_group(name, versions) for name, versions in _groups(kinds).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(kinds: Iterable[Kind], group: str) -> Json | None:
    """Return `/apis/<group>`, None when there is no such group."""
    versions = _groups(kinds).get(group)
    if not versions:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}


def _listed(kind: Kind) -> Iterator[Json]:
    entry: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _verbs(kind),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    yield entry
    for name in sorted(kind.subresources):
        sub: Json = {"name": f"{kind.plural}/{name}", "singularName": ""}
        sub["namespaced"] = kind.namespaced
        group, version, inner = _SUBRESOURCE_KINDS.get(name, ("", "", kind.kind))
        if group:
            sub.update(group=group, version=version)
        sub.update(kind=inner, verbs=_SUBRESOURCE_VERBS.get(name, _READ_WRITE))
        yield sub


def resource_list(kinds: Iterable[Kind], group: str, version: str) -> Json | None:
    """Return `/api/v1` or `/apis/<group>/<version>`, None when it is not served."""
    found = _groups(kinds).get(group, {}).get(version)
    if not found:
        return None
    resources = [entry for kind in found for entry in _listed(kind)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": _group_version(group, version),
        "resources": resources,
    }


def _response_kind(group: str, version: str, kind: str) -> Json:
    return {"group": group, "version": version, "kind": kind}


def _aggregated(kind: Kind) -> Json:
    entry: Json = {
        "resource": kind.plural,
        "responseKind": _response_kind(kind.group, kind.version, kind.kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _verbs(kind),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.subresources:
        own = (kind.group, kind.version, kind.kind)
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": _response_kind(*_SUBRESOURCE_KINDS.get(name, own)),
                "verbs": _SUBRESOURCE_VERBS.get(name, _READ_WRITE),
            }
            for name in sorted(kind.subresources)
        ]
    return entry


def aggregated_discovery(kinds: Iterable[Kind], *, is_core: bool, api_version: str = "v2") -> Json:
    """Return the APIGroupDiscoveryList of `/api` (`is_core`) or `/apis`."""
    items: list[Json] = []
    for name, versions in _groups(kinds).items():
        if (name == "") is not is_core:
            continue
        shown = [
            {
                "version": version,
                "resources": [_aggregated(kind) for kind in members],
                "freshness": "Current",
            }
            for version, members in versions.items()
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": shown})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{api_version}",
        "metadata": {},
        "items": items,
    }


def aggregated_version(accept: str) -> str | None:
    """Return ``v2`` or ``v2beta1`` when an Accept header asks for aggregated discovery, else None.

    The answer's Content-Type is
    ``application/json;g=apidiscovery.k8s.io;v=<that>;as=APIGroupDiscoveryList``.
    """
    for part in accept.split(","):
        media, _, rest = part.strip().partition(";")
        parameters = dict(item.strip().split("=", 1) for item in rest.split(";") if "=" in item)
        if (
            media.strip() == "application/json"
            and parameters.get("as") == "APIGroupDiscoveryList"
            and parameters.get("g") == "apidiscovery.k8s.io"
            and parameters.get("v") in {"v2", "v2beta1"}
        ):
            return parameters["v"]
    return None


def version_info(product: str) -> Json:
    """Return `/version`; `product` names the server in the build fields."""
    major, minor, release = RELEASE
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"{release}+{product}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }

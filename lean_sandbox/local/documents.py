"""Everything the server says about itself: version, discovery, OpenAPI."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from lean_sandbox.local.registry import Kind, Registry

__all__ = ["documents"]

Json = dict[str, Any]
Found = tuple[int, bytes, str]

_VERSION: Final = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3+lean",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "cpython",
    "platform": "local/any",
}
_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def _resources(kinds: Iterable[Kind]) -> list[Json]:
    found = []
    for kind in sorted(kinds, key=lambda item: item.plural):
        item: Json = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": _VERBS,
        }
        if kind.short_names:
            item["shortNames"] = list(kind.short_names)
        if kind.categories:
            item["categories"] = list(kind.categories)
        found.append(item)
        for sub in sorted(kind.subresources):
            found.append(
                {
                    "name": f"{kind.plural}/{sub}",
                    "singularName": "",
                    "namespaced": kind.namespaced,
                    "kind": kind.kind,
                    "verbs": ["get", "patch", "update"],
                }
            )
    return found


def documents(
    registry: Registry, url: Callable[[], str]
) -> Callable[[str, str, dict[str, str]], Found | None]:
    """Return the function that answers paths outside the resources, None for unknown ones."""

    def answer(path: str, accept: str, query: dict[str, str]) -> Found | None:
        del accept, query
        body = _plain(registry, path.rstrip("/"), url())
        return None if body is None else (200, msgspec.json.encode(body), "application/json")

    return answer


def _plain(registry: Registry, path: str, url: str) -> Json | None:
    if path == "/version":
        return dict(_VERSION)
    if path == "/api":
        address = url.partition("//")[2]
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        }
    parts = path.strip("/").split("/")
    groups: dict[str, list[str]] = {}
    for kind in registry:
        versions = groups.setdefault(kind.group, [])
        if kind.version not in versions:
            versions.append(kind.version)
    if parts == ["apis"]:
        listed = [_group(name, versions) for name, versions in groups.items() if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    if len(parts) == 2 and parts[0] == "apis" and parts[1] in groups:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], groups[parts[1]])}
    group, version = ("", parts[-1]) if parts[0] == "api" else (parts[-2], parts[-1])
    if len(parts) == (2 if parts[0] == "api" else 3) and version in groups.get(group, ()):
        kinds = [kind for kind in registry if (kind.group, kind.version) == (group, version)]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": _resources(kinds),
        }
    return None


def _group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}

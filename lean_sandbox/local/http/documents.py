"""Everything the server says about itself: version, discovery, OpenAPI."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from lean_sandbox.local import recorded
from lean_sandbox.local.kinds import openapi
from lean_sandbox.local.kinds.registry import Kind, Registry
from lean_sandbox.local.read.represent import parse_accept
from lean_sandbox.local.target import Answer

Json = dict[str, Any]

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_PROTOBUF: Final = "com.github.proto-openapi.spec"
# openapi.v2.Document: swagger (1) and info (2) with title (1) and version (2), without definitions.
# kubectl asks for it in this form alone, for a List whose items it would check itself; kinds that
# the document does not have it leaves to the server, which checks each item as it is created.
_EMPTY_SWAGGER: Final = b"\x0a\x032.0\x12\x12\x0a\x0aKubernetes\x12\x04v1.0"
_SAME_IN_JSON: Final = (
    b'{"swagger":"2.0","info":{"title":"Kubernetes","version":"v1.0"},"paths":{},"definitions":{}}'
)
_VERSION: Final = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")
_STAGES: Final = {"": 0, "beta": 1, "alpha": 2}


# ------------------------------------------------------------------ discovery


def _group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def _groups(kinds: Iterable[Kind]) -> dict[str, dict[str, list[Kind]]]:
    """Return group -> version -> kinds, versions and groups in order of preference."""
    found: dict[str, dict[str, list[Kind]]] = {}
    for kind in kinds:
        found.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
    built_in = [group["metadata"].get("name", "") for group in recorded.discovery()]
    custom = sorted(found.keys() - built_in)
    return {
        name: dict(sorted(found[name].items(), key=lambda item: _priority(item[0])))
        for name in [*built_in, *custom]
        if name in found
    }


def _priority(version: str) -> tuple[Any, ...]:
    """Return what sorts versions as clients prefer them: v2, v1, v2beta1, v1alpha1, other."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (3, version)
    major, stage, minor = match.groups()
    return (_STAGES[stage or ""], -int(major), -int(minor or 0))


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
    resource, own = kind.resource, ("", kind.group)
    alike = ("verbs", "shortNames", "categories")
    yield {
        "name": kind.plural,
        "singularName": resource["singularResource"],
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        **{key: resource[key] for key in alike if key in resource},
    }
    for part in resource.get("subresources", ()):
        body = part["responseKind"]
        entry = {
            "name": f"{kind.plural}/{part['subresource']}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": body["kind"],
            "verbs": part["verbs"],
        }
        yield entry if body["group"] in own else {**body, **entry}


def resource_list(kinds: Iterable[Kind], group: str, version: str) -> Json | None:
    """Return `/api/v1` or `/apis/<group>/<version>`, None when it is not served."""
    found = _groups(kinds).get(group, {}).get(version)
    if not found:
        return None
    resources = [entry for kind in found for entry in _listed(kind)]
    return {
        "kind": "APIResourceList",
        **({"apiVersion": "v1"} if group else {}),
        "groupVersion": _group_version(group, version),
        "resources": resources,
    }


def aggregated_discovery(kinds: Iterable[Kind], *, is_core: bool, api_version: str = "v2") -> Json:
    """Return the APIGroupDiscoveryList of `/api` (`is_core`) or `/apis`."""
    items: list[Json] = []
    for name, versions in _groups(kinds).items():
        if (name == "") is not is_core:
            continue
        shown = [
            {
                "version": version,
                "resources": [kind.resource for kind in members],
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
    for media, parameters in parse_accept(accept):
        wanted = (parameters.get("as"), parameters.get("g"))
        version = parameters.get("v")
        if (
            media == "application/json"
            and wanted == ("APIGroupDiscoveryList", "apidiscovery.k8s.io")
            and version in ("v2", "v2beta1")
        ):
            return version
    return None


def version_info() -> Json:
    """Return `/version`, which names the server in the build fields."""
    major, minor, release = recorded.RELEASE
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{release}+lean",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


# ------------------------------------------------------------------ answers


class Documents:
    """Answers paths outside the resources; remembers what it encoded until the kinds change."""

    def __init__(self, registry: Registry, url: Callable[[], str]) -> None:
        self._registry = registry
        self._url = url
        self._revision = -1
        self._kinds: list[Kind] = []
        self._known: dict[tuple[str, str], Answer] = {}

    def answer(self, path: str, accept: str) -> Answer | None:
        """Return a document, None where there is none."""
        if self._revision != self._registry.revision:
            self._revision = self._registry.revision
            self._kinds = list(self._registry)
            self._known.clear()
        path = path.rstrip("/").removeprefix("/")
        if path == "openapi/v2" and _PROTOBUF in accept:
            return Answer(
                200, _EMPTY_SWAGGER, content_type=f"application/{_PROTOBUF}.v2.v1.0+protobuf"
            )
        version = (aggregated_version(accept) or "") if path in ("api", "apis") else ""
        key = (path, version)
        if key not in self._known:
            found = self._find(path, version)
            if found is None:  # not remembered: clients could ask for anything
                return None
            self._known[key] = found
        return self._known[key]

    def _find(self, path: str, version: str) -> Answer | None:
        if version:
            body = aggregated_discovery(self._kinds, is_core=path == "api", api_version=version)
            return Answer(200, msgspec.json.encode(body), content_type=_AGGREGATED.format(version))
        if path == "openapi/v2":
            return Answer(200, _SAME_IN_JSON)
        listed = self._listed(path)
        return None if listed is None else Answer(200, msgspec.json.encode(listed))

    def _listed(self, path: str) -> Json | None:
        match path.split("/"):
            case ["openapi", "v3"]:
                return openapi.index(self._kinds)
            case ["openapi", "v3", *rest]:
                return openapi.document(self._kinds, "/".join(rest))
            case ["version"]:
                return version_info()
            case ["api"]:
                return api_versions(self._url().partition("//")[2])
            case ["apis"]:
                return group_list(self._kinds)
            case ["apis", group]:
                return api_group(self._kinds, group)
            case ["api", version]:
                return resource_list(self._kinds, "", version)
            case ["apis", group, version]:
                return resource_list(self._kinds, group, version)
        return None

"""Everything the server says about itself: version, discovery, OpenAPI.

Of the operations the OpenAPI documents have those that kubectl looks for, to list and to patch.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from lean_sandbox.local import recorded
from lean_sandbox.local.kinds import Kind, Registry
from lean_sandbox.local.read.represent import parse_accept
from lean_sandbox.local.request import EncodedAnswer

Json = dict[str, Any]

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
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
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


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
    resource = kind.resource
    own = ("", kind.group)
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


def aggregated_discovery(kinds: Iterable[Kind], *, is_core: bool) -> Json:
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
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def wants_aggregated(accept: str) -> bool:
    """Say whether an Accept header asks for aggregated discovery, in the one version there is."""
    wanted = {"as": "APIGroupDiscoveryList", "g": "apidiscovery.k8s.io", "v": "v2"}
    return any(
        media == "application/json" and wanted.items() <= parameters.items()
        for media, parameters in parse_accept(accept)
    )


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


# ------------------------------------------------------------------ OpenAPI

_REFERENCE = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
_STRATEGIC = "application/strategic-merge-patch+json"
_OPTIONS: Final = ("dryRun", "fieldManager", "fieldValidation", "force")


def _path_of(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.api_version}"


def _identity(kind: Kind) -> Json:
    return {"group": kind.group, "kind": kind.kind, "version": kind.version}


def openapi_index(kinds: Iterable[Kind]) -> Json:
    """Return `/openapi/v3`: the address of every document, with a hash of what it is made of."""
    found: dict[str, list[Any]] = {}
    for kind in kinds:
        parts = (kind.kind, kind.resource, kind.schema if kind.is_custom else recorded.RELEASE)
        found.setdefault(_path_of(kind), []).append(parts)
    paths = {}
    for path, listed in sorted(found.items()):
        digest = hashlib.sha256(msgspec.json.encode(listed)).hexdigest().upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def openapi_document(kinds: Iterable[Kind], path: str) -> Json | None:
    """Return `/openapi/v3/<path>`, None when no such group and version is served."""
    found = [kind for kind in kinds if _path_of(kind) == path]
    if not found:
        return None
    major, minor, _ = recorded.RELEASE
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"{major}.{minor}"},
        "paths": {path: entry for kind in found for path, entry in _paths(kind)},
        "components": {"schemas": _schemas(found)},
    }


def _custom_schema(kind: Kind) -> Json:
    schema: Json = dict(kind.schema or {"type": "object"})
    properties: Json = dict(schema.get("properties") or {})
    about = "Standard object metadata."
    metadata = {"$ref": f"{_REFERENCE}{_META}ObjectMeta"}
    properties["metadata"] = {"description": about, "allOf": [metadata]}
    schema["properties"] = properties
    schema["x-kubernetes-group-version-kind"] = [_identity(kind)]
    return schema


def _schemas(kinds: list[Kind]) -> Json:
    roots = [_META + name for name in ("ObjectMeta", "ListMeta", "Status", "DeleteOptions")]
    found: Json = {}
    for kind in kinds:
        component = _component_of(kind)
        if kind.is_custom:
            found[component] = _custom_schema(kind)
        else:
            roots.append(component)
    while roots:
        name = roots.pop()
        if name not in found:
            found[name] = _described(name)
            roots += _references(found[name])
    return dict(sorted(found.items()))


def _described(component: str) -> Json:
    """Return the schema of a built-in type with what is said of it and of its fields."""
    schema = recorded.schemas()[component]
    said = recorded.descriptions().get(component, {})
    found = {"description": said[""], **schema} if "" in said else dict(schema)
    if "properties" in schema:
        found["properties"] = {
            name: {"description": said[name], **field} if name in said else field
            for name, field in schema["properties"].items()
        }
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref" and isinstance(item, str):
                yield item.removeprefix(_REFERENCE)
            else:
                yield from _references(item)


def _component_of(kind: Kind) -> str:
    if kind.is_custom:
        return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))
    return recorded.component_of(kind.api_version, kind.kind)


def _parameter(name: str, place: str) -> Json:
    found: Json = {"name": name, "in": place, "schema": {"type": "string"}}
    return {**found, "required": True} if place == "path" else found


def _operation(kind: Kind, action: str, **more: Any) -> Json:
    return {
        "tags": [f"{kind.group or 'core'}_{kind.version}"],
        "operationId": f"{action}{kind.group.title().replace('.', '')}{kind.version}{kind.kind}",
        **more,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _identity(kind),
    }


def _paths(kind: Kind) -> Iterator[tuple[str, Json]]:
    space = "namespaces/{namespace}/" if kind.namespaced else ""
    base = f"/{_path_of(kind)}/{space}{kind.plural}"
    scope = [_parameter("namespace", "path")] if kind.namespaced else []
    if kind.is_review:
        yield base, {"parameters": scope, "post": _operation(kind, "post")}
        return
    yield base, {"parameters": scope, "get": _operation(kind, "list")}
    schema = {"schema": {"$ref": _REFERENCE + _component_of(kind)}}
    media = _PATCHES if kind.is_custom else (*_PATCHES, _STRATEGIC)
    patch = _operation(
        kind,
        "patch",
        parameters=[_parameter(name, "query") for name in _OPTIONS],
        requestBody={"content": dict.fromkeys(media, schema)},
    )
    yield base + "/{name}", {"parameters": [_parameter("name", "path"), *scope], "patch": patch}


# ------------------------------------------------------------------ answers


class Documents:
    """Answers paths outside the resources; remembers what it encoded until the kinds change."""

    def __init__(self, registry: Registry, url: Callable[[], str]) -> None:
        self._registry = registry
        self._url = url
        self._revision = -1
        self._kinds: list[Kind] = []
        self._known: dict[tuple[str, bool], EncodedAnswer] = {}

    def answer(self, path: str, accept: str) -> EncodedAnswer | None:
        """Return a document, None where there is none."""
        if self._revision != self._registry.revision:
            self._revision = self._registry.revision
            self._kinds = list(self._registry)
            self._known.clear()
        path = path.rstrip("/").removeprefix("/")
        if path == "openapi/v2":
            if _PROTOBUF in accept:
                form = f"application/{_PROTOBUF}.v2.v1.0+protobuf"
                return EncodedAnswer(200, _EMPTY_SWAGGER, content_type=form)
            return EncodedAnswer(200, _SAME_IN_JSON)
        is_aggregated = path in ("api", "apis") and wants_aggregated(accept)
        known = self._known.get((path, is_aggregated))
        if known is None:
            found = self._listed(path, is_aggregated=is_aggregated)
            if found is None:  # not remembered: clients could ask for anything
                return None
            form = _AGGREGATED if is_aggregated else "application/json"
            known = EncodedAnswer(200, msgspec.json.encode(found), content_type=form)
            self._known[path, is_aggregated] = known
        return known

    def _listed(self, path: str, *, is_aggregated: bool) -> Json | None:
        match path.split("/"):
            case ["api" | "apis"] if is_aggregated:
                return aggregated_discovery(self._kinds, is_core=path == "api")
            case ["openapi", "v3"]:
                return openapi_index(self._kinds)
            case ["openapi", "v3", *rest]:
                return openapi_document(self._kinds, "/".join(rest))
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

"""OpenAPI documents of a server: what `kubectl explain` and `kubectl apply` read.

Types are whole; of the operations there are those that kubectl looks for, to list and to patch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from lean_sandbox.local import recorded
from lean_sandbox.local.kinds.registry import Kind

Json = dict[str, Any]

_REFERENCE = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
_STRATEGIC = "application/strategic-merge-patch+json"
_OPTIONS: Final = {
    "dryRun": "All: process the request but store nothing.",
    "fieldManager": "Name of the actor that makes the change.",
    "fieldValidation": "What to do about unknown fields: Ignore, Warn or Strict.",
    "force": "Take over fields owned by other managers.",
}


def _path_of(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.api_version}"


def _identity(kind: Kind) -> Json:
    return {"group": kind.group, "kind": kind.kind, "version": kind.version}


def index(kinds: Iterable[Kind]) -> Json:
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


def document(kinds: Iterable[Kind], path: str) -> Json | None:
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


def _parameter(name: str, place: str, about: str = "") -> Json:
    found: Json = {"name": name, "in": place, "schema": {"type": "string"}}
    if place == "path":
        return {**found, "required": True}
    return {**found, "description": about}


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
        parameters=[_parameter(name, "query", about) for name, about in _OPTIONS.items()],
        requestBody={"content": dict.fromkeys(media, schema)},
    )
    yield base + "/{name}", {"parameters": [_parameter("name", "path"), *scope], "patch": patch}

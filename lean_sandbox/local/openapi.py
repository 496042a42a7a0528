"""OpenAPI documents of a server: what `kubectl explain` and `kubectl apply` read.

Documents are computed when first asked for and kept encoded; the index only needs their hashes,
which come from the kinds and not from the finished text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from lean_sandbox.local import recorded
from lean_sandbox.local.discovery import RELEASE
from lean_sandbox.local.kinds import Kind

Json = dict[str, Any]

_REFERENCE = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
_STRATEGIC = "application/strategic-merge-patch+json"
_OPTIONS: dict[str, str] = {
    "dryRun": "All: process the request but store nothing.",
    "fieldManager": "Name of the actor that makes the change.",
    "fieldValidation": "What to do about unknown fields: Ignore, Warn or Strict.",
}
_SELECTION: dict[str, str] = {
    "allowWatchBookmarks": "boolean",
    "continue": "string",
    "fieldSelector": "string",
    "labelSelector": "string",
    "limit": "integer",
    "resourceVersion": "string",
    "resourceVersionMatch": "string",
    "sendInitialEvents": "boolean",
    "timeoutSeconds": "integer",
    "watch": "boolean",
}


def _path_of(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _parameter(name: str, kind: str = "string", text: str = "", place: str = "query") -> Json:
    found: Json = {"name": name, "in": place, "schema": {"type": kind}}
    if text:
        found["description"] = text
    if place == "path":
        found["required"] = True
    return found


_WRITE_OPTIONS = [_parameter(name, text=text) for name, text in _OPTIONS.items()]
_LIST_OPTIONS = [_parameter(name, kind) for name, kind in _SELECTION.items()]


def _custom_component(kind: Kind) -> str:
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))


def _identity(kind: Kind) -> Json:
    return {"group": kind.group, "kind": kind.kind, "version": kind.version}


class OpenApiDocuments:
    """The documents for one set of kinds; make a new one when the set changes."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        """Remember the kinds; nothing is computed yet."""
        self._groups: dict[str, list[Kind]] = {}
        for kind in kinds:
            self._groups.setdefault(_path_of(kind.group, kind.version), []).append(kind)
        self._encoded: dict[str, bytes] = {}

    def etag(self, path: str) -> str | None:
        """Return the hash of a document (``api/v1``, ``apis/<group>/<version>``) or None."""
        kinds = self._groups.get(path)
        if kinds is None:
            return None
        parts = [
            (RELEASE, kind.group, kind.version, kind.plural, kind.kind, sorted(kind.subresources))
            + ((kind.schema,) if kind.is_custom else ())
            for kind in kinds
        ]
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest().upper()

    def index(self) -> bytes:
        """Return `/openapi/v3`: the address of every document, with its hash."""
        paths = {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={self.etag(path)}"}
            for path in sorted(self._groups)
        }
        return msgspec.json.encode({"paths": paths})

    def document(self, path: str) -> bytes | None:
        """Return `/openapi/v3/<path>`, None when no such group and version is served."""
        kinds = self._groups.get(path)
        if kinds is None:
            return None
        if path not in self._encoded:
            self._encoded[path] = msgspec.json.encode(_document(kinds))
        return self._encoded[path]


def _list_schema(kind: Kind, item: str) -> Json:
    return {
        "description": f"{kind.kind}List is a list of {kind.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {"type": "array", "items": {"$ref": _REFERENCE + item}},
            "kind": {"type": "string"},
            "metadata": {"$ref": f"{_REFERENCE}{_META}ListMeta"},
        },
        "x-kubernetes-group-version-kind": [{**_identity(kind), "kind": f"{kind.kind}List"}],
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
            found[component + "List"] = _list_schema(kind, component)
        else:
            roots += [component, *([component + "List"] if "list" in kind.verbs else [])]
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
        return _custom_component(kind)
    return recorded.component_of(kind.api_version, kind.kind)


def _body(component: str, *media: str) -> Json:
    schema = {"$ref": _REFERENCE + component}
    return {"content": {name: {"schema": schema} for name in media}}


def _operation(kind: Kind, action: str, answer: str, **more: Any) -> Json:
    content = {"application/json": {"schema": {"$ref": _REFERENCE + answer}}}
    return {
        "tags": [f"{kind.group or 'core'}_{kind.version}"],
        "operationId": f"{action}{kind.group.title().replace('.', '')}{kind.version}{kind.kind}",
        **more,
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _identity(kind),
    }


def _paths(kind: Kind) -> Iterator[tuple[str, Json]]:
    component = _component_of(kind)
    space = "namespaces/{namespace}/" if kind.namespaced else ""
    base = f"/{_path_of(kind.group, kind.version)}/{space}{kind.plural}"
    scope = [_parameter("namespace", place="path")] if kind.namespaced else []
    body = _body(component, "application/json", "application/yaml")
    patches = _PATCHES if kind.is_custom else (*_PATCHES, _STRATEGIC)
    force = _parameter("force", "boolean", "Take over fields owned by other managers.")
    operations = {
        "list": _operation(kind, "list", component + "List", parameters=_LIST_OPTIONS),
        "create": _operation(kind, "post", component, parameters=_WRITE_OPTIONS, requestBody=body),
        "get": _operation(kind, "get", component),
        "update": _operation(kind, "put", component, parameters=_WRITE_OPTIONS, requestBody=body),
        "patch": _operation(
            kind,
            "patch",
            component,
            parameters=[*_WRITE_OPTIONS, force],
            requestBody=_body(component, *patches),
        ),
        "delete": _operation(kind, "delete", component),
    }

    def entry(parameters: list[Json], **verbs: str) -> Json:
        offered = {method: operations[verb] for method, verb in verbs.items() if verb in kind.verbs}
        return {"parameters": parameters, **offered}

    yield base, entry(scope, get="list", post="create")
    if "get" in kind.verbs:
        name = _parameter("name", place="path")
        verbs = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
        yield base + "/{name}", entry([name, *scope], **verbs)


def _info() -> Json:
    return {"title": "Kubernetes", "version": f"{RELEASE[0]}.{RELEASE[1]}"}


def _document(kinds: list[Kind]) -> Json:
    return {
        "openapi": "3.0.0",
        "info": _info(),
        "paths": {path: entry for kind in kinds for path, entry in _paths(kind)},
        "components": {"schemas": _schemas(kinds)},
    }

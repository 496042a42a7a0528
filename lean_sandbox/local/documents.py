"""Everything the server says about itself: version, discovery, OpenAPI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from lean_sandbox.local import openapi
from lean_sandbox.local.discovery import (
    aggregated_discovery,
    aggregated_version,
    api_group,
    api_versions,
    group_list,
    resource_list,
    version_info,
)
from lean_sandbox.local.registry import Kind, Registry

Json = dict[str, Any]
Found = tuple[int, bytes, str]

_JSON: Final = "application/json"
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_PRODUCT: Final = "lean"
_PROTOBUF: Final = "com.github.proto-openapi.spec"
# openapi.v2.Document: swagger (1) and info (2) with title (1) and version (2), without definitions.
# kubectl asks for it in this form alone, for a List whose items it would check itself; kinds that
# the document does not have it leaves to the server, which checks each item as it is created.
_EMPTY_SWAGGER: Final = b"\x0a\x032.0\x12\x12\x0a\x0aKubernetes\x12\x04v1.0"
_SAME_IN_JSON: Final = (
    b'{"swagger":"2.0","info":{"title":"Kubernetes","version":"v1.0"},"paths":{},"definitions":{}}'
)


class Documents:
    """Answers paths outside the resources; remembers what it encoded until the kinds change."""

    def __init__(self, registry: Registry, url: Callable[[], str]) -> None:
        self._registry = registry
        self._url = url
        self._revision = -1
        self._kinds: list[Kind] = []
        self._known: dict[tuple[str, str], Found | None] = {}

    def answer(self, path: str, accept: str) -> Found | None:
        """Return code, body and content type of a document, None where there is none."""
        if self._revision != self._registry.revision:
            self._revision = self._registry.revision
            self._kinds = list(self._registry)
            self._known.clear()
        path = path.rstrip("/").removeprefix("/")
        if path == "openapi/v2" and _PROTOBUF in accept:
            return 200, _EMPTY_SWAGGER, f"application/{_PROTOBUF}.v2.v1.0+protobuf"
        version = (aggregated_version(accept) or "") if path in ("api", "apis") else ""
        key = (path, version)
        if key not in self._known:
            found = self._find(path, version)
            if found is None:  # not remembered: clients could ask for anything
                return None
            self._known[key] = found
        return self._known[key]

    def _find(self, path: str, version: str) -> Found | None:
        if version:
            body = aggregated_discovery(self._kinds, is_core=path == "api", api_version=version)
            return 200, msgspec.json.encode(body), _AGGREGATED.format(version)
        if path == "openapi/v2":
            return 200, _SAME_IN_JSON, _JSON
        listed = self._listed(path)
        return None if listed is None else (200, msgspec.json.encode(listed), _JSON)

    def _listed(self, path: str) -> Json | None:
        match path.split("/"):
            case ["openapi", "v3"]:
                return openapi.index(self._kinds)
            case ["openapi", "v3", *rest]:
                return openapi.document(self._kinds, "/".join(rest))
            case ["version"]:
                return version_info(_PRODUCT)
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

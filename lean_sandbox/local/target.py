"""What a request is about, read from its method, path and query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_NAMESPACE_PARTS: Final = frozenset(("status", "finalize"))


@dataclass(slots=True)
class Target:
    """One request, in the terms authorization and audit use."""

    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_watch(self) -> bool:
        """Say whether the answer is a stream of events."""
        return self.verb == "watch"


def read_target(method: str, path: str, query: Mapping[str, str]) -> Target:
    """Return what a request is about; one outside the resource paths has no resource."""
    target = Target(method.lower(), path, query=query)
    parts = [unquote(part) if "%" in part else part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        target.version = parts[1]
        rest = parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        target.group, target.version = parts[1], parts[2]
        rest = parts[3:]
    else:
        return target
    target.is_resource = True
    if rest[0] == "namespaces" and len(rest) >= 2:
        if len(rest) == 2 or (len(rest) == 3 and rest[2] in _NAMESPACE_PARTS):
            # A Namespace is in itself, for authorization.
            target.resource, target.namespace, target.name = "namespaces", rest[1], rest[1]
            target.subresource = rest[2] if len(rest) == 3 else ""
        else:
            target.namespace = rest[1]
            _take(target, rest[2:])
    else:
        _take(target, rest)
    _set_verb(target, method)
    return target


def _take(target: Target, parts: list[str]) -> None:
    target.resource = parts[0]
    if len(parts) > 1:
        target.name = parts[1]
    if len(parts) > 2:
        target.subresource = "/".join(parts[2:])


def _set_verb(target: Target, method: str) -> None:
    if method in ("GET", "HEAD"):
        if target.name:
            target.verb = "get"
        else:
            watching = target.query.get("watch", "") in ("1", "true", "True", "")
            target.verb = "watch" if watching and "watch" in target.query else "list"
    elif method == "DELETE":
        target.verb = "delete" if target.name else "deletecollection"
    else:
        target.verb = _VERBS.get(method, method.lower())

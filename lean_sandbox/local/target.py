"""A request as the server's parts see it, and the answer they give."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import parse_qsl, unquote

from lean_sandbox.local.auth import UserInfo
from lean_sandbox.local.errors import bad_request
from lean_sandbox.local.kinds.registry import Kind

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_NAMESPACE_PARTS: Final = frozenset(("status", "finalize"))
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


@dataclass(slots=True)
class Target:
    """What a request is about, in the terms authorization and audit use."""

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
    """The parameters; one that is given several times has its first value."""
    dry_run: Sequence[str] = ()
    """All values of ``dryRun``."""
    user_agent: str = ""
    content_type: str = ""
    accept: str = ""
    method: str = ""
    below: bool = False
    """The path goes on after the subresource."""

    @property
    def full_resource(self) -> str:
        """Return ``resource/subresource``, or ``resource`` alone."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


T = TypeVar("T", bound=Target)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to a resource path: target, sender and body."""

    target: Target
    kind: Kind
    user: UserInfo
    body: bytes

    @property
    def namespace(self) -> str:
        """Return the namespace of the object; a Namespace itself is in none."""
        return self.target.namespace if self.kind.namespaced else ""


@dataclass(slots=True)
class EncodedAnswer:
    """A whole answer: code, encoded body, and headers beyond the usual."""

    code: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    content_type: str = "application/json"


def read_target(type_: type[T], method: str, path: str, query: str) -> T:
    """Return what a request is about; one outside the resource paths has no resource.

    Path and query are still percent-encoded.
    """
    path = unquote(path)
    target = type_(method.lower(), path, method=method)
    if query:
        pairs = parse_qsl(query, keep_blank_values=True)
        target.query = dict(reversed(pairs))
        target.dry_run = [value for name, value in pairs if name == "dryRun"]
    parts = path.rstrip("/").split("/")[1:]
    if not all(parts):
        return target
    if len(parts) >= 3 and parts[0] == "api":
        target.version = parts[1]
        rest = parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        target.group = parts[1]
        target.version = parts[2]
        rest = parts[3:]
    else:
        return target
    target.is_resource = True
    if rest[0] == "namespaces" and len(rest) >= 2:
        # A Namespace is in itself, for authorization.
        target.namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_PARTS:
            rest = rest[2:]
    target.resource = rest[0]
    target.name = rest[1] if len(rest) > 1 else ""
    target.subresource = rest[2] if len(rest) > 2 else ""
    target.below = len(rest) > 3
    target.verb = _verb(target)
    return target


def _verb(target: Target) -> str:
    if target.method in ("GET", "HEAD"):
        if target.name:
            return "get"
        return "watch" if flag(target.query, "watch") else "list"
    if target.method == "DELETE":
        return "delete" if target.name else "deletecollection"
    return _VERBS.get(target.method, target.method.lower())


def flag(query: Mapping[str, str], name: str) -> bool:
    """Say whether a parameter is there and says neither 0 nor false."""
    return query.get(name, "0").lower() not in ("0", "false")


def number(query: Mapping[str, str], name: str) -> int | None:
    """Return a parameter as an integer of 64 bits, None where it is absent.

    Raises:
        StatusError: 400.

    """
    text = query.get(name)
    if text is None:
        return None
    shown = f'strconv.ParseInt: parsing "{text}"'
    if not _INTEGER.fullmatch(text):
        raise bad_request(f"{shown}: invalid syntax")
    found = int(text) if len(text) < 25 else 1 << 63
    if not -(1 << 63) <= found < 1 << 63:
        raise bad_request(f"{shown}: value out of range")
    return found

"""Requests as the server's parts see them: who asks what of which server, the answer, the log."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote

from filters import SelectorError
from lean_sandbox.local import errors
from lean_sandbox.local.kinds import Kind

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_NAMESPACE_PARTS: Final = frozenset(("status", "finalize"))
_ON_COLLECTIONS: Final = frozenset(("list", "watch", "create", "deletecollection"))
_EVERYWHERE: Final = frozenset(("list", "watch"))
_ON_OBJECTS: Final = frozenset(("get", "update", "patch", "delete"))
_INTEGERS: Final = {
    "ParseInt": (re.compile("[+-]?[0-9]+"), range(-(1 << 63), 1 << 63)),
    "ParseUint": (re.compile("[0-9]+"), range(1 << 64)),
}
_MOST_DIGITS: Final = 1000  # Python reads no more than a few thousand.


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
    """The path goes on after the subresource, or leads to a namespace inside of one."""

    @property
    def full_resource(self) -> str:
        """Return ``resource/subresource``, or ``resource`` alone."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


AUTHENTICATED: Final = "system:authenticated"


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A name, and the groups rights can be bound to."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def info(self) -> dict[str, Any]:
        """Return the user as reviews show it."""
        extra = {key: list(values) for key, values in self.extra}
        groups = list(self.groups)
        shown = {"username": self.name, "uid": self.uid, "groups": groups, "extra": extra}
        return {key: value for key, value in shown.items() if value}


ANONYMOUS: Final = UserInfo("system:anonymous", ("system:unauthenticated",))
UNSECURED: Final = UserInfo("system:unsecured", ("system:masters", AUTHENTICATED))
"""Who asks without credentials where those are trusted."""


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
            target.below = rest[0] == "namespaces"
    target.resource = rest[0]
    target.name = rest[1] if len(rest) > 1 else ""
    target.subresource = rest[2] if len(rest) > 2 else ""
    target.below |= len(rest) > 3
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


def check_path(target: Target, kind: Kind) -> None:
    """Refuse a path that is not there, and a verb that it does not have.

    Raises StatusError: 404 or 405; PageNotFoundError: the path of a custom kind is not there.
    """
    if not kind.is_custom:
        _check_built_in(target, kind)
        return
    elsewhere = bool(target.namespace) is not kind.namespaced
    if elsewhere and (target.namespace or target.verb not in _EVERYWHERE):
        raise errors.PageNotFoundError
    part = target.subresource
    if part and part not in kind.subresources:
        raise errors.not_found(kind.group, kind.plural, target.name)
    if target.verb not in (kind.subresources[part] if part else kind.verbs):
        raise errors.not_supported(kind.group, kind.plural, target.verb)
    if not target.name and target.verb in _ON_OBJECTS:
        raise errors.bad_request("name must be provided")


def _check_built_in(target: Target, kind: Kind) -> None:
    inside = bool(target.namespace) and kind.storage != "namespaces"
    there = inside is kind.namespaced
    if kind.is_review:
        there &= not target.name
    else:
        there |= kind.namespaced and not target.name
    found = kind.subresources.get(target.subresource) or kind.unserved.get(target.subresource)
    # Only a proxy has paths of its own below.
    if (
        not there
        or (target.subresource and not found)
        or (target.below and target.subresource != "proxy")
    ):
        raise errors.unknown_resource()
    verbs = frozenset(found or kind.verbs)
    if not found:
        everywhere = kind.namespaced and not inside
        of_path = _EVERYWHERE if everywhere else _ON_COLLECTIONS
        verbs &= _ON_OBJECTS if target.name else of_path
    is_head = target.method == "HEAD" and target.subresource != "proxy"
    if is_head or target.verb not in verbs:
        raise errors.not_allowed()


def flag(query: Mapping[str, str], name: str) -> bool:
    """Say whether a parameter is there and says neither 0 nor false."""
    return query.get(name, "0").lower() not in ("0", "false")


def number(query: Mapping[str, str], name: str) -> int | None:
    """Return a parameter as an integer of 64 bits, None where it is absent.

    Raises StatusError: 400.
    """
    text = query.get(name)
    if text is None:
        return None
    try:
        return integer(text, "ParseInt")
    except ValueError as error:
        raise errors.bad_request(str(error)) from None


def integer(text: str, parser: str = "ParseUint") -> int:
    """Return an integer of 64 bits. Raises ValueError, in the words of that parser of Go's."""
    pattern, known = _INTEGERS[parser]
    why = "invalid syntax"
    if pattern.fullmatch(text):
        why = "value out of range"
        if len(text) < _MOST_DIGITS and int(text) in known:
            return int(text)
    raise ValueError(f'strconv.{parser}: parsing "{text}": {why}')


_FIELD_TERM = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)
_FIELD_SEPARATOR = re.compile(r"(?<!\\),")
_ESCAPED = re.compile(r"\\(.|$)|=", re.DOTALL)


class FieldTerm(NamedTuple):
    """One requirement of a field selector: that a field has, or has not, a value."""

    path: str
    value: str
    equal: bool


def parse_fields(text: str) -> tuple[FieldTerm, ...]:
    """Return the requirements of a field selector. Raises SelectorError."""
    terms = []
    for part in filter(None, _FIELD_SEPARATOR.split(text)):
        match = _FIELD_TERM.fullmatch(part)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        path, operator, value = match.groups()
        terms.append(FieldTerm(path, _unescaped(value), equal=operator != "!="))
    return tuple(terms)


def _unescaped(value: str) -> str:
    for found in _ESCAPED.finditer(value):
        if found[0] == "=":
            raise SelectorError("invalid field selector: unescaped character in value: 61")
        if found[1] not in ("\\", ",", "="):
            raise SelectorError(f"invalid field selector: invalid escape sequence: {found[0]}")
    return _ESCAPED.sub(r"\1", value)


# ------------------------------------------------------------------ the server

HOST: Final = "127.0.0.1"
"""The address of the server; whoever can reach it may do anything without TLS."""
MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""Largest request body; more is answered with 413."""
MAX_HEAD_BYTES: Final = 1024 * 1024
"""The longest address of a request, and the longest of its headers."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Options of the embedded control plane; each default is what a stock API server does."""

    port: int = 0
    """Port to listen on; 0 picks a free one."""
    tls: bool = False
    """Serve HTTPS with a certificate made at start."""
    tables: bool = True
    """Answer ``as=Table``; without it such an Accept header alone is refused with 406."""
    partial_metadata: bool = True
    """Answer ``as=PartialObjectMetadata``; without it such an Accept header alone gets 406."""
    sharded_lists: bool = False
    """Honour ``shardSelector``, as Kubernetes does from 1.36 with the gate ShardedListAndWatch."""
    bookmark_interval_s: float = 60.0
    """Seconds between two bookmarks of a watch that asked for them."""
    state_file: Path | None = None
    """Where state is kept over a restart; None keeps it in memory only."""
    save_interval_s: float = 5.0
    """Seconds between two saves of changed state to ``state_file``."""


# ------------------------------------------------------------------ the log


_MOST_ENTRIES: Final = 200_000


@dataclass(slots=True)
class AuditEntry(Target):
    """One request; watches are entered when their stream begins and grow until it ends."""

    user: str = ""
    code: int = 0
    request_bytes: int = 0
    response_bytes: int = 0

    @property
    def what(self) -> str:
        """Return ``verb resource/subresource``, the way requests are counted."""
        return f"{self.verb} {self.full_resource or self.path}"


class AuditLog:
    """The newest requests, oldest first."""

    def __init__(self) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=_MOST_ENTRIES)
        self.total = 0
        """Requests ever entered, also those already dropped."""
        self.listeners: list[Callable[[AuditEntry], None]] = []
        """Called with every request as it is entered: its code may not be known yet."""

    def add(self, entry: AuditEntry) -> None:
        """Enter one request."""
        self._entries.append(entry)
        self.total += 1
        for listener in self.listeners:
            listener(entry)

    def keep(self, most: int) -> None:
        """Keep the newest ``most`` requests alone, now and from now on."""
        self._entries = deque(self._entries, maxlen=most)

    def reset(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.total = 0

    @property
    def entries(self) -> list[AuditEntry]:
        """Return the kept entries."""
        return list(self._entries)

    def select(self, *, user_agent: str = "", **wanted: str | None) -> list[AuditEntry]:
        """Return the entries with these values, None for any; ``user_agent`` by its beginning."""
        exact = {name: value for name, value in wanted.items() if value is not None}
        return [
            entry
            for entry in self._entries
            if entry.user_agent.startswith(user_agent)
            and all(getattr(entry, name) == value for name, value in exact.items())
        ]

    def counts(
        self, user: str | None = None, *, user_agent: str = "", watches: bool = False
    ) -> Counter[str]:
        """Return how often each ``verb resource/subresource`` was asked, watches only if wanted."""
        return Counter(
            entry.what
            for entry in self.select(user=user, user_agent=user_agent)
            if watches or entry.verb != "watch"
        )

    def codes(self, user: str | None = None, *, at_least: int = 400) -> Counter[str]:
        """Return how often each ``code verb resource`` from ``at_least`` on was answered."""
        return Counter(
            f"{entry.code} {entry.what}"
            for entry in self.select(user=user)
            if entry.code >= at_least
        )

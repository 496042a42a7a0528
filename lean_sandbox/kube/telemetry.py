"""What is known about each request once it is over, and the counters made of it.

Label values are bounded: verbs and resources come from the paths this program uses, never from the
names of objects.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from urllib.parse import urlsplit

import msgspec


class Label(msgspec.Struct, frozen=True, gc=False):
    """What a request does: RBAC ``verb``, and ``resource`` as ``plural[.group][/subresource]``."""

    verb: str
    resource: str


WRITES: ContextVar[list[str] | None] = ContextVar("writes", default=None)
"""Where a task notes the writes that the server has carried out, as ``verb resource``."""


class RequestRecord(msgspec.Struct, frozen=True, gc=False):
    """One finished request.

    ``code`` is the HTTP status, 0 when no answer arrived, and then ``error`` names the class of the
    error. Sizes are those of the HTTP messages, heads included, before TLS. ``latency_s`` runs from
    the first byte sent (or the connect before it) to the last received; for a watch that is the
    time it stayed open. A connect counts as the request that needed it.
    """

    method: str
    verb: str
    resource: str
    code: int
    sent_bytes: int
    received_bytes: int
    latency_s: float
    error: str = ""


Observer = Callable[[RequestRecord], None]


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def label_of(method: str, target: str, prefix: str = "") -> Label:
    """Derive the label from a request's target, for callers that know no better.

    ``prefix`` is the base path of the server. Paths outside ``/api`` and ``/apis`` are labelled
    ``nonresource``.
    """
    url = urlsplit(target)
    parts = url.path.removeprefix(prefix).strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return Label(_VERBS.get(method, method.lower()), "nonresource")
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = f"{rest[0]}.{group}" if group else rest[0]
    if len(rest) > 2:
        resource = f"{resource}/{rest[2]}"
    verb = _VERBS.get(method)
    if verb is None:
        one = len(rest) > 1
        verb = "watch" if "watch=" in url.query else "get" if one else "list"
    return Label(verb, resource)

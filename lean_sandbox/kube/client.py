"""Typed calls to the API server: one method, one request.

No create is sent for a while to a namespace that refuses them because it is being deleted.
Nothing is repeated here except a 401 after the credential was refreshed and a request whose reused
connection turned out dead (both in the transport); backing off is the work queue's job.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast
from urllib.parse import urlencode

import msgspec

from lean_sandbox.kube import errors
from lean_sandbox.kube.limits import Lane
from lean_sandbox.kube.resources import Resource, path
from lean_sandbox.kube.telemetry import WRITES
from lean_sandbox.kube.terminating import TerminatingNamespaces
from lean_sandbox.kube.transport import Transport
from lean_sandbox.kube.wire import JSON_ACCEPT
from lean_sandbox.model.wire import ODD

T = TypeVar("T")

#: What can be sent: encoded bytes, or anything msgspec encodes.
Body = bytes | dict[str, Any] | list[Any] | msgspec.Struct
Propagation = Literal["Background", "Foreground", "Orphan"]

_METHODS = {
    "get": "GET",
    "list": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"


class Options(TypedDict, total=False):
    """Options of every call."""

    #: Whose turn it is when all slots are taken (default Lane.BACKGROUND).
    lane: Lane
    #: Seconds from the first byte of the connect or request to the last of the answer.
    timeout_s: float
    #: The representation asked for (default JSON_ACCEPT).
    accept: str
    #: ``status``, ``binding`` and the like.
    subresource: str | None
    #: The most that is read of an answer (None: the transport's); AnswerTooLarge above it.
    max_body_bytes: int | None


class WriteOptions(Options, total=False):
    """Options of the calls that write."""

    #: Who writes, for managedFields (default: the client's).
    field_manager: str | None
    #: The server validates and answers, but stores nothing.
    dry_run: bool


class Client:
    """The verbs of the API over one transport.

    Every method makes one request and raises :class:`~lean_sandbox.kube.errors.ApiError` for
    answers of 300 and above, :class:`~lean_sandbox.kube.errors.TransportError` when no whole
    answer came, :class:`~lean_sandbox.kube.errors.DecodeFault` when it does not fit ``type_``.

    ``type_`` is the type to decode the answer as: a msgspec Struct, ``dict``, or ``bytes`` for the
    body as it came.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        timeout_s: float = 10.0,
        list_timeout_s: float = 60.0,
        field_manager: str | None = None,
    ) -> None:
        """``timeout_s`` and ``list_timeout_s`` are the deadlines where a call names none."""
        self.transport = transport
        #: Where creates are refused at present; they are not sent then.
        self.ending = TerminatingNamespaces(transport.clock)
        self._timeout_s = timeout_s
        self._list_timeout_s = list_timeout_s
        self._field_manager = field_manager
        self._decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

    async def get(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        type_: type[T],
        **options: Unpack[Options],
    ) -> T:
        """Read one object."""
        return await self._send("get", resource, namespace, name, type_, options)

    async def find(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        type_: type[T],
        **options: Unpack[Options],
    ) -> T | None:
        """Read one object; ``None`` when there is none of this name."""
        try:
            return await self.get(resource, namespace, name, type_, **options)
        except errors.NotFound:
            return None

    async def list_page(
        self,
        resource: Resource,
        namespace: str | None,
        type_: type[T],
        *,
        limit: int | None = 500,
        continue_: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        resource_version: str | None = None,
        resource_version_match: str | None = None,
        **options: Unpack[Options],
    ) -> T:
        """Read one page of a collection; ``namespace`` None is all of them.

        Decode as ``wire.Page[Kind]`` or any type of the caller's. An expired ``continue_`` raises
        :class:`~lean_sandbox.kube.errors.Gone`: start again.
        """
        query = {
            "limit": None if limit is None else str(limit),
            "continue": continue_,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "resourceVersion": resource_version,
            "resourceVersionMatch": resource_version_match,
        }
        options.setdefault("timeout_s", self._list_timeout_s)
        return await self._send("list", resource, namespace, None, type_, options, query=query)

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Body,
        type_: type[T],
        *,
        name: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> T:
        """Create an object; with ``name`` and ``subresource``, post to its subresource."""
        encoded = _encode(body)
        return await self._send("create", resource, namespace, name, type_, options, encoded)

    async def replace(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Body,
        type_: type[T],
        **options: Unpack[WriteOptions],
    ) -> T:
        """Replace an object; a resourceVersion in ``body`` makes a lost race a Conflict."""
        encoded = _encode(body)
        return await self._send("update", resource, namespace, name, type_, options, encoded)

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Body,
        type_: type[T],
        **options: Unpack[WriteOptions],
    ) -> T:
        """Change an object.

        A list of operations is a JSON patch (RFC 6902): a failed ``test`` is an Invalid. Anything
        else is a merge patch (RFC 7396): null removes a field, arrays are replaced whole.
        """
        form = _JSON_PATCH if isinstance(body, list) else _MERGE_PATCH
        encoded = _encode(body)
        return await self._send("patch", resource, namespace, name, type_, options, encoded, form)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace_s: int | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        """Delete an object.

        With ``uid`` only that very object: one of the same name made later is a Conflict. With
        ``resource_version`` only as it was then: any write since is a Conflict.
        """
        wanted: dict[str, Any] = {}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        held = {field: value for field, value in preconditions.items() if value is not None}
        if held:
            wanted["preconditions"] = held
        if propagation is not None:
            wanted["propagationPolicy"] = propagation
        if grace_s is not None:
            wanted["gracePeriodSeconds"] = grace_s
        body = b""
        if wanted:
            body = _encode({"kind": "DeleteOptions", "apiVersion": "v1"} | wanted)
        await self._send("delete", resource, namespace, name, bytes, options, body)

    async def _send(
        self,
        verb: str,
        resource: Resource,
        namespace: str | None,
        name: str | None,
        type_: type[T],
        options: Options | WriteOptions,
        body: bytes = b"",
        content_type: str = _JSON,
        query: dict[str, str | None] | None = None,
    ) -> T:
        wanted = cast("WriteOptions", options)
        subresource = wanted.get("subresource")
        method = _METHODS[verb]
        plain = path(resource, namespace, name, subresource)
        headers = {"Accept": wanted.get("accept", JSON_ACCEPT)}
        if body:
            headers["Content-Type"] = content_type
        what = f"{resource.qualified}/{subresource}" if subresource else resource.qualified
        where = namespace if resource.namespaced and namespace else ""
        asked = errors.Asked(verb, what, where, name or "")
        if verb == "create" and namespace:
            self.ending.enter(namespace)
        response = await self.transport.request(
            method,
            self._target(method, plain, query or {}, wanted),
            body=body,
            headers=headers,
            timeout_s=wanted.get("timeout_s", self._timeout_s),
            lane=wanted.get("lane", Lane.BACKGROUND),
            asked=asked,
            max_body_bytes=wanted.get("max_body_bytes"),
        )
        if response.status >= 300:
            refusal = errors.from_response(response.status, response.body, response.headers, asked)
            if verb == "create" and isinstance(refusal, errors.Forbidden):
                self.ending.remember(namespace or "", refusal)
            raise refusal
        if verb == "create":
            self.ending.forget(namespace or "")
        if (writes := WRITES.get()) is not None and method != "GET":
            writes.append(f"{verb} {resource.plural}")
        return self._decode(response.body, type_, asked)

    def _target(
        self, method: str, plain: str, given: dict[str, str | None], wanted: WriteOptions
    ) -> str:
        query = {key: value for key, value in given.items() if value is not None}
        if method not in ("GET", "DELETE"):
            manager = wanted.get("field_manager", self._field_manager)
            if manager is not None:
                query["fieldManager"] = manager
        if wanted.get("dry_run"):
            query["dryRun"] = "All"
        return f"{plain}?{urlencode(query)}" if query else plain

    def _decode(self, body: bytes, type_: type[T], asked: errors.Asked) -> T:
        if type_ is bytes:
            return cast("T", body)
        decoder = self._decoders.get(type_)
        if decoder is None:
            decoder = self._decoders[type_] = msgspec.json.Decoder(type_)
        try:
            return cast("T", decoder.decode(body))
        except ODD as problem:
            raise errors.DecodeFault(
                f"{asked.verb} {asked.resource}: the answer is not a {type_!r}: {problem}"
            ) from problem


def _encode(body: Body) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)

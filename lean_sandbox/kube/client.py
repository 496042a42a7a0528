"""Typed calls to the API server: one method, one request.

The verbs and the order of their arguments are those of lightkube's ``AsyncClient``, and so are the
patch and cascade types. What differs: the type of the answer is given with each call, as this
process has no resource classes; ``get`` returns ``None`` for an object that is not there; ``list``
reads one page, of all namespaces if none is given; a patch is a merge patch if nothing else is
said, as custom resources refuse strategic ones.

Nothing is repeated here except a 401 after the credential was refreshed and a request whose reused
connection turned out dead (both in the transport); backing off is the work queue's job.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, TypedDict, TypeVar, Unpack, cast
from urllib.parse import urlencode

import msgspec
from cachetools import LRUCache

from lean_sandbox.clock import Clock
from lean_sandbox.kube import errors
from lean_sandbox.kube.resources import JSON_ACCEPT, Resource, path
from lean_sandbox.kube.telemetry import WRITES
from lean_sandbox.kube.transport import Transport
from lean_sandbox.model.wire import ODD

T = TypeVar("T")

#: What can be sent: encoded bytes, or anything msgspec encodes.
Body = bytes | dict[str, Any] | list[Any] | msgspec.Struct


class PatchType(Enum):
    """The media types of patches that are sent."""

    #: A list of operations (RFC 6902): a failed ``test`` is an Invalid.
    JSON = "application/json-patch+json"
    #: An object (RFC 7396): null removes a field, arrays are replaced whole.
    MERGE = "application/merge-patch+json"


class CascadeType(Enum):
    """What becomes of the objects that a deleted object owns."""

    ORPHAN = "Orphan"
    BACKGROUND = "Background"
    FOREGROUND = "Foreground"


#: How long a refusal to create holds, and its reconcile waits, as in the reference since v1.0.3.
ENDING_S: Final = 30.0
_MOST_ENDING: Final = 256
# What is kept of the reason that the server gave.
_LONGEST_REFUSAL: Final = 1024
# How long other creates wait for the answer to the one that is tried again.
_ENDING_ANSWER_S: Final = 5.0
_LIST_TIMEOUT_S: Final = 60.0
_METHODS = {
    "get": "GET",
    "list": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}


class Options(TypedDict, total=False):
    """Options of every call."""

    #: Seconds from the first byte of the connect or request to the last of the answer.
    timeout_s: float
    accept: str
    subresource: str | None
    #: The most that is read of an answer (None: the transport's); AnswerTooLarge above it.
    max_body_bytes: int | None
    field_manager: str | None


class TerminatingNamespaces:
    """Namespaces that are being deleted: after a refusal no create is sent there for 30 s.

    The objects in such a namespace are deleted one by one, and each wakes its controller.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Until when, the code and what was said. Not the error itself: its traceback holds the
        # request that was refused.
        self._refusals: LRUCache[str, tuple[float, int, errors.Status]] = LRUCache(_MOST_ENDING)

    def remember(self, namespace: str, refusal: errors.ApiError) -> None:
        """Note a refusal, if the end of the namespace is its cause."""
        if refusal.namespace_terminating:
            until = self._clock.monotonic() + ENDING_S
            # The text before the reason names the object that was refused.
            why = refusal.message.rpartition(" is forbidden: ")[2][:_LONGEST_REFUSAL]
            answer = msgspec.structs.replace(refusal.answer, message=why)
            self._refusals[namespace] = until, refusal.status, answer

    def forget(self, namespace: str) -> None:
        """Forget a refusal: an object was created, so the namespace is another one."""
        self._refusals.pop(namespace, None)

    def __contains__(self, namespace: str) -> bool:
        """Whether a create is of no use at present."""
        held = self._refusals.get(namespace)
        return held is not None and held[0] > self._clock.monotonic()

    def enter(self, namespace: str) -> None:
        """Raise Forbidden where creates are refused, for the reason that the server gave.

        Once a refusal is old, one create passes, and the others wait for its answer.
        """
        if namespace in self:
            _, status, answer = self._refusals[namespace]
            asked = errors.Asked("create", namespace=namespace)
            # A new one each time: raising an error writes its traceback into it.
            raise errors.Forbidden(status, answer, asked)
        if (held := self._refusals.get(namespace)) is not None:
            self._refusals[namespace] = (self._clock.monotonic() + _ENDING_ANSWER_S, *held[1:])


class Client:
    """The verbs of the API over one transport.

    Every method makes one request and raises ApiError for answers of 300 and above, TransportError
    when no whole answer came, DecodeFault when it does not fit ``type_``: a msgspec Struct,
    ``dict``, or ``bytes`` for the body as it came.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        timeout_s: float = 10.0,
        field_manager: str | None = None,
    ) -> None:
        """``timeout_s`` is the deadline where a call names none; a list has a minute."""
        self.transport = transport
        #: Where creates are refused at present; they are not sent then.
        self.ending = TerminatingNamespaces(transport.clock)
        self._timeout_s = timeout_s
        self._field_manager = field_manager

    async def get(
        self,
        res: Resource,
        name: str,
        type_: type[T],
        *,
        namespace: str | None = None,
        **options: Unpack[Options],
    ) -> T | None:
        """Read one object; ``None`` when there is none of this name."""
        try:
            return await self._send("get", res, namespace, name, type_, options)
        except errors.NotFound:
            return None

    async def list(
        self,
        res: Resource,
        type_: type[T],
        *,
        namespace: str | None = None,
        chunk_size: int | None = 500,
        continue_: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        shard_selector: str | None = None,
        **options: Unpack[Options],
    ) -> T:
        """Read a page of one namespace, or of all (None). An expired ``continue_`` raises Gone."""
        query = _given(
            {
                "limit": chunk_size,
                "continue": continue_,
                "labelSelector": labels,
                "fieldSelector": fields,
                "shardSelector": shard_selector,
            }
        )
        options.setdefault("timeout_s", _LIST_TIMEOUT_S)
        return await self._send("list", res, namespace, None, type_, options, query=query)

    async def create(
        self,
        res: Resource,
        obj: Body,
        type_: type[T],
        *,
        namespace: str | None = None,
        name: str | None = None,
        **options: Unpack[Options],
    ) -> T:
        """Create an object; with ``name`` and ``subresource``, post to its subresource."""
        return await self._send("create", res, namespace, name, type_, options, obj)

    async def replace(
        self,
        res: Resource,
        obj: Body,
        type_: type[T],
        *,
        namespace: str | None = None,
        name: str,
        **options: Unpack[Options],
    ) -> T:
        """Replace an object; a resourceVersion in ``obj`` makes a lost race a Conflict."""
        return await self._send("update", res, namespace, name, type_, options, obj)

    async def patch(
        self,
        res: Resource,
        name: str,
        obj: Body,
        type_: type[T],
        *,
        namespace: str | None = None,
        patch_type: PatchType = PatchType.MERGE,
        **options: Unpack[Options],
    ) -> T:
        """Change an object."""
        sent_as = patch_type.value
        return await self._send("patch", res, namespace, name, type_, options, obj, sent_as)

    async def delete(
        self,
        res: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        cascade: CascadeType | None = None,
        grace_period: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Delete an object.

        With ``uid`` only exactly that object: a later one of the same name is a Conflict. With
        ``resource_version`` only at that version: any write since is a Conflict.
        """
        preconditions = _given({"uid": uid, "resourceVersion": resource_version})
        wanted = _given(
            {
                "preconditions": preconditions or None,
                "propagationPolicy": cascade,
                "gracePeriodSeconds": grace_period,
            }
        )
        body = {"kind": "DeleteOptions", "apiVersion": "v1"} | wanted if wanted else b""
        await self._send("delete", res, namespace, name, bytes, options, body)

    async def _send(
        self,
        verb: str,
        res: Resource,
        namespace: str | None,
        name: str | None,
        type_: type[T],
        options: Options,
        body: Body = b"",
        content_type: str = "application/json",
        query: dict[str, Any] | None = None,
    ) -> T:
        subresource = options.get("subresource")
        method = _METHODS[verb]
        target = path(res, namespace, name, subresource)
        manager = options.get("field_manager", self._field_manager)
        if manager is not None and method not in ("GET", "DELETE"):
            query = {"fieldManager": manager}
        if query:
            target = f"{target}?{urlencode(query)}"
        headers = {"Accept": options.get("accept", JSON_ACCEPT)}
        encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
        if encoded:
            headers["Content-Type"] = content_type
        asked = _asked(verb, res, namespace, name, subresource)
        response = await self.transport.request(
            method,
            target,
            body=encoded,
            headers=headers,
            timeout_s=options.get("timeout_s", self._timeout_s),
            asked=asked,
            admit=self.ending.enter if verb == "create" else None,
            max_body_bytes=options.get("max_body_bytes"),
        )
        if response.status >= 300:
            refusal = errors.from_response(response.status, response.body, response.headers, asked)
            if verb == "create":
                self.ending.remember(asked.namespace, refusal)
            raise refusal
        if verb == "create":
            self.ending.forget(asked.namespace)
        if (writes := WRITES.get()) is not None and method != "GET":
            writes.append(f"{verb} {res.plural}")
        return _decoded(response.body, type_, asked)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _asked(
    verb: str, res: Resource, namespace: str | None, name: str | None, subresource: str | None
) -> errors.Asked:
    what = f"{res.qualified}/{subresource}" if subresource else res.qualified
    where = namespace if res.namespaced and namespace else ""
    return errors.Asked(verb, what, where, name or "")


def _decoded(body: bytes, type_: type[T], asked: errors.Asked) -> T:
    if type_ is bytes:
        return cast("T", body)
    try:
        return msgspec.json.decode(body, type=type_)
    except ODD as problem:
        raise errors.DecodeFault(
            f"{asked.verb} {asked.resource}: the answer is not a {type_!r}: {problem}"
        ) from problem

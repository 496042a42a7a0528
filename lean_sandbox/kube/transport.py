"""The one road to the API server: a lean HTTP/1.1 client on anyio's TCP and TLS streams.

Cost of one request (``tests/bench/transport_bench.py``: a 2.2 kB object from a bare server in
another process, 15 interleaved rounds of 160 on a virtual machine with two cores; medians of CPU
milliseconds of the client / requests a second). lightkube decodes a generic resource, ``Client``
the metadata, "bytes" nothing:

=====  ====  ===========================  ==============  ==============
verb         way                          1 in flight     16 in flight
=====  ====  ===========================  ==============  ==============
GET    http  lightkube, stock              0.516 / 1919    0.554 / 1798
GET    http  :class:`.client.Client`       0.110 / 8436    0.085 / 11466
GET    http  this transport, bytes         0.095 / 9724    0.074 / 13163
PATCH  http  lightkube, stock              0.847 / 1163    0.625 / 1592
PATCH  http  :class:`.client.Client`       0.117 / 8060    0.088 / 11226
PATCH  http  this transport, bytes         0.099 / 9335    0.077 / 12918
GET    TLS   lightkube, stock              0.572 / 1720    0.607 / 1633
GET    TLS   :class:`.client.Client`       0.155 / 5353    0.106 / 8868
GET    TLS   this transport, bytes         0.144 / 5626    0.093 / 10612
PATCH  TLS   lightkube, stock              0.950 / 1028    0.636 / 1564
PATCH  TLS   :class:`.client.Client`       0.158 / 5240    0.107 / 9275
PATCH  TLS   this transport, bytes         0.146 / 5673    0.091 / 10765
=====  ====  ===========================  ==============  ==============

A stock lightkube call costs 3.7 to 7.2 times as much CPU as one of :class:`.client.Client`.

What it does: keep-alive connections in a bounded pool, deadlines, chunked and sized bodies, size
limits, credentials with one repetition after a 401, lanes (:mod:`.limits`), telemetry. What it
leaves out on purpose: HTTP/2, proxies, redirects, cookies, compression (in a cluster it costs more
CPU on both ends than the bytes are worth), and waiting for Retry-After: 429 and 503 become errors
that carry it, and the work queue waits.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import msgspec
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSStream

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import (
    ApiError,
    ConnectFailed,
    ProtocolFault,
    RequestTimeout,
    from_response,
)
from lean_sandbox.kube.http1 import (
    BodyReader,
    Disconnected,
    Head,
    HttpConnection,
    Traffic,
    encode_request,
)
from lean_sandbox.kube.limits import Lane, Limiter, LimiterStatistics, Limits
from lean_sandbox.kube.telemetry import Label, Observer, RequestRecord, RequestTotals, label_of
from lean_sandbox.kube.tls import trusting
from lean_sandbox.version import __version__

__all__ = [
    "Connector",
    "Lane",
    "Limits",
    "Response",
    "StreamResponse",
    "Transport",
    "TransportStatistics",
]

_IDEMPOTENT = frozenset(("GET", "HEAD", "PUT", "DELETE", "OPTIONS"))
_READS = frozenset(("GET", "HEAD", "OPTIONS"))
_MIB = 1024 * 1024


class Connector(Protocol):
    """Opens a byte stream to the server; tests hand in their own."""

    async def __call__(self, connection: Connection) -> ByteStream:
        """Connect, TLS included. Raises ConnectFailed."""


class Response(msgspec.Struct, frozen=True, gc=False):
    """A whole answer. ``headers`` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class TransportStatistics(msgspec.Struct, frozen=True, gc=False):
    """A snapshot of a transport's counters.

    ``requests`` counts finished ones by (method, verb, resource, code), code 0 for those without an
    answer. Bytes are those of the HTTP messages, streams included while they run. ``repeated`` are
    requests sent again because a reused connection was dead, ``refreshed`` those after a 401;
    ``retries`` counts both by (method, code), code 0 for a dead connection.
    """

    requests: dict[tuple[str, str, str, int], int]
    sent_bytes: int
    received_bytes: int
    connections_opened: int
    connections_idle: int
    streams: int
    repeated: int
    refreshed: int
    limiter: LimiterStatistics
    retries: dict[tuple[str, int], int]

    def __add__(self, other: TransportStatistics) -> TransportStatistics:
        """Return what two transports to the same server have counted together."""
        requests = dict(self.requests)
        for key, number in other.requests.items():
            requests[key] = requests.get(key, 0) + number
        retries = dict(self.retries)
        for retried, number in other.retries.items():
            retries[retried] = retries.get(retried, 0) + number
        mine, theirs = self.limiter, other.limiter
        return TransportStatistics(
            requests=requests,
            sent_bytes=self.sent_bytes + other.sent_bytes,
            received_bytes=self.received_bytes + other.received_bytes,
            connections_opened=self.connections_opened + other.connections_opened,
            connections_idle=self.connections_idle + other.connections_idle,
            streams=self.streams + other.streams,
            repeated=self.repeated + other.repeated,
            refreshed=self.refreshed + other.refreshed,
            limiter=LimiterStatistics(
                mine.client_in_flight + theirs.client_in_flight,
                mine.background_in_flight + theirs.background_in_flight,
                mine.client_waiting + theirs.client_waiting,
                mine.background_waiting + theirs.background_waiting,
            ),
            retries=retries,
        )

    @property
    def in_flight(self) -> int:
        """Requests that hold a slot."""
        return self.limiter.client_in_flight + self.limiter.background_in_flight

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return self.limiter.client_waiting + self.limiter.background_waiting


class StreamResponse:
    """An answer whose body is read as it arrives."""

    def __init__(self, head: Head, reader: BodyReader) -> None:
        self.status = head.status
        self.headers: Mapping[str, str] = head.headers
        #: The name of the error that ended the body, "" while there was none.
        self.error = ""
        self._reader = reader

    async def receive(self) -> bytes:
        """Return the next bytes of the body, never empty, without any deadline of its own.

        Raises anyio.EndOfStream at a clean end, ProtocolFault when the connection broke before it.
        """
        try:
            return await self._reader.receive()
        except ProtocolFault as problem:
            self.error = type(problem).__name__
            raise

    async def read(self, limit_bytes: int = _MIB) -> bytes:
        """Return the rest of the body up to a limit, for an answer that is an error."""
        parts: list[bytes] = []
        left = limit_bytes
        while left > 0:
            try:
                part = await self.receive()
            except anyio.EndOfStream:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    async def refusal(self, resource: str, namespace: str = "") -> ApiError:
        """Read the rest of an answer that opened no watch and return the error it stands for."""
        return from_response(
            self.status,
            await self.read(),
            self.headers,
            verb="watch",
            resource=resource,
            namespace=namespace,
        )


class Transport:
    """Requests to one API server.

    The pool holds as many connections as ``limits.max_in_flight``; streams open their own.
    ``observer`` is called with each finished request, streams included; it must not block or raise.
    ``fence``, where it is set, is called before a write is begun and again right before its bytes
    are sent: what it raises keeps them from leaving, and is raised to the caller.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        observer: Observer | None = None,
        connector: Connector | None = None,
        keep_idle_s: float = 60.0,
        max_head_bytes: int = 65536,
        max_body_bytes: int = 256 * _MIB,
        user_agent: str = f"lean-sandbox/{__version__}",
    ) -> None:
        """``keep_idle_s`` is how long an unused connection stays open.

        The size limits guard the memory of the process; the body limit holds for :meth:`request`
        only, a stream keeps nothing. Raises ConfigError for a server URL that is none.
        """
        address = connection.address
        if address.tls and connection.ssl_context is None:
            connection = msgspec.structs.replace(connection, ssl_context=trusting())
        self.fence: Callable[[], None] | None = None
        self._connection = connection
        self._clock = clock or SystemClock()
        self._limiter = Limiter(self._clock, limits)
        self.observer = observer
        self._connector = connector or open_stream
        self._keep_idle_s = keep_idle_s
        self._max_head_bytes = max_head_bytes
        self._max_body_bytes = max_body_bytes
        self._base_path = address.base_path
        self._constant = f"Host: {address.authority}\r\nUser-Agent: {user_agent}\r\n"
        self._idle: list[HttpConnection] = []
        self._closed = False
        self._traffic = Traffic()
        self._totals = RequestTotals()
        self._opened = 0
        self._streams = 0
        self._repeated = 0
        self._refreshed = 0
        self._retries: dict[tuple[str, int], int] = {}

    async def request(
        self,
        method: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        lane: Lane = Lane.BACKGROUND,
        label: Label | None = None,
        max_body_bytes: int | None = None,
    ) -> Response:
        """Send one request and return the whole answer, whatever its status.

        ``target`` is path and query below the server's base path. ``timeout_s`` covers connecting,
        sending and receiving, not the wait for a slot: that one ends because every holder of a slot
        has a deadline. After a 401 that a fresh credential may cure the request is sent once more,
        with a deadline of its own. ``max_body_bytes`` is a limit below the transport's own. Raises
        TransportError (AnswerTooLarge above the limit), CredentialFault and what the fence does.
        """
        label = label or label_of(method, target)
        most_bytes = min(max_body_bytes or self._max_body_bytes, self._max_body_bytes)
        self._check_fence(method)
        auth = self._connection.auth
        authorization = await auth.authorization()
        await self._limiter.acquire(lane)
        try:
            data = self._encode(method, target, headers, authorization, body)
            response = await self._within(timeout_s, method, data, label, most_bytes)
            if response.status == 401 and await auth.refresh(authorization):
                self._refreshed += 1
                self._count_retry(method, 401)
                authorization = await auth.authorization()
                data = self._encode(method, target, headers, authorization, body)
                response = await self._within(timeout_s, method, data, label, most_bytes)
            return response
        finally:
            self._limiter.release(lane)

    @asynccontextmanager
    async def stream(
        self,
        target: str,
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout_s: float = 10.0,
        label: Label | None = None,
    ) -> AsyncIterator[StreamResponse]:
        """GET ``target`` and hand out the answer as it arrives; its connection ends with it.

        ``connect_timeout_s`` covers everything up to the head of the answer. Streams take no slot.
        Raises TransportError and CredentialFault.
        """
        label = label or label_of("GET", target)
        auth = self._connection.auth
        authorization = await auth.authorization()
        span = _Span("GET", label, self._clock.monotonic())
        self._streams += 1
        try:
            data = self._encode("GET", target, headers, authorization, b"")
            connection, head = await self._begin(span, data, connect_timeout_s)
            if head.status == 401 and await auth.refresh(authorization):
                self._refreshed += 1
                self._count_retry("GET", 401)
                await self._end(span)
                span = _Span("GET", label, self._clock.monotonic())
                data = self._encode("GET", target, headers, await auth.authorization(), b"")
                connection, head = await self._begin(span, data, connect_timeout_s)
            response = StreamResponse(head, BodyReader(connection, head))
            try:
                yield response
            finally:
                span.error = response.error
        finally:
            self._streams -= 1
            await self._end(span)

    @property
    def host(self) -> str:
        """The server as the Host header names it."""
        return self._connection.address.authority

    @property
    def clock(self) -> Clock:
        """The clock that its deadlines are measured by."""
        return self._clock

    @property
    def connection(self) -> Connection:
        """What is needed to reach the server, for another transport to it."""
        return self._connection

    async def aclose(self) -> None:
        """Close the idle connections; requests in flight finish and close theirs."""
        self._closed = True
        while self._idle:
            await self._idle.pop().aclose()

    def statistics(self) -> TransportStatistics:
        """Return a snapshot of the counters."""
        return TransportStatistics(
            requests=self._totals.snapshot(),
            sent_bytes=self._traffic.sent_bytes,
            received_bytes=self._traffic.received_bytes,
            connections_opened=self._opened,
            connections_idle=len(self._idle),
            streams=self._streams,
            repeated=self._repeated,
            refreshed=self._refreshed,
            limiter=self._limiter.statistics(),
            retries=dict(self._retries),
        )

    def _count_retry(self, method: str, code: int) -> None:
        self._retries[method, code] = self._retries.get((method, code), 0) + 1

    def _check_fence(self, method: str) -> None:
        if self.fence is not None and method not in _READS:
            self.fence()

    def _encode(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None,
        authorization: str | None,
        body: bytes,
    ) -> bytes:
        lines = dict(headers) if headers else {}
        if authorization is not None:
            lines["Authorization"] = authorization
        return encode_request(method, self._base_path + target, self._constant, lines, body)

    async def _within(
        self, timeout_s: float, method: str, data: bytes, label: Label, most_bytes: int
    ) -> Response:
        try:
            with anyio.fail_after(timeout_s) as scope:
                return await self._exchange(method, data, label, scope, most_bytes)
        except TimeoutError:
            raise _too_late(label, timeout_s) from None

    async def _exchange(
        self, method: str, data: bytes, label: Label, scope: anyio.CancelScope, most_bytes: int
    ) -> Response:
        connection = await self._reusable()
        if connection is not None:
            response = await self._over(connection, method, data, label, scope, most_bytes)
            if response is not None:
                return response
            self._repeated += 1
            self._count_retry(method, 0)
        response = await self._over(None, method, data, label, scope, most_bytes)
        assert response is not None  # None is for reused connections only.
        return response

    async def _over(
        self,
        reused: HttpConnection | None,
        method: str,
        data: bytes,
        label: Label,
        scope: anyio.CancelScope,
        most_bytes: int,
    ) -> Response | None:
        """Send over one connection; None means it was dead and the request may be repeated."""
        span = _Span(method, label, self._clock.monotonic(), reused)
        try:
            connection = reused or await self._connect(span)
            self._check_fence(method)
            head = await connection.send(data, method)
            span.code = head.status
            body = await connection.body(head, most_bytes)
        except BaseException as problem:
            if reused and _may_repeat(problem, method):
                await reused.aclose()
                return None
            span.failed(problem, scope)
            await self._end(span)
            raise
        if head.keep_alive and not connection.has_leftover and not self._closed:
            connection.idle_since = self._clock.monotonic()
            self._idle.append(connection)
            self._report(span)
        else:
            await self._end(span)
        return Response(head.status, head.headers, body)

    async def _begin(
        self, span: _Span, data: bytes, timeout_s: float
    ) -> tuple[HttpConnection, Head]:
        """Send a stream's request and wait for the head of the answer.

        A reused connection that turns out dead is an error: who streams begins anew in any case.
        """
        try:
            with anyio.fail_after(timeout_s) as scope:
                try:
                    connection = await self._reusable() or await self._connect(span)
                    span.over(connection)
                    head = await connection.send(data, span.method)
                except BaseException as problem:
                    span.failed(problem, scope)
                    raise
        except TimeoutError:
            raise _too_late(span.label, timeout_s) from None
        span.code = head.status
        return connection, head

    async def _reusable(self) -> HttpConnection | None:
        """Return the connection used last, after closing those the server may have given up."""
        oldest = self._clock.monotonic() - self._keep_idle_s
        while self._idle and self._idle[0].idle_since < oldest:
            await self._idle.pop(0).aclose()
        while self._idle:
            connection = self._idle.pop()
            if connection.identity == self._connection.auth.identity and not connection.is_stale:
                return connection
            await connection.aclose()
        return None

    async def _connect(self, span: _Span) -> HttpConnection:
        identity = self._connection.auth.identity
        stream = await self._connector(self._connection)
        self._opened += 1
        connection = HttpConnection(stream, self._traffic, max_head_bytes=self._max_head_bytes)
        connection.identity = identity
        span.connection = connection
        return connection

    async def _end(self, span: _Span) -> None:
        # Reported first: closing is where a cancelled task stops.
        self._report(span)
        if span.connection is not None:
            await span.connection.aclose()

    def _report(self, span: _Span) -> None:
        record = span.record(self._clock.monotonic())
        self._totals.add(record)
        if self.observer is not None:
            self.observer(record)


class _Span:
    """One request on the wire, from its connect to its last byte."""

    __slots__ = ("_received", "_sent", "_started", "code", "connection", "error", "label", "method")

    def __init__(
        self,
        method: str,
        label: Label,
        started: float,
        connection: HttpConnection | None = None,
    ) -> None:
        self.method = method
        self.label = label
        self.connection: HttpConnection | None = None
        self.code = 0
        self.error = ""
        self._started = started
        self._sent = self._received = 0
        if connection is not None:
            self.over(connection)

    def over(self, connection: HttpConnection) -> None:
        """Take what this connection moves from now on for the request's."""
        self.connection = connection
        self._sent = connection.own.sent_bytes
        self._received = connection.own.received_bytes

    def failed(self, problem: BaseException, scope: anyio.CancelScope) -> None:
        """Note why no whole answer arrived."""
        if not isinstance(problem, anyio.get_cancelled_exc_class()):
            self.error = type(problem).__name__
        elif scope.deadline <= anyio.current_time():
            self.error = RequestTimeout.__name__
        else:
            self.error = "Cancelled"

    def record(self, now: float) -> RequestRecord:
        """Return what is told to the observer."""
        own = self.connection.own if self.connection else None
        return RequestRecord(
            self.method,
            self.label.verb,
            self.label.resource,
            self.code,
            own.sent_bytes - self._sent if own else 0,
            own.received_bytes - self._received if own else 0,
            now - self._started,
            self.error,
        )


def _may_repeat(problem: BaseException, method: str) -> bool:
    # The server closed an idle connection while the request was under way. What could not be
    # written was not carried out; the rest is repeated only where doing it twice does no harm.
    return isinstance(problem, Disconnected) and (problem.at_write or method in _IDEMPOTENT)


def _too_late(label: Label, timeout_s: float) -> RequestTimeout:
    return RequestTimeout(f"{label.verb} {label.resource}: no answer within {timeout_s:g} s")


async def open_stream(connection: Connection) -> ByteStream:
    """Connect to the server over TCP, and TLS where the URL says so. Raises ConnectFailed."""
    address = connection.address
    try:
        stream = await anyio.connect_tcp(address.host, address.port)
    except OSError as problem:
        raise ConnectFailed(f"cannot connect to {address.authority}: {problem}") from problem
    _keep_alive(stream.extra(SocketAttribute.raw_socket))  # noqa: S610 -- no SQL here
    if not address.tls:
        return stream
    name = connection.tls_server_name or address.host.partition("%")[0]
    try:
        # Without the farewell of TLS: message ends are known from HTTP, and waiting for the peer's
        # answer to it would make closing a connection as slow as the peer likes.
        return await TLSStream.wrap(
            stream,
            server_side=False,
            hostname=name,
            ssl_context=connection.ssl_context,
            standard_compatible=False,
        )
    except ssl.SSLCertVerificationError as problem:
        await anyio.aclose_forcefully(stream)
        raise ConnectFailed(
            f"the certificate of {address.authority} was refused: {problem.verify_message} "
            f"(expected name {name!r}); check certificate-authority(-data) and tls-server-name"
        ) from problem
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError) as problem:
        await anyio.aclose_forcefully(stream)
        raise ConnectFailed(f"TLS with {address.authority} failed: {problem}") from problem
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise


def _keep_alive(raw: socket.socket) -> None:
    # A watch may be silent for minutes: the kernel's probes find a peer that is gone in one minute,
    # where without them nothing would ever be sent on the connection.
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

"""The way to the API server: a lean HTTP/1.1 client on non-blocking sockets.

What it does: keep-alive connections in a bounded pool, deadlines, chunked and sized bodies, size
limits, credentials with one repetition after a 401, lanes (:mod:`.limits`), telemetry. What it
leaves out on purpose: HTTP/2, proxies, redirects, cookies, compression (in a cluster it costs more
CPU on both ends than the bytes are worth), and waiting for Retry-After: 429 and 503 become errors
that carry it, and the work queue waits. ``tests/bench/transport_bench.py`` measures what a request
costs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import ApiError, Asked, ProtocolFault, RequestTimeout, from_response
from lean_sandbox.kube.http1 import (
    Disconnected,
    Fields,
    HttpConnection,
    decode_headers,
    encode_request,
    header_lines,
)
from lean_sandbox.kube.limits import Lane, Limiter, Limits
from lean_sandbox.kube.sockets import ByteStream, open_stream
from lean_sandbox.kube.telemetry import Label, Observer, RequestCounters, RequestRecord
from lean_sandbox.kube.tls import trusting
from lean_sandbox.version import __version__

_IDEMPOTENT: Final = frozenset(("GET", "HEAD", "PUT", "DELETE", "OPTIONS"))
_READS: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_MIB: Final = 1024 * 1024
_BODY_LIMIT_BYTES: Final = 256 * _MIB
#: What the server may give up any moment is not kept.
_KEEP_IDLE_S: Final = 60.0

#: Opens a byte stream to the server, TLS included, or raises ConnectFailed.
Connector = Callable[[Connection], Awaitable[ByteStream]]


class Response(msgspec.Struct, frozen=True, gc=False):
    """A whole answer."""

    status: int
    body: bytes
    fields: Fields

    @property
    def headers(self) -> dict[str, str]:
        """The headers, with lower-case names."""
        return decode_headers(self.fields)


class StreamResponse:
    """An answer whose body is read as it arrives."""

    def __init__(self, response: Response, connection: HttpConnection) -> None:
        self.status = response.status
        self.headers = response.headers
        #: The name of the error that ended the body, "" while there was none.
        self.error = ""
        self._connection = connection

    async def receive(self) -> bytes:
        """Return the next bytes of the body, never empty, without any deadline of its own.

        Raises anyio.EndOfStream at a clean end, ProtocolFault when the connection broke before it.
        """
        try:
            return await self._connection.receive()
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
        asked = Asked("watch", resource, namespace)
        return from_response(self.status, await self.read(), self.headers, asked)


class Transport:
    """Requests to one API server.

    The pool holds as many connections as ``limits.max_in_flight``; streams open their own.
    ``observer`` is called with each finished request, streams included; it must not block or raise.
    ``fence``, where it is set, is called before a write is begun and again right before its bytes
    are sent: what it raises keeps them from leaving, and is raised to the caller. Other transports
    to the server may share ``counted``.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        observer: Observer | None = None,
        counted: RequestCounters | None = None,
        connector: Connector = open_stream,
        user_agent: str = f"lean-sandbox/{__version__}",
    ) -> None:
        """Raises ConfigError for a server URL that is none."""
        address = connection.address
        if address.tls and connection.ssl_context is None:
            connection = msgspec.structs.replace(connection, ssl_context=trusting())
        #: What is needed to reach the server, for another transport to it.
        self.connection = connection
        #: The server as the Host header names it.
        self.host = address.authority
        self.clock = clock or SystemClock()
        self.fence: Callable[[], None] | None = None
        self.observer = observer
        self._limiter = Limiter(self.clock, limits)
        self.counted = counted if counted is not None else RequestCounters()
        self.counted.host = self.host
        self.counted.limiters.append(self._limiter)
        self._connector = connector
        self._base_path = address.base_path
        self._constant = (("Host", address.authority), ("User-Agent", user_agent))
        self._idle: list[HttpConnection] = []
        self._closed = False

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
        with a deadline of its own. ``max_body_bytes`` is a limit below the transport's own. Without
        a ``label`` the request is counted as one for no resource. Raises TransportError
        (AnswerTooLarge above the limit), CredentialFault and what the fence does.
        """
        self._check_fence(method)
        exchange = _Exchange(method, target, headers, body, label, timeout_s)
        limit_bytes = min(max_body_bytes or _BODY_LIMIT_BYTES, _BODY_LIMIT_BYTES)
        await self._authorize(exchange)
        await self._limiter.acquire(lane)
        try:
            response = await self._run(exchange, limit_bytes)
            if response.status == 401 and await self._reauthorize(exchange):
                response = await self._run(exchange, limit_bytes)
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
        exchange = _Exchange("GET", target, headers, b"", label, connect_timeout_s)
        await self._authorize(exchange)
        self.counted.streams += 1
        try:
            response = await self._run(exchange, None)
            if response.status == 401 and await self._reauthorize(exchange):
                self._end(exchange)
                response = await self._run(exchange, None)
            assert exchange.connection is not None  # It is kept until the end of the stream.
            stream = StreamResponse(response, exchange.connection)
            try:
                yield stream
            finally:
                self._end(exchange, stream.error)
        finally:
            self.counted.streams -= 1

    async def aclose(self) -> None:
        """Close the idle connections; requests in flight finish and close theirs."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    @property
    def in_flight(self) -> int:
        """How many requests hold a slot."""
        return sum(self._limiter.running)

    def _check_fence(self, method: str) -> None:
        if self.fence is not None and method not in _READS:
            self.fence()

    async def _authorize(self, exchange: _Exchange) -> None:
        """Encode the request with the credential of now."""
        headers = (
            (*self._constant, *exchange.headers.items()) if exchange.headers else self._constant
        )
        authorization = exchange.authorization = await self.connection.auth.authorization()
        if authorization is not None:
            headers = (*headers, ("Authorization", authorization))
        target = self._base_path + exchange.target
        lines = header_lines(headers)
        exchange.data = encode_request(exchange.method, target, lines, exchange.body)

    async def _reauthorize(self, exchange: _Exchange) -> bool:
        """Take a newer credential for a request that was refused; return whether there is one."""
        if not await self.connection.auth.refresh(exchange.authorization):
            return False
        self.counted.count_retry(exchange.method, 401)
        await self._authorize(exchange)
        return True

    async def _run(self, exchange: _Exchange, limit_bytes: int | None) -> Response:
        """Send a request and return its response; ``limit_bytes`` None leaves the body unread."""
        exchange.started = self.clock.monotonic()
        with anyio.move_on_after(exchange.timeout_s) as scope:
            try:
                connection = await self._send(exchange, repeats=limit_bytes is not None)
                found = connection.response
                if limit_bytes is None:
                    return Response(found.status, b"", found.fields)
                body = await connection.body(limit_bytes)
                self._end(exchange, keep=found.keeps_alive and not self._closed)
                return Response(found.status, body, found.fields)
            except BaseException as problem:
                error = type(problem).__name__
                if isinstance(problem, anyio.get_cancelled_exc_class()):
                    error = RequestTimeout.__name__ if scope.cancel_called else "Cancelled"
                self._end(exchange, error)
                raise
        label = exchange.label
        raise RequestTimeout(
            f"{label.verb} {label.resource}: no answer within {exchange.timeout_s:g} s"
        )

    async def _send(self, exchange: _Exchange, *, repeats: bool) -> HttpConnection:
        """Send a request and wait for the head of its response.

        A server closes idle connections when it likes, perhaps while the request is under way.
        What could not be written was not carried out; the rest is repeated only where doing it
        twice does no harm. A stream is not repeated here: a watch that ends tells its reflector of
        a server that restarts.
        """
        if (reused := self._reusable()) is not None:
            exchange.connection = reused
            try:
                self._check_fence(exchange.method)
                await reused.send(exchange.data, exchange.method)
            except Disconnected as problem:
                if not repeats or not (problem.at_write or exchange.method in _IDEMPOTENT):
                    raise
                reused.close()
                self.counted.count_retry(exchange.method, 0)
            else:
                return reused
        exchange.connection = None
        auth = self.connection.auth
        identity = auth.identity
        stream = await self._connector(self.connection)
        self.counted.connections_opened += 1
        fresh = exchange.connection = HttpConnection(stream, self.counted, identity=identity)
        self._check_fence(exchange.method)
        await fresh.send(exchange.data, exchange.method)
        return fresh

    def _reusable(self) -> HttpConnection | None:
        """Return the connection used last, after closing those the server may have given up."""
        oldest = self.clock.monotonic() - _KEEP_IDLE_S
        while self._idle and self._idle[0].idle_since < oldest:
            self._idle.pop(0).close()
        while self._idle:
            connection = self._idle.pop()
            if connection.identity == self.connection.auth.identity and connection.is_quiet():
                return connection
            connection.close()
        return None

    def _end(self, exchange: _Exchange, error: str = "", *, keep: bool = False) -> None:
        """Count a request that is over, and keep or close its connection."""
        connection = exchange.connection
        now = self.clock.monotonic()
        record = RequestRecord(
            exchange.method,
            exchange.label.verb,
            exchange.label.resource,
            connection.response.status if connection else 0,
            connection.sent_bytes if connection else 0,
            connection.received_bytes if connection else 0,
            now - exchange.started,
            error,
        )
        self.counted.count(record)
        exchange.connection = None
        if connection is not None and keep:
            connection.idle_since = now
            self._idle.append(connection)
        elif connection is not None:
            connection.close()
        if self.observer is not None:
            self.observer(record)


class _Exchange:
    """One request, and the connection it is under way on."""

    __slots__ = (
        "authorization",
        "body",
        "connection",
        "data",
        "headers",
        "label",
        "method",
        "started",
        "target",
        "timeout_s",
    )

    def __init__(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None,
        body: bytes,
        label: Label | None,
        timeout_s: float,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.label = label or Label(method.lower(), "nonresource")
        self.timeout_s = timeout_s
        self.authorization: str | None = None
        self.data = b""
        self.started = 0.0
        self.connection: HttpConnection | None = None


class LineTooLongError(Exception):
    """A line grew past the limit; the stream cannot be trusted any more."""


class LineSplitter:
    r"""Collects the chunks of a watch and returns the complete lines among them.

    Only the byte ``\n`` ends a line. Text splitting would also cut at U+0085 or U+2028, which Go's
    encoder leaves unescaped inside strings: anybody who can annotate a watched object could then
    break the watch.

    ``limit_bytes`` bounds a line, finished or not; an object of the API server is at most about
    3 MiB, so the default of 16 MiB is only ever reached by a broken peer.
    """

    __slots__ = ("_limit_bytes", "_pending", "pending_bytes")

    def __init__(self, limit_bytes: int = 16 * 1024 * 1024) -> None:
        self._pending: list[bytes] = []
        #: Bytes of a line whose end has not been seen.
        self.pending_bytes = 0
        self._limit_bytes = limit_bytes

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk and return the lines it completes, without their ends, skipping empty ones.

        Raises :class:`LineTooLongError` when a line exceeds the limit.
        """
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if lines and self._pending:
            self._keep(lines[0])
            lines[0] = b"".join(self._pending)
            self._pending.clear()
            self.pending_bytes = 0
        if tail:
            self._keep(tail)
        if len(chunk) > self._limit_bytes:
            for line in lines:
                self._check(len(line))
        return [line for line in lines if line and not line.isspace()]

    def _keep(self, piece: bytes) -> None:
        self._pending.append(piece)
        self.pending_bytes += len(piece)
        self._check(self.pending_bytes)

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            raise LineTooLongError(f"a line of the watch exceeds {self._limit_bytes} bytes")

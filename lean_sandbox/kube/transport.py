"""The way to the API server: a lean HTTP/1.1 client on non-blocking sockets.

Left out on purpose: HTTP/2, proxies, redirects, cookies, compression (in a cluster it costs more
CPU on both ends than the bytes are worth), and waiting for Retry-After: 429 and 503 become errors
that carry it, and the work queue waits.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.kube.connection import Connection, tls_context
from lean_sandbox.kube.errors import Asked, ProtocolFault, RequestTimeout, from_response
from lean_sandbox.kube.http1 import Disconnected, HttpConnection, encode_request, header_lines
from lean_sandbox.kube.limits import Limiter, Limits
from lean_sandbox.kube.sockets import DeadlinePassed, open_stream
from lean_sandbox.kube.telemetry import RequestCounters, RequestRecord
from lean_sandbox.turns import RANK
from lean_sandbox.version import __version__

_IDEMPOTENT: Final = frozenset(("GET", "PUT", "DELETE"))
_MIB: Final = 1024 * 1024
_BODY_LIMIT_BYTES: Final = 256 * _MIB
#: A connection that was idle for longer is not reused: the server may close it at any moment.
_KEEP_IDLE_S: Final = 60.0


class Response(msgspec.Struct, frozen=True, gc=False):
    """A whole answer. The names of its headers are in lower case."""

    status: int
    body: bytes
    headers: dict[bytes, bytes]


class _Exchange(msgspec.Struct):
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    asked: Asked
    timeout_s: float
    #: Whether the body of a 200 is left to be read as it comes.
    is_stream: bool = False
    limit_bytes: int = _BODY_LIMIT_BYTES
    fence: Callable[[], None] | None = None
    authorization: str | None = None
    data: bytes = b""
    started: float = 0.0
    connection: HttpConnection | None = None


class _IdleConnections:
    """Connections that wait for the next request, longest idle first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._connections: list[HttpConnection] = []

    def __len__(self) -> int:
        return len(self._connections)

    def put(self, connection: HttpConnection) -> None:
        connection.idle_since = self._clock.monotonic()
        self._connections.append(connection)

    def take(self, identity: int) -> HttpConnection | None:
        """Return the one used last that can be used with a certificate; close those that cannot."""
        oldest = self._clock.monotonic() - _KEEP_IDLE_S
        while self._connections and self._connections[0].idle_since < oldest:
            self._connections.pop(0).stream.close()
        while self._connections:
            connection = self._connections.pop()
            if connection.identity == identity and connection.stream.is_quiet():
                return connection
            connection.stream.close()
        return None

    def close(self) -> None:
        while self._connections:
            self._connections.pop().stream.close()


class Transport:
    """Requests to one API server.

    The pool holds as many connections as ``limits.max_in_flight``; streams have their own.
    ``observer``, if set, is called with each finished request, streams included; it must not block
    or raise. ``fence``, if set, is called before a write is begun and again right before each piece
    of it is sent: an error that it raises keeps the piece from being sent, so that the server never
    has the whole request, and is raised to the caller. Other transports to the server may share
    ``counted``.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        counted: RequestCounters | None = None,
        user_agent: str = f"lean-sandbox/{__version__}",
    ) -> None:
        """Raises ConfigError for a server URL that is not one."""
        address = connection.address
        if address.tls and connection.ssl_context is None:
            connection = msgspec.structs.replace(connection, ssl_context=tls_context())
        #: What is needed to reach the server, for another transport to it.
        self.connection = connection
        self.clock = clock or SystemClock()
        self.fence: Callable[[], None] | None = None
        self.observer: Callable[[RequestRecord], None] | None = None
        #: When the last answer came: by the server's clock, as an HTTP date, and by ours.
        self.date = b""
        self.dated_at = -math.inf
        self._limiter = Limiter(self.clock, limits)
        self.counted = counted if counted is not None else RequestCounters()
        self.counted.host = address.authority
        self.counted.limiters.append(self._limiter)
        self._base_path = address.base_path
        self._constant = (("Host", address.authority), ("User-Agent", user_agent))
        self._idle = _IdleConnections(self.clock)
        self._closed = False

    async def request(
        self,
        method: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        asked: Asked | None = None,
        admit: Callable[[str], None] | None = None,
        max_body_bytes: int | None = None,
    ) -> Response:
        """Send one request and return the whole answer, whatever its status.

        ``target`` is path and query below the server's base path. The rank of the current task says
        when it gets a slot (:mod:`lean_sandbox.turns`). ``admit`` is called with the
        namespace when there is a slot, and may raise. ``timeout_s`` covers connecting, sending and
        receiving, not the wait for a slot, whose holders have deadlines. After a 401 that a fresh
        credential may cure the request is sent once more, with a deadline of its own. Raises
        TransportError (AnswerTooLarge above ``max_body_bytes``, or 256 MiB) and CredentialFault.
        """
        asked = asked or Asked(method.lower(), "nonresource")
        exchange = _Exchange(method, target, headers or {}, body, asked, timeout_s)
        if self.fence is not None and method != "GET":
            exchange.fence = self.fence
            self.fence()
        exchange.limit_bytes = max_body_bytes or _BODY_LIMIT_BYTES
        await self._authorize(exchange)
        rank = RANK.get()
        await self._limiter.acquire(rank, asked.namespace)
        try:
            if admit is not None:
                admit(asked.namespace)
            return await self._run(exchange)
        finally:
            self._limiter.release(rank, asked.namespace)

    @asynccontextmanager
    async def stream(
        self,
        target: str,
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout_s: float = 10.0,
        asked: Asked,
    ) -> AsyncIterator[HttpConnection]:
        """GET ``target`` and hand out the connection whose ``feed`` gives the answer.

        ``connect_timeout_s`` covers everything up to the head of the answer, and the whole of one
        that is not 200, which is raised as ApiError. Streams take no slot; the connection ends with
        the stream. Raises TransportError and CredentialFault.
        """
        exchange = _Exchange("GET", target, headers or {}, b"", asked, connect_timeout_s)
        exchange.is_stream = True
        exchange.limit_bytes = _MIB
        await self._authorize(exchange)
        self.counted.streams += 1
        try:
            response = await self._run(exchange)
            if exchange.connection is None:
                raise from_response(response.status, response.body, response.headers, asked)
            error = ""
            try:
                yield exchange.connection
            except ProtocolFault as problem:
                error = type(problem).__name__
                raise
            finally:
                self._end(exchange, error)
        finally:
            self.counted.streams -= 1

    async def aclose(self) -> None:
        """Close the idle connections; requests in flight finish and close theirs."""
        self._closed = True
        self._idle.close()

    async def _authorize(self, exchange: _Exchange) -> None:
        headers = (*self._constant, *exchange.headers.items())
        authorization = exchange.authorization = await self.connection.auth.authorization()
        if authorization is not None:
            headers = (*headers, ("Authorization", authorization))
        target = self._base_path + exchange.target
        lines = header_lines(headers)
        exchange.data = encode_request(exchange.method, target, lines, exchange.body)

    async def _run(self, exchange: _Exchange) -> Response:
        response = await self._attempt(exchange)
        if response.status == 401 and await self.connection.auth.refresh(exchange.authorization):
            self.counted.retries[exchange.method, 401] += 1
            await self._authorize(exchange)
            response = await self._attempt(exchange)
        return response

    async def _attempt(self, exchange: _Exchange) -> Response:
        """Send a request and return its response; a stream's connection stays in the exchange."""
        exchange.started = self.clock.monotonic()
        try:
            connection = await self._send(exchange)
            if exchange.is_stream and connection.status == 200:
                connection.stream.limit(math.inf)
                return Response(connection.status, b"", connection.headers)
            self.date = connection.headers.get(b"date", b"")
            self.dated_at = self.clock.monotonic()
            body = await connection.body(exchange.limit_bytes)
        except DeadlinePassed:
            self._end(exchange, RequestTimeout.__name__)
            # The cause may have silently cut off all other connections too.
            self._idle.close()
            asked = exchange.asked
            raise RequestTimeout(
                f"{asked.verb} {asked.resource}: no answer within {exchange.timeout_s:g} s"
            ) from None
        except BaseException as problem:
            was_cancelled = isinstance(problem, anyio.get_cancelled_exc_class())
            self._end(exchange, "Cancelled" if was_cancelled else type(problem).__name__)
            raise
        self._end(exchange, keep=connection.keeps_alive and not self._closed)
        return Response(connection.status, body, connection.headers)

    async def _send(self, exchange: _Exchange) -> HttpConnection:
        """Send a request and wait for the head of its response.

        A server may close idle connections at any time: a request that could not be written was not
        carried out, others are repeated only if they are idempotent. A stream is not repeated: the
        end of a watch shows its reflector that the server restarts.
        """
        if (reused := self._idle.take(self.connection.auth.identity)) is not None:
            exchange.connection = reused
            reused.stream.limit(exchange.timeout_s)
            try:
                await reused.send(exchange.data, exchange.fence)
            except Disconnected as problem:
                may_repeat = problem.at_write or exchange.method in _IDEMPOTENT
                if exchange.is_stream or not may_repeat:
                    raise
                reused.stream.close()
                self.counted.retries[exchange.method, 0] += 1
            else:
                return reused
        exchange.connection = None
        identity = self.connection.auth.identity
        took_s = self.clock.monotonic() - exchange.started
        with anyio.move_on_after(exchange.timeout_s - took_s) as scope:
            stream = await open_stream(self.connection)
        if scope.cancelled_caught:
            raise DeadlinePassed
        stream.limit(scope.deadline - anyio.current_time())
        self.counted.connections_opened += 1
        fresh = exchange.connection = HttpConnection(stream, self.counted, identity=identity)
        try:
            await fresh.send(exchange.data, exchange.fence)
        except Disconnected as problem:
            if self.connection.address.tls or self.dated_at > -math.inf:
                raise
            why = f"{problem.why}; the address begins with http://: try https://"
            raise Disconnected(why, at_write=problem.at_write) from problem
        return fresh

    def _end(self, exchange: _Exchange, error: str = "", *, keep: bool = False) -> None:
        connection = exchange.connection
        now = self.clock.monotonic()
        record = RequestRecord(
            exchange.method,
            exchange.asked.verb,
            exchange.asked.resource,
            connection.status if connection else 0,
            now - exchange.started,
            error,
        )
        self.counted.count(record)
        exchange.connection = None
        if connection is not None:
            if keep:
                self._idle.put(connection)
            else:
                connection.stream.close()
        if self.observer is not None:
            self.observer(record)

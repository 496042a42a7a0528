"""A small HTTP/1.1 server for metrics and health: GET and HEAD, no bodies, everything bounded.

A connection serves one request. Nothing a peer does or fails to do ends more than its own
connection, and what went wrong with that is counted. There are no threads.
"""

from __future__ import annotations

import errno
import math
import re
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

import anyio
import msgspec
import structlog
from anyio.abc import ByteStream, SocketStream, TaskGroup
from anyio.streams.tls import TLSStream
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from lean_sandbox.clock import Clock
from lean_sandbox.errors import ConfigError
from lean_sandbox.http.arrivals import BACKLOG, Arrivals, silent
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Counters, Exposition

log = structlog.get_logger("endpoints")

_HEAD_BYTES: Final = 8192
_CHUNK_BYTES: Final = 4096
# An answer is sent in pieces: what is written is copied for a peer that does not read.
_PIECE_BYTES: Final = 64 * 1024
# From the connect to the whole head of the request.
_REQUEST_S: Final = 30.0
# A profile takes up to 60 s.
_ANSWER_S: Final = 90.0
_MOST_CONNECTIONS: Final = 64
# Errors of accept(2) that concern one peer alone; others, such as too many files, last for a while.
_OF_A_PEER: Final = frozenset({errno.ECONNABORTED, errno.EPROTO})
_LINGER_S: Final = 1.0
_TARGET: Final = re.compile(rb"/[!-~]{0,2047}")
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
}


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What to answer."""

    code: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    #: Headers besides those that every answer has: names and values.
    headers: tuple[tuple[str, str], ...] = ()


class Request(msgspec.Struct, frozen=True, gc=False):
    """What was asked for. ``query`` has the last value of each name."""

    path: str
    query: dict[str, str]
    method: str = "GET"
    #: The answer to an invalid request.
    refusal: Answer | None = None


Handler: TypeAlias = Callable[[Request], Awaitable[Answer]]


def text(code: int, words: str) -> Answer:
    """Return an answer in plain words."""
    return Answer(code, words.encode())


def not_found(request: Request) -> Answer:
    """Return the answer for a path that leads nowhere."""
    return text(404, f"there is nothing at {request.path}\n")


def health(not_ready: Callable[[], str | None]) -> Handler:
    """Return a handler that serves the checks ``healthz`` and ``readyz``.

    Each is at ``/NAME`` and ``/NAME/NAME``: 200 ``ok``, or 500 with what is wrong. A process that
    answers is healthy; ``not_ready`` returns what is wrong, ``None`` if nothing is. ``?verbose``
    lists the check, ``?exclude=NAME`` leaves it out, as in the reference's framework.
    """
    checks = {"healthz": lambda: None, "readyz": not_ready}

    async def handle(request: Request) -> Answer:
        name, _, sub = request.path.removeprefix("/").partition("/")
        check = checks.get(name)
        if check is None or sub not in ("", name):
            return not_found(request)
        excluded = None if sub else request.query.get("exclude")
        problem = None if excluded == name else check()
        if sub and problem is not None:
            return text(500, f"internal server error: {problem}\n")
        lines = [f"[+]{name} excluded: ok" if excluded == name else f"[+]{name} ok"]
        if problem is not None:
            lines = [f"[-]{name} failed: {problem}"]
        if excluded not in (None, name):
            lines.append(
                f"warn: some health checks cannot be excluded: no matches for {excluded!r}"
            )
        if problem is not None:
            return text(500, "\n".join((*lines, f"{name} check failed", "")))
        if sub or "verbose" not in request.query:
            return text(200, "ok")
        return text(200, "\n".join((*lines, f"{name} check passed", "")))

    return handle


def bind(flag: str, address: str) -> socket.socket:
    """Listen on ``[host]:port``; no host: every address, port 0: a free one. Raises ConfigError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{flag}: {address!r} is not an address; write host:port, or :port")
    try:
        if host := host.removeprefix("[").removesuffix("]"):
            # For a host that is not bytes a codec of 260 KiB is loaded.
            found = socket.getaddrinfo(host.encode(), int(port), type=socket.SOCK_STREAM)
            family, *_, place = found[0]
            made = socket.create_server(place, family=family, backlog=BACKLOG)
        else:
            both = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if both else socket.AF_INET
            made = socket.create_server(
                ("", int(port)), family=family, backlog=BACKLOG, dualstack_ipv6=both
            )
    except OSError as error:
        # Python adds the address once more.
        why = f"{error.strerror or error}".partition(" (while")[0]
        raise ConfigError(
            f"{flag}: cannot listen on {address}: {why}",
            way_out="give another address, with port 0 for a free one, or 0 to switch it off",
        ) from error
    made.settimeout(0)
    return made


class Endpoint:
    """Answers on one listener with one handler."""

    def __init__(
        self,
        name: str,
        handler: Handler,
        clock: Clock,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """``tls`` returns the context for each new connection; ``None`` serves without TLS."""
        self.name = name
        self.clock = clock
        self.tls = tls
        self._handler = handler
        #: Those that are being served.
        self.open: dict[_Connection, None] = {}
        self._broken = Counters(families.ENDPOINT_BROKEN)

    def collect(self, into: Exposition) -> None:
        """Add the counts of broken connections."""
        self._broken.collect(into)

    def broken(self, cause: str) -> None:
        """Count a connection that broke."""
        self._broken.add(self.name, cause)

    async def serve(self, listening: socket.socket) -> None:
        """Answer until cancelled, then close the listener. Never raises anything else."""
        try:
            async with anyio.create_task_group() as group:
                while True:
                    await anyio.wait_readable(listening)
                    await self._take_in(listening, group)
        finally:
            listening.close()

    async def _take_in(self, listening: socket.socket, group: TaskGroup) -> None:
        """Accept all that have connected, and serve those that are not too many."""
        arrivals = Arrivals(_MOST_CONNECTIONS)
        is_failing = False
        try:
            arrivals.accept(listening)
        except OSError as error:
            self.broken("accept")
            is_failing = error.errno not in _OF_A_PEER
            if is_failing:
                log.warning("accept_failed", listener=self.name, error=str(error))
        for _ in range(arrivals.refused):
            self.broken("crowded")
        for peer, made in arrivals.kept():
            if len(self.open) >= _MOST_CONNECTIONS:
                self._make_room()
            connection = _Connection(self, made, peer)
            self.open[connection] = None
            group.start_soon(connection.run)
        if is_failing:
            await self.clock.sleep(1.0)

    def _make_room(self) -> None:
        # An honest peer says at once what it wants, and is done in milliseconds: the oldest of so
        # many is kept open on purpose. A peer that is alone is not the one that has too many.
        self.broken("crowded")
        ((crowd, _),) = Counter(each.peer for each in self.open).most_common(1)
        of_crowd = [each for each in self.open if each.peer == crowd]
        of_crowd.sort(key=lambda each: each.waits_since)
        chosen = of_crowd[silent([each.accepted for each in of_crowd])]
        del self.open[chosen]
        chosen.scope.cancel()

    async def answer(self, request: Request) -> Answer:
        """Return the answer to a request."""
        if request.refusal is not None:
            return request.refusal
        if request.method not in ("GET", "HEAD"):
            return text(405, f"{request.method} is not supported here\n")
        try:
            return await self._handler(request)
        except Exception:
            # A bug of ours ends neither the server nor the peer's connection.
            log.exception("answer_failed", listener=self.name, path=request.path)
            return text(500, "internal error; see the controller's log\n")


class _Connection:
    """One peer; the methods ``on_...`` are callbacks of llhttp. Bodies of requests are not read."""

    def __init__(self, endpoint: Endpoint, accepted: socket.socket, peer: str) -> None:
        self.peer = peer
        self.scope = anyio.CancelScope()
        #: Since when its request is waited for; inf once that has come.
        self.waits_since = endpoint.clock.monotonic()
        self._endpoint = endpoint
        self._clock = endpoint.clock
        self.accepted = accepted
        self._raw: ByteStream
        self._stream: ByteStream
        self._parser = HttpRequestParser(self)
        self._request: Request | None = None
        self._target = b""
        self._hosts = 0

    async def run(self) -> None:
        try:
            with self.scope, self.accepted:
                await self._begin()
        except TimeoutError:
            self._endpoint.broken("timeout")
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._endpoint.broken("reset")
        finally:
            self._endpoint.open.pop(self, None)

    async def _begin(self) -> None:
        self.accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._raw = self._stream = await SocketStream.from_socket(self.accepted)
        except ValueError as gone:
            raise OSError("the peer has left") from gone
        try:
            await self._converse()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(self._raw)

    async def _converse(self) -> None:
        endpoint = self._endpoint
        async with self._clock.limit(_REQUEST_S):
            try:
                if endpoint.tls is not None:
                    self._stream = await TLSStream.wrap(
                        self._raw,
                        server_side=True,
                        ssl_context=endpoint.tls(),
                        standard_compatible=False,
                    )
            except (OSError, anyio.EndOfStream) as error:
                # ssl.SSLError is an OSError: no common version or cipher, or no TLS at all.
                endpoint.broken("tls")
                log.debug("handshake_failed", listener=endpoint.name, error=str(error))
                return
            request = await self._read()
        if request is None:
            return
        self.waits_since = math.inf
        async with self._clock.limit(_ANSWER_S):
            await self._send(await endpoint.answer(request), request)
        # Closing with unread bytes would reset the connection and lose the answer.
        with suppress(TimeoutError, anyio.EndOfStream):
            async with self._clock.limit(_LINGER_S):
                await self._raw.send_eof()
                while True:
                    await self._raw.receive(_CHUNK_BYTES)

    async def _read(self) -> Request | None:
        read_bytes = 0
        while self._request is None:
            try:
                data = await self._stream.receive(min(_CHUNK_BYTES, _HEAD_BYTES - read_bytes))
            except anyio.EndOfStream:
                return None
            read_bytes += len(data)
            try:
                self._parser.feed_data(data)
            except (HttpParserError, HttpParserUpgrade) as problem:
                self._refuse(400, f"this is not a request of HTTP/1.1: {problem}")
            if read_bytes >= _HEAD_BYTES:
                self._refuse(431, f"the head of a request may have {_HEAD_BYTES} bytes")
        return self._request

    async def _send(self, answer: Answer, request: Request) -> None:
        body = answer.body
        lines = [
            f"HTTP/1.1 {answer.code} {_REASONS[answer.code]}",
            f"Content-Type: {answer.content_type}",
            f"Date: {self._clock.now():%a, %d %b %Y %H:%M:%S} GMT",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in answer.headers),
        ]
        if answer.code == 405:
            lines.append("Allow: GET, HEAD")
        head = "\r\n".join((*lines, "", "")).encode("latin-1")
        if request.method == "HEAD":
            body = b""
        await self._stream.send(head + body[:_PIECE_BYTES])
        for at in range(_PIECE_BYTES, len(body), _PIECE_BYTES):
            await self._stream.send(body[at : at + _PIECE_BYTES])

    def _refuse(self, code: int, words: str) -> None:
        """Refuse an invalid request, unless it follows a valid one."""
        self._request = self._request or Request("", {}, refusal=text(code, f"{words}\n"))

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, _value: bytes) -> None:
        self._hosts += name.lower() == b"host"

    def on_headers_complete(self) -> None:
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1") or not _TARGET.fullmatch(self._target):
            self._refuse(400, "this is not a request of HTTP/1.1")
        if self._hosts > 1 or (version == "1.1" and not self._hosts):
            self._refuse(400, f"the Host header is given {self._hosts} times")
        path, _, query = self._target.decode("latin-1").partition("?")
        pairs: dict[str, str] = {}
        try:
            pairs = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=32))
        except ValueError:
            self._refuse(400, "the query has too many parameters")
        self._request = self._request or Request(path, pairs, self._parser.get_method().decode())

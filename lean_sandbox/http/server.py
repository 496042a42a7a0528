"""A small HTTP/1.1 server for metrics and health: GET and HEAD, no bodies, everything bounded.

Whoever scrapes or probes is a guest here: nothing a peer does or leaves undone ends more than its
own connection, and what went wrong with it is counted. There are no threads; an idle connection
costs one task and no CPU.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

import anyio
import msgspec
import structlog
from anyio.abc import ByteStream, SocketListener
from anyio.streams.tls import TLSStream
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from lean_sandbox.clock import Clock
from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Counters, Exposition

log = structlog.get_logger("endpoints")

_HEAD_BYTES: Final = 8192
_CHUNK_BYTES: Final = 4096
# From the end of one answer to the whole head of the next request; also the longest an answer may
# take. Longer than any usual interval of scraping, so that a connection is reused.
_IDLE_S: Final = 90.0
# What an answer is given at least, however late in that time its request came.
_ANSWER_S: Final = 30.0
_MOST_CONNECTIONS: Final = 64
_LINGER_S: Final = 1.0
_BACKLOG: Final = 128
_ACCEPT_PAUSE_S: Final = 1.0
_PLAIN: Final = "text/plain; charset=utf-8"

_TARGET: Final = re.compile(rb"/[!-~]{0,2047}")
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
}


class Request(msgspec.Struct, frozen=True, gc=False):
    """What was asked for. ``query`` has the last value of each name."""

    path: str
    query: dict[str, str]
    accept: str


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What to answer. A body in blocks is sent as they are made, and never held as a whole."""

    code: int
    body: bytes | Iterator[bytes]
    content_type: str = _PLAIN


Handler: TypeAlias = Callable[[Request], Awaitable[Answer]]


def text(code: int, words: str) -> Answer:
    """Return an answer in plain words."""
    return Answer(code, words.encode())


def not_found(request: Request) -> Answer:
    """Return the answer for a path that leads nowhere."""
    return text(404, f"there is nothing at {request.path}\n")


# Returns what is wrong, in words; ``None`` while all is well.
Check: TypeAlias = Callable[[], str | None]


def health(checks: Mapping[str, Check]) -> Handler:
    """Return a handler that serves each check at ``/NAME`` and ``/NAME/NAME``.

    200 ``ok``, or 500 with what is wrong. ``?verbose`` lists the check, ``?exclude=NAME`` leaves it
    out: as the reference's framework does (spec, 7.4).
    """

    async def handle(request: Request) -> Answer:
        name, slash, sub = request.path.removeprefix("/").partition("/")
        check = checks.get(name)
        if check is None or sub not in ("", name):
            return not_found(request)
        if slash and sub:
            problem = check()
            if problem is None:
                return text(200, "ok")
            return text(500, f"internal server error: {problem}\n")
        return _whole(name, check, request)

    return handle


def _whole(name: str, check: Check, request: Request) -> Answer:
    excluded = request.query.get("exclude")
    lines: list[str] = []
    problem: str | None = None
    if excluded == name:
        lines.append(f"[+]{name} excluded: ok")
    else:
        problem = check()
        lines.append(f"[+]{name} ok" if problem is None else f"[-]{name} failed: {problem}")
        if excluded is not None:
            lines.append(
                f"warn: some health checks cannot be excluded: no matches for {excluded!r}"
            )
    if problem is not None:
        return text(500, "\n".join((*lines, f"{name} check failed", "")))
    if "verbose" not in request.query:
        return text(200, "ok")
    return text(200, "\n".join((*lines, f"{name} check passed", "")))


class _RefusedError(Exception):
    """A request that is answered without being understood; the connection ends with it."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class _Head(msgspec.Struct, frozen=True, gc=False):
    method: str
    target: str
    accept: str
    is_modern: bool
    keep_alive: bool
    has_body: bool


# -- listening -------------------------------------------------------------------------------------


def bind(flag: str, address: str) -> socket.socket:
    """Listen on ``[host]:port``; no host is every address of the machine, port 0 a free one.

    Raises ConfigError, naming the flag, for what is no address and for one that cannot be had.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{flag}: {address!r} is not an address; write host:port, or :port")
    try:
        return _listen(host.removeprefix("[").removesuffix("]"), int(port))
    except OSError as error:
        raise ConfigError(
            f"{flag}: cannot listen on {address}: {error.strerror or error}; choose another"
            " address, or 0 to switch it off"
        ) from error


def _listen(host: str, port: int) -> socket.socket:
    if host:
        family, address = _resolved(host, port)
        made = socket.create_server((address, port), family=family, backlog=_BACKLOG)
    elif socket.has_dualstack_ipv6():
        made = socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
        )
    else:
        made = socket.create_server(("", port), backlog=_BACKLOG)
    made.settimeout(0)
    return made


def _resolved(host: str, port: int) -> tuple[int, str]:
    # An address needs no resolver, whose libraries take 600 KiB of memory.
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return family, host
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return family, str(address[0])


class Endpoint:
    """Answers on one listener with one handler."""

    def __init__(
        self,
        name: str,
        handler: Handler,
        clock: Clock,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        most_connections: int = _MOST_CONNECTIONS,
    ) -> None:
        """``tls`` gives the context for each new connection; ``None`` serves without TLS.

        Every open connection counts towards the limit, whatever it is doing.
        """
        self.name = name
        self._handler = handler
        self._clock = clock
        self._tls = tls
        self._most = most_connections
        # By age; and those of them that wait for a request, the one that waits longest first.
        self._open: dict[int, anyio.CancelScope] = {}
        self._idle: dict[int, anyio.CancelScope] = {}
        self._answers = Counters(families.ENDPOINT_ANSWERS)
        self._broken = Counters(families.ENDPOINT_BROKEN)

    def collect(self, into: Exposition) -> None:
        """Add what was answered and what broke."""
        self._answers.collect(into)
        self._broken.collect(into)

    async def serve(self, listening: socket.socket) -> None:
        """Answer until cancelled, then close the listener. Never raises anything else."""
        listener = await SocketListener.from_socket(listening)
        async with listener, anyio.create_task_group() as group:
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:
                    # Too many open files, or a peer that left in between: the next may be well.
                    self._broken.add(self.name, "accept")
                    log.warning("accept_failed", listener=self.name, error=str(error))
                    await self._clock.sleep(_ACCEPT_PAUSE_S)
                    continue
                if len(self._open) >= self._most:
                    self._make_room()
                scope = self._open[id(stream)] = anyio.CancelScope()
                group.start_soon(self._attend, stream, scope)

    def _make_room(self) -> None:
        """Close a connection for a newcomer: the one silent for longest, else the oldest.

        An honest peer is done in milliseconds; what is oldest under such a crowd is held on
        purpose.
        """
        self._broken.add(self.name, "crowded")
        oldest, scope = next(iter((self._idle or self._open).items()))
        for held in (self._idle, self._open):
            held.pop(oldest, None)
        scope.cancel()

    async def _attend(self, stream: ByteStream, scope: anyio.CancelScope) -> None:
        deadline = _Deadline(self._clock)
        try:
            with scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(deadline.watch, group.cancel_scope)
                    try:
                        await self._converse(stream, deadline, scope)
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        self._broken.add(self.name, "reset")
                    group.cancel_scope.cancel()
        finally:
            # One that made room is forgotten already, and its address may be another's by now.
            for held in (self._open, self._idle):
                if held.get(id(stream)) is scope:
                    del held[id(stream)]
            if deadline.has_passed and deadline.matters:
                self._broken.add(self.name, "timeout")
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)

    async def _converse(
        self, raw: ByteStream, deadline: _Deadline, scope: anyio.CancelScope
    ) -> None:
        stream = raw
        if self._tls is not None:
            wrapped = await self._wrap(raw, self._tls)
            if wrapped is None:
                return
            stream = wrapped
        requests = _RequestParser()
        while True:
            deadline.set(_IDLE_S, matters=False)
            self._idle[id(raw)] = scope
            try:
                head = await requests.next(stream, deadline)
            except anyio.EndOfStream:
                return
            except _RefusedError as refused:
                await self._send(stream, text(refused.code, f"{refused}\n"), is_last=True)
                await self._linger(raw, deadline)
                return
            self._idle.pop(id(raw), None)
            deadline.set(_ANSWER_S, matters=True)
            answer = await self._answer(head)
            is_last = not head.keep_alive or head.has_body
            await self._send(
                stream,
                answer,
                is_last=is_last,
                is_head=head.method == "HEAD",
                is_modern=head.is_modern,
            )
            if head.has_body:
                await self._linger(raw, deadline)
            if is_last:
                return

    async def _linger(self, raw: ByteStream, deadline: _Deadline) -> None:
        """Read on for a second, for closing over unread bytes would take the answer back."""
        if self._tls is not None:
            return
        deadline.set(_LINGER_S, matters=False)
        await raw.send_eof()
        with suppress(anyio.EndOfStream):
            while True:
                await raw.receive(_CHUNK_BYTES)

    async def _wrap(self, raw: ByteStream, tls: Callable[[], ssl.SSLContext]) -> ByteStream | None:
        try:
            return await TLSStream.wrap(
                raw, server_side=True, ssl_context=tls(), standard_compatible=False
            )
        except (OSError, anyio.EndOfStream) as error:
            # ssl.SSLError is an OSError: no common version or cipher, or no TLS at all.
            self._broken.add(self.name, "tls")
            log.debug("handshake_failed", listener=self.name, error=str(error))
            return None

    async def _answer(self, head: _Head) -> Answer:
        if head.method not in ("GET", "HEAD"):
            return text(405, f"{head.method} is not supported here\n")
        path, _, query = head.target.partition("?")
        try:
            pairs = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=32))
        except ValueError:
            return text(400, "the query has too many parameters\n")
        try:
            return await self._handler(Request(path, pairs, head.accept))
        except Exception:
            # A fault of ours ends neither the server nor the peer's connection.
            log.exception("answer_failed", listener=self.name, path=path)
            return text(500, "the answer could not be made; the log says why\n")

    async def _send(
        self,
        stream: ByteStream,
        answer: Answer,
        *,
        is_last: bool,
        is_head: bool = False,
        is_modern: bool = True,
    ) -> None:
        self._answers.add(self.name, str(answer.code))
        lines = [
            f"HTTP/1.1 {answer.code} {_REASONS[answer.code]}",
            f"Content-Type: {answer.content_type}",
            f"Date: {self._clock.now():%a, %d %b %Y %H:%M:%S} GMT",
            "X-Content-Type-Options: nosniff",
        ]
        body = answer.body
        if isinstance(body, bytes):
            lines.append(f"Content-Length: {len(body)}")
        elif is_modern:
            lines.append("Transfer-Encoding: chunked")
        if answer.code == 405:
            lines.append("Allow: GET, HEAD")
        if is_last:
            lines.append("Connection: close")
        head = "\r\n".join((*lines, "", "")).encode("latin-1")
        if is_head:
            await stream.send(head)
        elif not isinstance(body, bytes):
            await stream.send(head)
            for block in filter(None, body):
                await stream.send(b"%x\r\n%b\r\n" % (len(block), block) if is_modern else block)
            if is_modern:
                await stream.send(b"0\r\n\r\n")
        elif len(body) > _CHUNK_BYTES:
            await stream.send(head)
            await stream.send(body)
        else:
            await stream.send(head + body)


class _Deadline:
    """Ends a connection that takes too long. ``matters``: whether somebody waited for us then."""

    __slots__ = ("_at", "_clock", "_sooner", "has_passed", "matters")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = clock.monotonic() + _ANSWER_S
        self._sooner = anyio.Event()
        self.has_passed = False
        # A handshake, and a request of which something has arrived, matter.
        self.matters = True

    def set(self, seconds: float, *, matters: bool) -> None:
        """Start a new time."""
        at = self._clock.monotonic() + seconds
        if at < self._at:
            self._sooner.set()
        self._at = at
        self.matters = matters

    async def watch(self, scope: anyio.CancelScope) -> None:
        while (left_s := self._at - self._clock.monotonic()) > 0.0:
            if await self._clock.wait(self._sooner, left_s):
                self._sooner = anyio.Event()
        self.has_passed = True
        scope.cancel()


# -- requests --------------------------------------------------------------------------------------


class _RequestParser:
    """The heads of a connection's requests, by llhttp; the methods ``on_...`` are its callbacks.

    Bodies are not wanted: a request that has one is answered after its head.
    """

    def __init__(self) -> None:
        self._parser = HttpRequestParser(self)
        self._heads: deque[_Head] = deque()
        self._refused: _RefusedError | None = None
        self._unparsed_bytes = 0
        self._target = b""
        self._headers: dict[bytes, bytes] = {}

    async def next(self, stream: ByteStream, deadline: _Deadline) -> _Head:
        """Return the head of the next request.

        Raises EndOfStream when none comes, _RefusedError for one that is no request.
        """
        while not self._heads:
            if self._refused is not None:
                raise self._refused
            data = await stream.receive(_CHUNK_BYTES)
            deadline.matters = True
            self._unparsed_bytes += len(data)
            try:
                self._parser.feed_data(data)
            except (HttpParserError, HttpParserUpgrade) as problem:
                self._refuse(400, f"this is not a request of HTTP/1.1: {problem}")
            if self._unparsed_bytes > _HEAD_BYTES:
                self._refuse(431, f"the head of a request may have {_HEAD_BYTES} bytes")
        return self._heads.popleft()

    def _refuse(self, code: int, words: str) -> None:
        self._refused = self._refused or _RefusedError(code, words)

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"host" and name in self._headers:
            self._refuse(400, "the Host header is given twice")
        before = self._headers.get(name)
        self._headers[name] = value if before is None else before + b"," + value

    def on_headers_complete(self) -> None:
        target, headers = self._target, self._headers
        self._target, self._headers = b"", {}
        self._unparsed_bytes = 0
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1") or not _TARGET.fullmatch(target):
            self._refuse(400, "this is not a request of HTTP/1.1")
        if version == "1.1" and b"host" not in headers:
            self._refuse(400, "the Host header is missing")
        if self._refused is None:
            length = headers.get(b"content-length", b"0")
            head = _Head(
                method=self._parser.get_method().decode(),
                target=target.decode(),
                accept=headers.get(b"accept", b"").decode("latin-1"),
                is_modern=version == "1.1",
                keep_alive=version == "1.1" and self._parser.should_keep_alive(),
                has_body=length != b"0" or b"transfer-encoding" in headers,
            )
            self._heads.append(head)

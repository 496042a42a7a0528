"""A tiny HTTP server that says exactly what a test wants it to say, byte by byte."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSListener

from lean_sandbox.kube.http1 import HttpConnection


@dataclass(frozen=True)
class Request:
    """One request as it came over the wire; ``connection`` counts the connections from 1."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        """The body as plain values."""
        return msgspec.json.decode(self.body)


@dataclass(frozen=True)
class Answer:
    """Pieces to send one by one; then go on, close, or (``hang``) stay silent for ever."""

    pieces: Sequence[bytes] = ()
    close: bool = False
    hang: bool = False


Script = Callable[[Request], Answer]


def reply(
    status: int = 200,
    body: bytes | dict[str, Any] = b"{}",
    headers: Mapping[str, str] | None = None,
    *,
    close: bool = False,
) -> Answer:
    """Return an ordinary answer."""
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = {"Content-Type": "application/json", "Content-Length": str(len(raw))} | dict(
        headers or {}
    )
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return Answer([f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + raw], close=close)


def chunked(pieces: Sequence[bytes], *, end: bool = True, close: bool = False) -> Answer:
    """Return a chunked answer, one chunk and one segment for each piece."""
    parts = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
    parts += [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    if end:
        parts.append(b"0\r\n\r\n")
    return Answer(parts, close=close, hang=not end and not close)


def in_turn(*answers: Answer) -> Script:
    """Return a script that gives these answers one after the other and then fails."""
    left = list(answers)

    def script(request: Request) -> Answer:
        if not left:
            raise AssertionError(f"unexpected {request.method} {request.target}")
        return left.pop(0)

    return script


@dataclass
class Server:
    """What a test sees of the running server."""

    url: str
    requests: list[Request] = field(default_factory=list)
    opened: int = 0
    _closed: set[int] = field(default_factory=set)
    _changed: anyio.Event = field(default_factory=anyio.Event)

    def note_closed(self, number: int) -> None:
        """Remember that the server closed a connection."""
        self._closed.add(number)
        self._notify()

    def note_request(self, request: Request) -> None:
        """Remember a request."""
        self.requests.append(request)
        self._notify()

    async def closed(self, number: int) -> None:
        """Wait until the server closed its end of that connection."""
        while number not in self._closed:
            await self._changed.wait()

    async def received(self, count: int) -> None:
        """Wait until so many requests came."""
        while len(self.requests) < count:
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


async def first_piece(stream: HttpConnection) -> bytes:
    """Return the first piece of a body, and read no further."""
    got: list[bytes] = []
    with anyio.CancelScope() as scope:

        def take(piece: bytes) -> None:
            got.append(piece)
            scope.cancel()

        await stream.feed(take)
    return got[0]


async def _read_request(stream: ByteStream, buffer: bytearray, number: int) -> Request | None:
    while b"\r\n\r\n" not in buffer:
        try:
            buffer += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return None
        if buffer.startswith(b"\x16"):  # A TLS greeting on a plain port: hang up.
            return None
    head, _, _ = bytes(buffer).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    method, target, version = first.split(" ")
    assert version == "HTTP/1.1"
    pairs = (line.split(": ", 1) for line in lines)
    headers = {name.lower(): value for name, value in pairs}
    size = len(head) + 4 + int(headers.get("content-length", "0"))
    while len(buffer) < size:
        buffer += await stream.receive()
    body = bytes(buffer[len(head) + 4 : size])
    del buffer[:size]
    return Request(method, target, headers, body, number)


@asynccontextmanager
async def serve(
    script: Script, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Server]:
    """Run a server for the body of the ``async with``."""
    listener: Any = await anyio.create_tcp_listener(local_host=host)
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 -- no SQL here
    shown = f"[{host}]" if ":" in host else host
    server = Server(f"{'https' if tls else 'http'}://{shown}:{port}")
    if tls is not None:
        listener = TLSListener(listener, tls, standard_compatible=False)

    async def handle(stream: ByteStream) -> None:
        server.opened += 1
        number = server.opened
        buffer = bytearray()
        async with stream:
            while (request := await _read_request(stream, buffer, number)) is not None:
                server.note_request(request)
                answer = script(request)
                for piece in answer.pieces:
                    await stream.send(piece)
                    await anyio.lowlevel.checkpoint()
                if answer.hang:
                    await anyio.sleep_forever()
                if answer.close:
                    break
        server.note_closed(number)

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handle)
        yield server
        group.cancel_scope.cancel()

"""An API server that says what a test tells it to say, when the test tells it, byte by byte.

Each request waits as an :class:`Exchange` until the test takes it with :meth:`Scripted.next` and
answers it, at once or line by line. A test that wants many requests answered alike gives a
``responder`` instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import SocketAttribute, SocketStream

from tests.support.patience import PATIENCE_S

__all__ = ["Exchange", "Scripted", "open_scripted", "until"]


async def until(holds: Callable[[], object]) -> None:
    """Let tasks and sockets run until ``holds()``; fails when patience ends."""
    with anyio.fail_after(PATIENCE_S):
        while not holds():
            await anyio.lowlevel.checkpoint()


class Exchange:
    """One request, and the means to answer it."""

    def __init__(self, stream: SocketStream, target: str, headers: Mapping[str, str]) -> None:
        """Hold what came over the wire."""
        split = urlsplit(target)
        self.path = split.path
        self.query = dict(parse_qsl(split.query, keep_blank_values=True))
        self.headers = headers
        self.is_done = anyio.Event()
        self.closes = False
        self._stream = stream

    @property
    def accept(self) -> str:
        """The representation asked for."""
        return self.headers.get("accept", "")

    @property
    def is_watch(self) -> bool:
        """Whether a stream of events is asked for."""
        return self.query.get("watch") == "1"

    async def reply(
        self, status: int = 200, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer at once and whole."""
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body or {})
        lines = {"Content-Type": "application/json", "Content-Length": str(len(raw))}
        lines.update(headers or {})
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        await self._stream.send(f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode() + raw)
        self.is_done.set()

    async def head(self, length: int) -> None:
        """Send the head of an answer of so many bytes, and none of them."""
        await self._stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)

    async def refuse(
        self, status: int, reason: str, message: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with a Status."""
        await self.reply(status, failure(status, reason, message), headers)

    async def begin(self) -> None:
        """Begin a stream of chunks."""
        await self._stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def raw(self, piece: bytes) -> None:
        """Send bytes as one chunk of the stream."""
        await self._stream.send(b"%x\r\n%s\r\n" % (len(piece), piece))

    async def line(self, event: Any) -> None:
        """Send one event of the stream."""
        await self.raw(msgspec.json.encode(event) + b"\n")

    async def lines(self, *events: Any) -> None:
        """Begin the stream and send these events."""
        await self.begin()
        for event in events:
            await self.line(event)

    async def end(self) -> None:
        """End the stream as a server does whose time is up."""
        await self._stream.send(b"0\r\n\r\n")
        self.is_done.set()

    def cut(self) -> None:
        """Break the connection off."""
        self.closes = True
        self.is_done.set()


def failure(code: int, reason: str, message: str = "") -> dict[str, Any]:
    """Return a ``v1.Status`` that tells of a failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message or reason,
        "reason": reason,
        "code": code,
    }


class Scripted:
    """What a test holds of the server."""

    def __init__(self, url: str, responder: Callable[[Exchange], Awaitable[None]] | None) -> None:
        """``responder`` answers every request by itself."""
        self.url = url
        self.exchanges: list[Exchange] = []
        self._responder = responder
        self._taken = 0

    @property
    def waiting(self) -> int:
        """Requests that nobody has taken yet."""
        return len(self.exchanges) - self._taken

    async def next(self, *, watch: bool | None = None) -> Exchange:
        """Return the next request, when it comes; ``watch`` says which kind it has to be."""
        await until(lambda: self.waiting)
        exchange = self.exchanges[self._taken]
        self._taken += 1
        assert watch is None or exchange.is_watch is watch, exchange.query
        return exchange

    async def handle(self, stream: SocketStream) -> None:
        """Serve one connection."""
        buffer = b""
        async with stream:
            while True:
                while b"\r\n\r\n" not in buffer:
                    try:
                        buffer += await stream.receive()
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        return
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                exchange = _exchange(stream, head.decode())
                self.exchanges.append(exchange)
                if self._responder is not None:
                    await self._responder(exchange)
                await exchange.is_done.wait()
                if exchange.closes:
                    return


def _exchange(stream: SocketStream, head: str) -> Exchange:
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    assert method == "GET", first
    pairs = (line.split(": ", 1) for line in lines)
    return Exchange(stream, target, {name.lower(): value for name, value in pairs})


@asynccontextmanager
async def open_scripted(
    responder: Callable[[Exchange], Awaitable[None]] | None = None,
) -> AsyncIterator[Scripted]:
    """Run a server for the body of the ``async with``."""
    listener: Any = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 -- no SQL here
    server = Scripted(f"http://127.0.0.1:{port}", responder)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, server.handle)
        yield server
        group.cancel_scope.cancel()

"""A listener for one test."""

from __future__ import annotations

import math
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
from anyio.abc import SocketStream

from lean_sandbox.http.server import Answer, Endpoint, Handler, Request, bind, text
from lean_sandbox.metrics.registry import Exposition
from tests.support.clock import FakeClock
from tests.support.patience import PATIENCE_S

FLAG = "--metrics-bind-address"
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
# Its body never comes.
SILENT = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"


async def echo(request: Request) -> Answer:
    """Answer with what was asked for."""
    return text(200, f"{request.path} {request.query}")


class Served:
    """A running endpoint."""

    def __init__(self, endpoint: Endpoint, clock: FakeClock, port: int) -> None:
        self.endpoint = endpoint
        self.clock = clock
        self.port = port

    async def connect(self) -> SocketStream:
        """Open a connection."""
        return await anyio.connect_tcp("127.0.0.1", self.port)

    async def say(self, data: bytes) -> bytes:
        """Send bytes on a connection of their own; return all that comes until its end."""
        async with await self.connect() as stream:
            await stream.send(data)
            return await rest_of(stream)

    def counted(self) -> dict[tuple[str, ...], float]:
        """Return the broken connections by cause."""
        found = Exposition()
        self.endpoint.collect(found)
        return {labels: value for _, series in found.families.values() for labels, value in series}  # type: ignore[misc]

    def idle(self) -> int:
        """Return how many connections wait for a request."""
        return sum(math.isfinite(each.waits_since) for each in self.endpoint.open)

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        with anyio.fail_after(PATIENCE_S):
            while not holds():
                await anyio.lowlevel.checkpoint()


async def rest_of(stream: SocketStream) -> bytes:
    """Return what comes until the peer closes."""
    parts = b""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                parts += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return parts


@asynccontextmanager
async def serve(handler: Handler = echo) -> AsyncIterator[Served]:
    """Serve on a free port."""
    clock = FakeClock()
    listening = bind(FLAG, "127.0.0.1:0")
    endpoint = Endpoint("metrics", handler, clock)
    async with anyio.create_task_group() as group:
        group.start_soon(endpoint.serve, listening)
        yield Served(endpoint, clock, listening.getsockname()[1])
        group.cancel_scope.cancel()


async def settle(served: Served) -> None:
    """Let the server read what was sent."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


def connect_at_once(served: Served, number: int, source: str = "127.0.0.1") -> list[socket.socket]:
    """Open connections while the server has no turn to accept them."""
    address = ("127.0.0.1", served.port)
    return [socket.create_connection(address, 10.0, (source, 0)) for _ in range(number)]


def close_all(crowd: list[socket.socket]) -> None:
    """Close connections."""
    for one in crowd:
        one.close()

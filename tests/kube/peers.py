# ruff: noqa: D102 -- the methods of the fakes are those of SocketStream and Auth.
"""A transport to a server that a test scripts, and peers and credentials that change under it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from lean_sandbox.kube.auth import Auth
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.sockets import SocketStream
from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.kube.transport import Transport
from tests.kube.server import Script, Server, serve


@asynccontextmanager
async def running(
    script: Script, **options: Any
) -> AsyncIterator[tuple[Server, Transport, list[RequestRecord]]]:
    """Run a server and a transport to it; ``base`` is appended to the URL."""
    records: list[RequestRecord] = []
    auth = options.pop("auth", None)
    base = options.pop("base", "")
    async with serve(script) as server:
        connection = Connection(server.url + base, **({"auth": auth} if auth else {}))
        transport = Transport(connection, **options)
        transport.observer = records.append
        yield server, transport, records
        await transport.aclose()


class Breakable(SocketStream):
    """A peer that answers each request, until sending to it fails."""

    def __init__(self) -> None:
        self.broken = False
        self.sent = 0

    async def send(self, data: bytes, fence: Callable[[], None] | None = None) -> None:
        await anyio.lowlevel.checkpoint()
        if self.broken:
            raise BrokenPipeError
        self.sent += 1

    async def follow(self, take: Callable[[bytes | OSError], bool]) -> None:
        await anyio.lowlevel.checkpoint()
        take(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def limit(self, seconds: float) -> None:
        pass

    def is_quiet(self) -> bool:
        return True

    def close(self) -> None:
        self.broken = True


class Turning(Auth):
    """A credential that has a newer one after each refusal."""

    def __init__(self, *tokens: str) -> None:
        super().__init__()
        self.tokens = list(tokens)

    async def authorization(self) -> str | None:
        return self.tokens[0]

    async def refresh(self, refused: str | None, /) -> bool:
        assert refused == self.tokens[0]
        if len(self.tokens) > 1:
            self.tokens.pop(0)
            return True
        return False


class Gated:
    """Connects when the gate is open."""

    def __init__(self, gate: anyio.Event) -> None:
        self.gate = gate

    async def connect(self, connection: Connection) -> SocketStream:
        await self.gate.wait()
        return Breakable()

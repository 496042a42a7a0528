"""A reflector between a scripted server and a list of deltas, on a clock moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import anyio
import msgspec

from filters import Change
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.transport import Transport
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Delta, Entry, Key, Kind
from lean_sandbox.watch.reflector import Reflector
from lean_sandbox.watch.resources.sandbox import SandboxEntry, sandbox_kind
from lean_sandbox.watch.versions import Known
from lean_sandbox.watch.writes import apply_response
from tests.support.clock import FakeClock, settle
from tests.support.scripted import Exchange, Scripted, open_scripted, until
from tests.watch.objects import page

__all__ = ["Rig", "open_rig", "open_sandboxes", "until"]

E = TypeVar("E", bound=Entry)


class Rig(Generic[E]):
    """The parts, and short words for what tests do with them."""

    def __init__(self, server: Scripted, client: Client, kind: Kind[E], clock: FakeClock) -> None:
        """Build the parts; nothing runs yet."""
        self.server = server
        self.client = client
        self.clock = clock
        self.kind = kind
        self.deltas: list[Delta[E]] = []
        self.cache: Cache[E] = Cache(kind)
        self.cache.handlers.append(self.deltas.append)
        self.reflectors: list[Reflector[E]] = []
        self._failures = 0

    @property
    def reflector(self) -> Reflector[E]:
        """The only reflector."""
        (only,) = self.reflectors
        return only

    def get(self, name: str, namespace: str = "ns") -> E:
        """Return what is remembered of an object; fails when there is nothing."""
        entry = self.cache.get(Key(namespace, name))
        assert entry is not None, f"{name} is not remembered"
        return entry

    def names(self) -> list[str]:
        """Return what is remembered, by name."""
        return sorted(key.name for key in self.cache.keys(None))

    def news(self) -> list[tuple[str, Change]]:
        """Return name and change of the deltas since the last call."""
        found = [(delta.key.name, delta.change) for delta in self.deltas]
        self.deltas.clear()
        return found

    def learn(self, obj: Any) -> tuple[E, Change]:
        """Take an object for the answer to a request of our own."""
        item = msgspec.json.decode(msgspec.json.encode(obj), type=self.kind.item_type)
        return apply_response(self.cache, item, known=Known())

    async def at(self, version: str | int) -> None:
        """Wait until the reflector has taken in everything up to this version."""
        await until(lambda: self.reflector._decoder.version == str(version))

    async def listed(self, *items: Any, version: int = 100) -> Exchange:
        """Answer the list and return the watch that follows."""
        exchange = await self.server.next(watch=False)
        await exchange.reply(200, page(items, version))
        return await self.server.next(watch=True)

    async def failing(self) -> str:
        """Wait until the reflector pauses after one more failure; return the problem."""
        await until(lambda: self.reflector.steps["failure"] > self._failures)
        self._failures = self.reflector.steps["failure"]
        await settle()
        assert self.reflector.problem is not None
        return self.reflector.problem


@asynccontextmanager
async def open_rig(
    kind: Kind[E],
    *,
    namespaces: tuple[str | None, ...] = (None,),
    responder: Callable[[Exchange], Awaitable[None]] | None = None,
    uniform: Callable[[], float] = lambda: 0.0,
    **options: Any,
) -> AsyncIterator[Rig[E]]:
    """Run the reflectors for the body of the ``async with``."""
    clock = FakeClock()
    async with open_scripted(responder) as server:
        transport = Transport(Connection(server=server.url), clock=clock)
        rig = Rig(server, Client(transport), kind, clock)
        for namespace in namespaces:
            rig.reflectors.append(
                Reflector(
                    rig.client,
                    rig.cache,
                    clock=clock,
                    uniform=uniform,
                    namespace=namespace,
                    **options,
                )
            )
        async with anyio.create_task_group() as group:
            for reflector in rig.reflectors:
                group.start_soon(reflector.run)
            yield rig
            group.cancel_scope.cancel()
        await transport.aclose()


@asynccontextmanager
async def open_sandboxes(**rest: Any) -> AsyncIterator[Rig[SandboxEntry]]:
    """Run a reflector of Sandboxes."""
    async with open_rig(sandbox_kind(), **rest) as rig:
        yield rig

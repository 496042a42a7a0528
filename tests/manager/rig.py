"""Electors over the wire against the embedded control plane, with clocks moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.events import EventRecorder
from lean_sandbox.kube.transport import Transport
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.request import AuditEntry
from lean_sandbox.manager.leaderelection import LIMITS, Elector
from lean_sandbox.manager.preflight import LEASE_NAME
from tests.support.clients import cluster_admin, connection_to
from tests.support.clock import EPOCH, FakeClock
from tests.support.names import LEASES
from tests.support.patience import patient, requests_under_way

__all__ = ["LEASES", "NS", "Contender", "Rig", "allow", "open_rig"]

Json = dict[str, Any]
NS = "election"
# How long the server, by its own clock, keeps a request that is held.
_HELD_S = 1.0


class Contender:
    """One of our electors, and what belongs to it."""

    def __init__(self, elector: Elector, clock: FakeClock, user: str) -> None:
        """Hold the parts."""
        self.elector = elector
        self.clock = clock
        self.user = user
        self.scope = anyio.CancelScope()
        self.is_done = False

    @property
    def leads(self) -> bool:
        """Whether it believes to lead."""
        return self.elector.is_leader

    async def run(self) -> None:
        """Contend until lost, released or killed."""
        with self.scope:
            await self.elector.run()
        self.is_done = True

    def kill(self) -> None:
        """End it as a crash does."""
        self.scope.cancel()


class Rig:
    """A control plane and electors; see the module docstring."""

    def __init__(
        self, plane: ControlPlane, server_clock: FakeClock, group: TaskGroup, stack: AsyncExitStack
    ) -> None:
        """Hold the parts."""
        self.plane = plane
        self.server_clock = server_clock
        self.clock = FakeClock()
        self.contenders: list[Contender] = []
        #: Requests that the server holds back, and nobody shall wait for.
        self.held = 0
        self._group = group
        self._stack = stack
        self._transports: list[Transport] = []

    def client(self, user: str, clock: FakeClock | None = None) -> Client:
        """Return a client of a user."""
        connection = connection_to(self.plane, user)
        transport = Transport(connection, clock=clock or self.clock, limits=LIMITS)
        self._transports.append(transport)
        self._stack.push_async_callback(transport.aclose)
        return Client(transport)

    def contend(
        self,
        name: str,
        *,
        user: str | None = None,
        clock: FakeClock | None = None,
        uniform: Callable[[], float] = lambda: 0.0,
        with_events: bool = False,
    ) -> Contender:
        """Start an elector; without ``user`` it may do everything."""
        clock = clock or self.clock
        user = user or f"system:serviceaccount:{NS}:{name}"
        client = self.client(user, clock)
        recorder = EventRecorder(client, clock, "tests", name) if with_events else None
        elector = Elector(
            client, namespace=NS, identity=name, clock=clock, uniform=uniform, recorder=recorder
        )
        contender = Contender(elector, clock, user)
        self.contenders.append(contender)
        self._group.start_soon(contender.run)
        return contender

    async def begin(self, name: str, **more: Any) -> Contender:
        """Start an elector as :meth:`contend` does, and let its first requests be answered."""
        contender = self.contend(name, **more)
        await self.settle()
        return contender

    def hold(self, verb: str) -> None:
        """Let the server keep the next request of a verb on the Lease until :meth:`let_go`."""
        self.plane.delay(verb, "leases", _HELD_S)
        self.held = 1

    async def let_go(self) -> None:
        """Let the server answer what it holds back."""
        self.held = 0
        await self.server_clock.advance(_HELD_S)
        await self.settle()

    # -- time and rest ---------------------------------------------------------------------------

    async def settle(self) -> None:
        """Wait until every request was answered that the server does not hold back."""
        with patient("came to rest", lambda: "\n  ".join(requests_under_way(self.plane))):
            quiet = 0
            while quiet < 20:
                await anyio.lowlevel.checkpoint()
                flying = sum(one._limiter.slots.in_use for one in self._transports)
                quiet = quiet + 1 if flying <= self.held else 0

    async def advance(self, seconds: float) -> None:
        """Move the clock, letting requests be answered wherever a timer rings."""
        await self.settle()
        until_s = self.clock.monotonic() + seconds
        while (left_s := until_s - self.clock.monotonic()) > 0.0:
            next_s = self.clock.next_s
            await self.clock.advance(left_s if next_s is None else min(left_s, next_s))
            await self.settle()
            assert sum(one.leads for one in self.contenders) <= 1

    async def until(self, holds: Callable[[], object], within_s: float) -> float:
        """Advance in small steps until something holds; return how long that took."""
        began = self.clock.monotonic()
        await self.settle()
        while not holds():
            assert self.clock.monotonic() - began <= within_s + 1e-6
            await self.advance(0.1)
        return self.clock.monotonic() - began

    # -- the Lease -------------------------------------------------------------------------------

    def lease(self) -> Json | None:
        """Return the Lease, ``None`` without one."""
        return self.plane.store.find(LEASES, NS, LEASE_NAME)

    @property
    def spec(self) -> Json:
        """What the Lease says; fails without one."""
        lease = self.lease()
        assert lease is not None
        spec: Json = lease["spec"]
        return spec

    def edit(self, **spec: Any) -> None:
        """Change the Lease as an administrator does."""
        self.plane.store.patch(LEASES, NS, LEASE_NAME, {"spec": spec})

    def put(self, **spec: Any) -> None:
        """Make the Lease as somebody else has left it."""
        metadata = {"name": LEASE_NAME, "namespace": NS}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        self.plane.store.create({**body, "spec": spec})

    def requests(self, contender: Contender) -> list[AuditEntry]:
        """Return what a contender has asked of the server."""
        return self.plane.audit.select(user=contender.user)

    def asked(self, contender: Contender) -> dict[str, int]:
        """Return the same as counts of ``verb resource``."""
        return dict(self.plane.audit.counts(contender.user))


@asynccontextmanager
async def open_rig(*, allowed: bool = True) -> AsyncIterator[Rig]:
    """Start a control plane whose electors may do everything, or nothing before :func:`allow`."""
    async with AsyncExitStack() as stack:
        # Its clock stands still unless a test moves it, so that what is held back stays so.
        server_clock = FakeClock(EPOCH)
        plane = ControlPlane(LocalSettings(), clock=server_clock)
        await stack.enter_async_context(plane)
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
        if allowed:
            allow(plane)
        async with anyio.create_task_group() as group, AsyncExitStack() as inner:
            yield Rig(plane, server_clock, group, inner)
            group.cancel_scope.cancel()


def allow(plane: ControlPlane) -> None:
    """Let the electors do everything."""
    plane.store.create(cluster_admin(group=f"system:serviceaccounts:{NS}"))

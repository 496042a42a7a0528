"""Replicas of the whole controller over one control plane and one clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from lean_sandbox.config.options import Settings
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.events import EventRecorder
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.request import AuditEntry
from lean_sandbox.manager.leaderelection import Elector
from lean_sandbox.manager.preflight import LEASE_NAME, lease_of, scope_of
from tests.support.clients import cluster_admin, connected, connection_to
from tests.support.clock import FakeClock
from tests.support.names import LEASES
from tests.support.observable import ObservedManager
from tests.support.world import NS, World

__all__ = ["ELECTION_NS", "LEASES", "Replica", "Replicas", "open_replicas", "replicas_of"]

Json = dict[str, Any]
ELECTION_NS = "agent-sandbox-system"
_READS = ("get", "list", "watch")
_BOOKMARK_S = 60.0


class Replica:
    """One process: its controller, its elector, and a world's view of them."""

    def __init__(self, world: World, elector: Elector, user: str) -> None:
        """Hold the parts."""
        self.world = world
        self.controller = world.controller
        self.elector = elector
        self.user = user
        self.scope = anyio.CancelScope()
        self.has_ended = False

    async def run(self) -> None:
        """Run the controller until it was stopped, lost the Lease, or was killed."""
        with self.scope:
            await self.controller.run()
        self.has_ended = True

    def writes(self) -> list[AuditEntry]:
        """Return what it has written, but for the Lease and Events."""
        return [
            entry
            for entry in self.world.plane.audit.select(user=self.user)
            if entry.verb not in _READS and entry.resource not in ("leases", "events")
        ]

    def asked(self) -> Counter[str]:
        """Return its requests as ``verb resource``, without watches."""
        return self.world.plane.audit.counts(self.user)


class Replicas:
    """The replicas, and what they share."""

    def __init__(
        self, plane: ControlPlane, clock: FakeClock, stack: AsyncExitStack, group: TaskGroup
    ) -> None:
        """Hold the parts; ``stack`` closes the connections, ``group`` is what replicas run in."""
        self.plane = plane
        self.clock = clock
        self.all: list[Replica] = []
        self._stack = stack
        self._group = group

    async def build(
        self, name: str, settings: Settings | None = None, *, elects: bool = True
    ) -> Replica:
        """Build a replica, by mistake without an election; nothing is asked before it runs."""
        user = f"system:serviceaccount:{ELECTION_NS}:{name}"
        client = await self._client(user)
        own = await self._client(user)
        own.transport.counted = client.transport.counted
        given = settings or Settings(sandbox_status_window=1.0)
        elector = Elector(
            own,
            namespace=ELECTION_NS,
            identity=name,
            clock=self.clock,
            uniform=lambda: 0.0,
            recorder=EventRecorder(own, self.clock, "tests", name),
            lease=lease_of(given),
            scope=scope_of(given),
        )
        controller = ObservedManager(
            client,
            given,
            clock=self.clock,
            uniform=lambda: 0.5,
            elector=elector if elects else None,
        )
        admin = await self._client("admin")
        world = World(self.plane, controller, self.clock, admin, user)
        replica = Replica(world, elector, user)
        self.all.append(replica)
        return replica

    def start(self, one: Replica) -> None:
        """Let a replica run."""
        self._group.start_soon(one.run)

    async def _client(self, user: str) -> Client:
        opened = connected(connection_to(self.plane, user), clock=self.clock)
        return await self._stack.enter_async_context(opened)

    def asks(self, what: str) -> bool:
        """Tell whether the server is answering such a request at present."""
        return any(entry.what == what for entry in self.plane.pending)

    @property
    def alive(self) -> list[Replica]:
        """Those that have not ended."""
        return [one for one in self.all if not one.has_ended]

    @property
    def leader(self) -> Replica:
        """The one that leads; fails when there is none, or two."""
        (leader,) = (one for one in self.all if one.elector.is_leader)
        return leader

    @property
    def lease(self) -> Json:
        """What the Lease says."""
        spec: Json = self.plane.store.get(LEASES, ELECTION_NS, LEASE_NAME)["spec"]
        return spec

    async def settle(self) -> None:
        """Wait until all that run have seen everything and are idle."""
        for one in self.alive:
            if one.controller.synced.is_set():
                await one.world.settle()

    async def advance(self, seconds: float) -> None:
        """Move the clock, settling wherever a timer rings."""
        await self.settle()
        until_s = self.clock.monotonic() + seconds
        while (left_s := until_s - self.clock.monotonic()) > 0.0:
            next_s = self.clock.next_s
            await self.clock.advance(min(left_s, _BOOKMARK_S, left_s if next_s is None else next_s))
            await self.settle()
            leases = [one.elector.lease for one in self.all if one.elector.is_leader]
            assert len(leases) == len(set(leases))


@asynccontextmanager
async def open_replicas(
    *names: str,
    settings: Settings | None = None,
    local: LocalSettings | None = None,
    unelected: tuple[str, ...] = (),
) -> AsyncIterator[Replicas]:
    """Start replicas one after the other; the first leads, beside those that elect nobody."""
    async with (
        ControlPlane(local or LocalSettings(), clock=FakeClock()) as plane,
        replicas_of(plane, FakeClock()) as replicas,
    ):
        for name in (*names, *unelected):
            one = await replicas.build(name, settings, elects=name in names)
            replicas.start(one)
            await one.world.until(one.controller.synced.is_set)
            await replicas.settle()
        yield replicas


@asynccontextmanager
async def replicas_of(plane: ControlPlane, clock: FakeClock) -> AsyncIterator[Replicas]:
    """Let replicas run on a control plane, none of them yet."""
    for name in (NS, ELECTION_NS):
        metadata = {"name": name}
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    plane.store.create(cluster_admin(group=f"system:serviceaccounts:{ELECTION_NS}"))
    async with AsyncExitStack() as stack, anyio.create_task_group() as group:
        yield Replicas(plane, clock, stack, group)
        group.cancel_scope.cancel()

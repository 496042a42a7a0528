"""A control plane, and somebody who looks whether a controller works in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lean_sandbox.kube.client import Client
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.manager.preflight import HOME, another_controller
from tests.support.clients import connected, connection_to
from tests.support.clock import FakeClock
from tests.support.world import NS


class Cluster:
    """A control plane, a look at it, and what was asked for that."""

    def __init__(self, plane: ControlPlane, client: Client, clock: FakeClock) -> None:
        """Hold the parts."""
        self.plane = plane
        self.client = client
        self.clock = clock

    async def look(self, namespace: str = "") -> str:
        """Look, and return the refusal in words; "" for none."""
        self.plane.audit.reset()
        return str(await another_controller(self.client, self.clock, namespace=namespace) or "")

    def asked(self) -> dict[str, int]:
        """Return what the last look asked for."""
        return dict(self.plane.audit.counts())


@asynccontextmanager
async def cluster(user: str = "admin") -> AsyncIterator[Cluster]:
    """Run a control plane with the namespace of the controller."""
    clock = FakeClock()
    async with ControlPlane(clock=clock) as plane:
        for name in (HOME, NS):
            metadata = {"name": name}
            plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        async with connected(connection_to(plane, user), clock=clock) as client:
            yield Cluster(plane, client, clock)

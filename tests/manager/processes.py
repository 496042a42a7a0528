"""The controller as a process, and what it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.manager.preflight import LEASE_NAME
from tests.support.names import LEASES
from tests.support.patience import patient
from tests.support.process import controller_process

NS = "default"


class Running:
    """A cluster, and processes that work in it."""

    def __init__(self, plane: ControlPlane, kubeconfig: Path) -> None:
        """Hold both."""
        self.plane = plane
        self.kubeconfig = kubeconfig

    def process(self, *flags: str) -> AbstractAsyncContextManager[Process]:
        """Run a controller; what is left of it at the end is killed."""
        election = ("--leader-elect=true", f"--leader-election-namespace={NS}")
        return controller_process(self.kubeconfig, *election, *flags)

    @property
    def holder(self) -> str:
        """Who holds the Lease; "" for nobody."""
        lease = self.plane.store.find(LEASES, NS, LEASE_NAME)
        return lease["spec"]["holderIdentity"] if lease is not None else ""

    async def until(self, holds: Callable[[], object]) -> None:
        """Give processes time until something holds."""
        with patient("got there", self.explain):
            while not holds():  # noqa: ASYNC110 -- what happens in another process sets no event
                await anyio.sleep(0.01)

    def explain(self) -> str:
        """Return who holds the Lease, and what was asked last."""
        asked = [f"{entry.code} {entry.what}" for entry in self.plane.audit.entries[-5:]]
        return "\n  ".join(
            [f"{self.holder or 'nobody'} holds the Lease; the last requests:", *asked]
        )

    def looks(self) -> int:
        """How often somebody has read the Lease."""
        return len(self.plane.audit.select(verb="get", resource="leases"))


@asynccontextmanager
async def cluster(folder: Path, user: str = "admin") -> AsyncIterator[Running]:
    """Run a control plane for processes of this user, by the clock on the wall."""
    async with ControlPlane(LocalSettings()) as plane:
        yield Running(plane, plane.kubeconfig(folder / "kubeconfig", user))

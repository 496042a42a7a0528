"""Registers the simulated Nodes and keeps them alive."""

from __future__ import annotations

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import AlreadyExists, ControlPlaneError
from lean_sandbox.kube.resources import NODES
from lean_sandbox.local.kubelet_settings import KubeletSettings
from lean_sandbox.local.nodes import node_object, node_status
from lean_sandbox.local.podview import NodeView

_RETRY_S = 0.5


class NodeKeeper:
    """Creates Node objects and, where wanted, renews their conditions."""

    def __init__(self, client: Client, settings: KubeletSettings, clock: Clock) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._since = clock.now()
        self.errors = 0

    async def register(self) -> None:
        """Create the Nodes that are missing, trying again until each one is there and Ready."""
        for name in self._settings.node_names():
            while not await self._register(name):
                await self._clock.sleep(_RETRY_S)

    async def beat(self) -> None:
        """Renew the Nodes' conditions every ``node_heartbeat_s`` seconds until cancelled."""
        while True:
            await self._clock.sleep(self._settings.node_heartbeat_s)
            for name in self._settings.node_names():
                try:
                    await self._write_status(name)
                except ControlPlaneError:
                    self.errors += 1

    async def _register(self, name: str) -> bool:
        settings, now = self._settings, self._clock.now()
        try:
            node = await self._client.create(
                NODES,
                None,
                node_object(name, settings, now),
                NodeView,
                timeout_s=settings.request_timeout_s,
            )
            if not node.is_ready:
                # This server takes a status only through its subresource.
                await self._write_status(name)
        except AlreadyExists:
            return await self._revive(name)
        except ControlPlaneError:
            self.errors += 1
            return False
        return True

    async def _revive(self, name: str) -> bool:
        try:
            await self._write_status(name)
        except ControlPlaneError:
            self.errors += 1
            return False
        return True

    async def _write_status(self, name: str) -> None:
        status = node_status(name, self._settings, self._clock.now(), self._since)
        await self._client.patch(
            NODES,
            None,
            name,
            {"status": status},
            bytes,
            subresource="status",
            timeout_s=self._settings.request_timeout_s,
        )

"""The cluster of the embedded control plane, in a thread of its own."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from lean_sandbox.clock import SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kubelet.kubelet import Kubelet
from tests.client.cluster import CONTROLLER, Cluster, Room
from tests.controlplane.scene import SWIFT
from tests.support.clients import cluster_admin, connected, connection_to, controlling
from tests.support.observable import Observable

__all__ = ["open_embedded", "with_nodes"]

Json = dict[str, Any]


class _Embedded(Cluster):
    """Everything but the clients goes past HTTP, in the thread of the cluster."""

    def __init__(self, plane: ControlPlane, portal: BlockingPortal, kubeconfig: Path) -> None:
        super().__init__(kubeconfig)
        self._plane = plane
        self._portal = portal
        self._rooms = itertools.count(1)

    def create(self, obj: Mapping[str, Any]) -> Json:
        return self._portal.call(self._plane.store.create, obj)

    def find(self, resource: str, namespace: str, name: str) -> Json | None:
        return self._portal.call(self._plane.store.find, resource, namespace, name)

    def all(self, resource: str, namespace: str) -> list[Json]:
        return self._portal.call(self._plane.store.list, resource, namespace)

    def asked(self, user: str, namespace: str) -> list[str]:
        entries = self._portal.call(self._select, user, namespace)
        return [f"{entry.verb} {entry.resource}" for entry in entries]

    def _select(self, user: str, namespace: str) -> list[Any]:
        return list(self._plane.audit.select(user=user, namespace=namespace))

    def serve(self, definition: Mapping[str, Any]) -> None:
        self.create(definition)

    def room(self) -> Room:
        name = f"room-{next(self._rooms)}"
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return Room(self, name)


@contextmanager
def open_embedded(folder: Path) -> Iterator[Cluster]:
    """Run server, kubelet and controller; the user's kubeconfig is kept in ``folder``."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_running(folder)) as plane,
    ):
        yield _Embedded(plane, portal, folder / "admin")


@asynccontextmanager
async def _running(folder: Path) -> AsyncIterator[ControlPlane]:
    async with ControlPlane() as plane, with_nodes(plane) as controller:
        plane.kubeconfig(folder / "admin")
        async with controller() as running:
            yield plane
            caught = running.activity().caught
            assert not any(caught.values()), f"clients waited for the safety net: {caught}"


@asynccontextmanager
async def with_nodes(
    plane: ControlPlane,
) -> AsyncIterator[Callable[[], AbstractAsyncContextManager[Observable]]]:
    """Run the kubelet, and give what runs the controller, again and again."""
    clock = SystemClock()
    plane.store.create(cluster_admin(CONTROLLER, "kubelet"))
    async with (
        connected(connection_to(plane, CONTROLLER)) as client,
        connected(connection_to(plane, "kubelet")) as nodes,
        anyio.create_task_group() as group,
    ):
        kubelet = Kubelet(nodes, SWIFT, clock=clock, chance=random.Random(1))  # noqa: S311
        await group.start(kubelet.run)
        yield lambda: controlling(client, Settings(extensions=True), clock=clock)
        group.cancel_scope.cancel()

"""Clients and controllers in the process of a test: connected, run, and closed again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.kube.auth import Auth
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection, tls_context
from lean_sandbox.kube.transport import Transport
from lean_sandbox.local.controlplane import ControlPlane
from tests.support.observable import Observable, ObservedManager
from tests.support.patience import PATIENCE_S

__all__ = ["cluster_admin", "connected", "connection_to", "controlling"]

_RBAC = "rbac.authorization.k8s.io"


def connection_to(plane: ControlPlane, user: str = "admin") -> Connection:
    """Return what a kubeconfig for a user says, without the file."""
    trusted = None if plane.ca_pem is None else tls_context(data=plane.ca_pem.decode())
    return Connection(plane.url, trusted, Auth(f"Bearer {plane.create_token(user)}"))


@asynccontextmanager
async def connected(
    connection: Connection,
    *,
    timeout_s: float = PATIENCE_S,
    client_type: type[Client] = Client,
    **options: Any,
) -> AsyncIterator[Client]:
    """Give a client and close its connections at the end; ``options`` are those of a transport."""
    transport = Transport(connection, **options)
    try:
        yield client_type(transport, timeout_s=timeout_s)
    finally:
        with anyio.CancelScope(shield=True):
            await transport.aclose()


@asynccontextmanager
async def controlling(
    client: Client, settings: Settings, *, clock: Clock
) -> AsyncIterator[Observable]:
    """Run a controller by a clock that runs, and give it once its caches are in sync."""
    controller: Observable = ObservedManager(client, settings, clock=clock)
    async with anyio.create_task_group() as group:
        await group.start(controller.run)
        with anyio.move_on_after(PATIENCE_S):
            await controller.synced.wait()
        assert controller.synced.is_set(), f"{controller.not_ready}: {controller.problems}"
        yield controller
        group.cancel_scope.cancel()


def cluster_admin(*users: str, name: str = "controller", group: str = "") -> dict[str, Any]:
    """Return a binding that lets users, or a group, do everything."""
    subjects = [{"kind": "User", "apiGroup": _RBAC, "name": user} for user in users]
    if group:
        subjects.append({"kind": "Group", "apiGroup": _RBAC, "name": group})
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": subjects,
    }

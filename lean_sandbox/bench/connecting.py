"""Clients of the bench's own processes: same transport as the controller's, names of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.config import load
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.limits import Limits
from lean_sandbox.kube.transport import Transport


@asynccontextmanager
async def open_client(
    kubeconfig: str, context: str, clock: Clock, *, agent: str, in_flight: int
) -> AsyncIterator[Client]:
    """Open a client with ``in_flight`` connections that calls itself ``agent``.

    The audit log must not take it for the controller. Raises ConfigError.
    """
    connection = load(kubeconfig or None, context or None, clock=clock)
    async with connected(connection, clock, agent=agent, in_flight=in_flight) as client:
        yield client


@asynccontextmanager
async def connected(
    connection: Connection, clock: Clock, *, agent: str, in_flight: int = 1
) -> AsyncIterator[Client]:
    """Open a client as :func:`open_client` does, with what was read before."""
    transport = Transport(
        connection,
        clock=clock,
        limits=Limits(max_in_flight=in_flight, reserved_for_client=0),
        user_agent=agent,
    )
    try:
        yield Client(transport, timeout_s=60.0, field_manager=agent)
    finally:
        await transport.aclose()


def flags(kubeconfig: str, context: str) -> list[str]:
    """Return the controller's flags for the same server."""
    found = ["--kubeconfig", kubeconfig] if kubeconfig else []
    return [*found, "--context", context] if context else found

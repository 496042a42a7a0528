"""An API server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lean_sandbox.local.controlplane import ControlPlane
from tests.local.kubelet.wire import World
from tests.support.clients import connected, connection_to


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Run an API server."""
    async with ControlPlane(crds=[]) as plane, connected(connection_to(plane)) as client:
        yield World(plane, client)

"""One embedded server for each module, and a namespace for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from lean_sandbox.local.controlplane import ControlPlane
from tests.conformance.api import Api, Room, open_room
from tests.conformance.objects import WIDGET_DEFINITION


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    """Give the embedded server."""
    async with ControlPlane(crds=[WIDGET_DEFINITION]) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    """Give its API, as an administrator."""
    async with Api(plane.url, plane.create_token()) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def room(api: Api) -> AsyncIterator[Room]:
    """Give a namespace of this test's own."""
    async with open_room(api) as made:
        yield made

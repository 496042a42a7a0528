"""The running controller for a module, a namespace for each test."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from lean_sandbox.config.options import Settings
from tests.conformance.api import open_room
from tests.controlplane.scene import Scene, open_scene
from tests.controlplane.server import RealServer

_LAUNCH_S = 20.0


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(
    real_server: RealServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    """Give the running controller."""
    folder = tmp_path_factory.mktemp("scene")
    # However slow the machine is, a launch is told in one status: what it costs is the same.
    settings = Settings(extensions=True, sandbox_status_window=_LAUNCH_S)
    opened: asyncio.Future[Scene] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def run() -> None:
        async with open_scene(real_server, folder, settings) as scene:
            opened.set_result(scene)
            await over.wait()

    # A task group has to end in the task in which it began; a fixture's two halves are two tasks.
    running = asyncio.create_task(run())
    either: set[asyncio.Future[Any]] = {running, opened}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        await running
    yield await opened
    over.set()
    await running


@pytest_asyncio.fixture(loop_scope="module")
async def scene(stage: Scene) -> AsyncIterator[Scene]:
    """Give it with a namespace of this test's own."""
    async with open_room(stage.room.api) as room:
        made = dataclasses.replace(stage, room=room)
        made.begin()
        yield made

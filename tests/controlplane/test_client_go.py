"""Controllers in Go can work with the embedded server as with kube-apiserver."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.conformance.api import open_room
from tests.conformance.kinds import samples
from tests.conformance.servers import Embedded, Real, Server
from tests.controlplane.binaries import go_client
from tests.controlplane.plugin import REAL
from tests.controlplane.server import RealServer

pytestmark = REAL
_TASKS_BESIDE_KINDS = 12


@pytest_asyncio.fixture(params=["embedded", "kube-apiserver"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """Give either server, with TLS, without which client-go sends no token."""
    if request.param == "kube-apiserver":
        real: RealServer = request.getfixturevalue("real_server")
        yield Real(real)
        return
    async with ControlPlane(LocalSettings(tls=True), crds=[]) as plane:
        yield Embedded(plane)


async def test_client_go_can_do_what_controllers_do(server: Server, tmp_path: Path) -> None:
    """Typed clients of all kinds, informers, leader election, apply, status and subresources."""
    program = await asyncio.to_thread(go_client, os.environ)
    kubeconfig = server.kubeconfig(tmp_path / "config")
    async with server.api() as api, open_room(api) as room:
        tasks = [
            {
                "name": sample.kind.qualified_plural,
                "path": sample.path(room.name),
                "hasStatus": sample.kind.has_status,
                "object": sample.body(f"{room.name}-go", room.name),
            }
            for sample in samples()
        ]
        running = await asyncio.create_subprocess_exec(
            program, kubeconfig, room.name, stdin=PIPE, stdout=PIPE
        )
        said, _ = await running.communicate(json.dumps(tasks).encode())
    lines = said.decode().splitlines()
    assert [line for line in lines if not line.endswith(": ok")] == []
    assert len(lines) == len(tasks) + _TASKS_BESIDE_KINDS

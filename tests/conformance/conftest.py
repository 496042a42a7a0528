"""The servers that the laws are asked of, and a namespace for each test.

The embedded server always; kube-apiserver under ``-m controlplane``. Where the two differ, the
embedded one is wrong.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.conformance.api import Api, Room, open_room
from tests.conformance.objects import WIDGET_DEFINITION
from tests.conformance.servers import Embedded, Real, Server
from tests.controlplane.binaries import KUBERNETES
from tests.controlplane.plugin import REAL
from tests.controlplane.server import RealServer
from tests.model.crds.definitions import definitions

_EMBEDDED = "embedded"
_REAL = "kube-apiserver"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say of how many laws the real server was asked, and how many it does not keep."""

    def count(outcome: str) -> int:
        reports = terminalreporter.stats.get(outcome, [])
        return sum(
            "tests/conformance/" in report.nodeid and _REAL in report.nodeid for report in reports
        )

    kept = count("passed")
    broken = count("failed") + count("error")
    if kept or broken:
        terminalreporter.write_line(
            f"conformance: {kept + broken} laws asked of kube-apiserver {KUBERNETES},"
            f" {broken} differences"
        )


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=[_EMBEDDED, pytest.param(_REAL, marks=REAL)],
)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """Give a server with our definitions and that of the Widgets; over TLS where a module says."""
    if request.param == _REAL:
        real: RealServer = request.getfixturevalue("real_server")
        yield Real(real)
        return
    served = [*definitions().values(), WIDGET_DEFINITION]
    settings = LocalSettings(tls=getattr(request.module, "TLS", False), sharded_lists=True)
    async with ControlPlane(settings, crds=served) as plane:
        yield Embedded(plane)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def api(server: Server) -> AsyncIterator[Api]:
    """Give the server's API, as an administrator."""
    async with server.api() as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def room(api: Api) -> AsyncIterator[Room]:
    """Give a namespace of this test's own."""
    async with open_room(api) as made:
        yield made

"""The marker ``controlplane``: which runs ask a real control plane, and the one they ask.

``pytest -m controlplane`` runs the tests that need it, any other run leaves them out and says how
many. Programs that are missing end the run before its first test: nothing is skipped.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lean_sandbox.local.crds.definitions import definitions
from tests.conformance.api import WIDGET_DEFINITION
from tests.controlplane.binaries import MissingProgramsError, Programs, provide
from tests.controlplane.server import RealServer, started

MARKER = "controlplane"
# Nothing here takes long; the first test pays for the start, and the machine may be busy.
LIMIT_S = 120.0
REAL = [pytest.mark.controlplane, pytest.mark.timeout(LIMIT_S)]
"""The marks of a test, or of a parameter, that needs the real control plane."""

_left_out = pytest.StashKey[int]()
_programs = pytest.StashKey[Programs]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a real control plane unless the run asks for it by the marker."""
    if MARKER in (config.getoption("markexpr") or ""):
        return
    kept = [item for item in items if item.get_closest_marker(MARKER) is None]
    config.stash[_left_out] = len(items) - len(kept)
    items[:] = kept


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say what was left out."""
    count = config.stash.get(_left_out, 0)
    command = "python -m pytest -m controlplane"
    return [f"left out {count} tests on a real control plane: {command}"] if count else []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get the programs before the first test, whose time limit is not made for compiling."""
    config = session.config
    needed = any(item.get_closest_marker(MARKER) for item in session.items)
    if not needed or config.getoption("collectonly"):
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    say = reporter.write_line if reporter is not None else print
    try:
        config.stash[_programs] = provide(os.environ, say)
    except (MissingProgramsError, subprocess.SubprocessError) as problem:
        raise pytest.UsageError(str(problem)) from None


@pytest.fixture(scope="session")
def real_server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    """Give the real control plane of this run, with our definitions and that of the Widgets."""
    programs = request.config.stash[_programs]
    served = [*definitions().values(), WIDGET_DEFINITION]
    # Gone afterwards, other than pytest's own folders: it holds a whole database.
    with (
        TemporaryDirectory(prefix="lean-sandbox-") as folder,
        started(programs, Path(folder), served) as server,
    ):
        yield server

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
from typing import Any

import pytest

from tests.conformance.objects import WIDGET_DEFINITION
from tests.controlplane.binaries import MissingProgramsError, Programs, provide
from tests.controlplane.server import RealServer, started
from tests.model.crds.definitions import definitions

MARKER = "controlplane"
REAL = pytest.mark.controlplane
"""The marks of a test, or of a parameter, that needs the real control plane."""

_LEFT_OUT = "left_out"
_left_out = pytest.StashKey[int]()
_programs = pytest.StashKey[Programs]()


def pytest_configure(config: pytest.Config) -> None:
    """Get the programs before several workers start a control plane each."""
    if _is_asked_for(config) and config.getoption("numprocesses", default=None):
        _provide(config)


def _is_asked_for(config: pytest.Config) -> bool:
    return MARKER in (config.getoption("markexpr") or "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a real control plane unless the run asks for it by the marker."""
    if _is_asked_for(config):
        return
    kept = [item for item in items if item.get_closest_marker(MARKER) is None]
    config.stash[_left_out] = len(items) - len(kept)
    if (output := getattr(config, "workeroutput", None)) is not None:
        output[_LEFT_OUT] = config.stash[_left_out]
    items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker has counted; each of them collects all tests."""
    node.config.stash[_left_out] = getattr(node, "workeroutput", {}).get(_LEFT_OUT, 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out."""
    if count := terminalreporter.config.stash.get(_left_out, 0):
        command = "python -m pytest -m controlplane"
        terminalreporter.write_line(f"left out {count} tests on a real control plane: {command}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get the programs before the first test, whose time limit is not made for compiling."""
    config = session.config
    needed = any(item.get_closest_marker(MARKER) for item in session.items)
    if not needed or config.getoption("collectonly"):
        return
    config.stash[_programs] = _provide(config)


def _provide(config: pytest.Config) -> Programs:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    say = reporter.write_line if reporter is not None else print
    try:
        return provide(os.environ, say)
    except (MissingProgramsError, subprocess.SubprocessError) as problem:
        raise pytest.UsageError(str(problem)) from None


@pytest.fixture(scope="session")
def real_server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    """Give the control plane of the run or worker, with our definitions and that of the Widgets."""
    programs = request.config.stash[_programs]
    served = [*definitions().values(), WIDGET_DEFINITION]
    # Gone afterwards, other than pytest's own folders: it holds a whole database.
    with (
        TemporaryDirectory(prefix="lean-sandbox-") as folder,
        started(programs, Path(folder), served) as server,
    ):
        yield server

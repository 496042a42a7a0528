"""How a run with `-n` divides the tests: whole files, and those that start processes by turns.

A file stays whole because its tests may share an event loop. Tests that start processes of the
program wait in real time and would slow each other down: one worker runs all of them, from the
beginning, the others meanwhile have the machine. It mostly waits, so `-n auto` is one worker more
than there are cores.

Each worker imports every test file. They begin at different ones, so that each compiles its share
of them, and finds the others compiled.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.tiers import left_out

PROCESSES = (
    "tests/bench/test_scenarios.py",
    "tests/client",
    "tests/demo",
    "tests/docs",
    "tests/footprint",
    "tests/manager/test_process.py",
    "tests/manager/test_rolling_upgrade.py",
    "tests/manager/test_process_surroundings.py",
    "tests/http/test_process.py",
    "tests/manager/test_start.py",
)
"""Files, and folders of files, whose tests take turns."""
DIVIDED = ("tests/faults/test_stories.py", "tests/manager/test_relays.py")
"""Those whose tests are long and share nothing."""
LONG = (
    *DIVIDED,
    "tests/budgets/test_overload.py",
    "tests/controlplane/test_failures.py",
    "tests/controlplane/test_flows.py",
    "tests/controlplane/test_crash_and_restore.py",
)
"""Files of few tests that take long."""
_TURNS = "processes"


class _WholeFiles(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out the tests of a file together, and those that take turns to one worker.

    What takes long comes first: at the end the other workers would have nothing to do beside it.
    Otherwise a file comes the earlier the more tests it has.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in DIVIDED:
            return nodeid
        return _TURNS if file.startswith(PROCESSES) else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        waiting = self.workqueue
        first = [one for place in (_TURNS, *LONG) for one in waiting if one.startswith(place)]
        if first:
            waiting.move_to_end(first[0], last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Have a worker for each core, and one that waits."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Divide the tests in the way of this project, whatever `--dist` says."""
    return _WholeFiles(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import what a worker is about to collect, beginning at a place of its own.

    What fails here fails again where it is collected, and is told there.
    """
    config = session.config
    here: dict[str, Any] | None = getattr(config, "workerinput", None)
    if here is None:
        return
    paths = [config.invocation_params.dir / one.partition("::")[0] for one in config.args]
    files = [file for one in paths for file in (_files(one) if one.is_dir() else [one])]
    passed_over = left_out(config)
    files = [one for one in files if not any(one.is_relative_to(path) for path in passed_over)]
    begin = len(files) * int(here["workerid"].removeprefix("gw")) // here["workercount"]
    for file in files[begin:] + files[:begin]:
        name = ".".join(file.relative_to(config.rootpath).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("test_*.py"))

"""Copies of the project, in which tests can be run."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

__all__ = ["ROOT", "copy_project", "environment", "heed_signals"]

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = (".ci", "docs", "examples", "filters", "lean_sandbox", "manifests", "tests")


def copy_project(root: Path) -> None:
    """Copy what tests read."""
    for name in _FOLDERS:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, root / file.name)


def environment(root: Path) -> dict[str, str]:
    """Return the environment of tests that run in a copy: the same examples each time."""
    return {**os.environ, "CI": "1", "PYTHONPATH": str(root)}


def heed_signals() -> None:
    """Let signals end programs that tests start, though what runs in the background ignores them.

    Otherwise a test that sends one would wait in vain.
    """
    for one in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(one) is signal.SIG_IGN:
            signal.signal(one, signal.SIG_DFL)

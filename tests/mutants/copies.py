"""Copies of the project, in which tests can be run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["ROOT", "copy_project", "environment"]

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

"""What every test of a command needs undone."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from lean_sandbox.config.sources import PREFIX


@pytest.fixture(autouse=True)
def untouched_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what a command does to its process, and let it find nothing of ours around it."""
    monkeypatch.setitem(sys.modules, "rich", importlib.import_module("rich"))
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("lean_sandbox.config.sources.MOUNTED", Path("/nowhere"))
    yield
    structlog.reset_defaults()

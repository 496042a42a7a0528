"""The limits of a run with a change: what never ends or takes all memory ends, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.mutants.chosen import LONGEST
from tests.support.patience import PATIENCE_S

_LIMITED = "from tests.mutants.chosen import pytest_configure; pytest_configure();"


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 -- the code stands here
        [sys.executable, "-c", f"{_LIMITED} {code}"],
        env={**os.environ, LONGEST: "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_memory_that_is_reserved_and_not_used_is_not_counted() -> None:
    """A browser of the tests does so, and has to start."""
    done = _run("import mmap; mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE, prot=0)")
    assert done.returncode == 0, done.stderr


def test_a_change_that_takes_all_memory_fails() -> None:
    """It is refused more than four GiB."""
    assert "MemoryError" in _run("bytearray(5 << 30)").stderr


def test_a_change_that_never_ends_is_ended() -> None:
    """By the time of the processor that it takes."""
    assert _run("exec('while True: pass')").returncode < 0

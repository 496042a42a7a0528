"""Copies of the project in which one place is changed, and what tests and types say of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.chosen import CHOSEN, LONGEST
from tests.mutants.copies import ROOT, copy_project, environment
from tests.mutants.sites import Site

__all__ = ["TYPES", "Copy", "Verdict"]

#: By whom a change was noticed that the checker of types refuses.
TYPES = "mypy"

# What waits for something that never comes fails after this long.
_PATIENCE_S = 30
# So much longer than the tests took when they were recorded is one that never ends.
_LONGER = 5.0
_START_S = 60.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests said, or the checker of types."""

    #: The test that failed, or what else ended the run; TYPES.
    by: str
    seconds: float
    is_caught: bool


class Copy:
    """A copy of the project, in which one place is changed at a time."""

    def __init__(self, root: Path) -> None:
        """Copy it into an empty folder."""
        self._root = root
        copy_project(root)
        self._changes = 0
        # Whether the checker of types is there, and has nothing to say without a change.
        self._has_types: bool | None = None

    def judge(self, site: Site | None, tests: Sequence[str], seconds: float) -> Verdict:
        """Run tests, which took so many seconds of CPU before, with a change (``None``: none).

        What they do not notice, the checker of types may: it is run whenever they are.
        """
        if site is None:
            return self._run(tests, seconds)
        path = self._root / site.path
        source = path.read_bytes()
        try:
            self._write(path, site.apply(source))
            verdict = self._run(tests, seconds)
        finally:
            self._write(path, source)
        if verdict.is_caught or not self._knows_types():
            return verdict
        try:
            self._write(path, site.apply(source))
            is_refused = not self._is_typed(site.path)
        finally:
            self._write(path, source)
        return Verdict(TYPES, verdict.seconds, is_caught=True) if is_refused else verdict

    def _knows_types(self) -> bool:
        if self._has_types is None:
            known = ROOT / ".mypy_cache"
            if known.exists():
                shutil.copytree(known, self._root / known.name)
            self._has_types = self._is_typed("filters", "lean_sandbox")
        return self._has_types

    def _is_typed(self, *paths: str) -> bool:
        """Return whether the checker of types says that all is well."""
        done = subprocess.run(  # noqa: S603 - our own programs
            [sys.executable, "-m", "mypy", "--no-error-summary", *paths],
            cwd=self._root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode == 0

    def _write(self, path: Path, source: bytes) -> None:
        """Write a module so that nobody takes its old byte code for the new one's."""
        path.write_bytes(source)
        self._changes += 1
        os.utime(path, (self._changes, self._changes))

    def _run(self, tests: Sequence[str], seconds: float) -> Verdict:
        (self._root / "chosen").write_text("\n".join(tests), encoding="utf-8")
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no"]
        command += ["-p", "no:cacheprovider", "-p", "tests.mutants.chosen"]
        command += [file for file in files if (self._root / file).exists()]
        limit_s = _START_S + _LONGER * seconds
        began = time.monotonic()
        with subprocess.Popen(  # noqa: S603 - our own tests
            command,
            cwd=self._root,
            env={
                **environment(self._root),
                CHOSEN: str(self._root / "chosen"),
                LONGEST: str(int(limit_s)),
                "SANDBOX_TESTS_PATIENCE_S": str(_PATIENCE_S),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as running:
            try:
                said, _ = running.communicate(timeout=4 * limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, 9)
                said, _ = running.communicate()
        return _verdict(running.returncode, said, time.monotonic() - began)


def _verdict(code: int, said: str, took_s: float) -> Verdict:
    if code in (0, 5):
        return Verdict("" if code == 0 else "no test is left", took_s, is_caught=False)
    lines = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    by = lines[0].partition(" ")[2].partition(" - ")[0] if lines else f"exit code {code}"
    return Verdict(by, took_s, is_caught=True)

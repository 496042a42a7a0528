"""Copies of the project in which places are changed, and what tests and types say of that."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from tests.mutants.chosen import CHOSEN, LONGEST
from tests.mutants.copies import ROOT, copy_project, environment
from tests.mutants.forks import CHANNEL
from tests.mutants.sites import Site
from tests.mutants.switches import write_switches

__all__ = ["TYPES", "Judge", "Verdict"]

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

    @property
    def is_caught(self) -> bool:
        """Whether anything noticed the change."""
        return bool(self.by)


class Judge:
    """Asks tests and types about some changes, one at a time."""

    def __init__(self, asked: Mapping[Site, tuple[list[str], float]]) -> None:
        """Take the changes, and the tests of each: no others can be asked."""
        self._numbers = {
            site: number for number, site in enumerate(asked, 1) if not site.is_pattern
        }
        self._files = {one.partition("::")[0] for tests, _ in asked.values() for one in tests}
        self._left = ExitStack()

    def __enter__(self) -> Self:
        """Make copies of the project, and collect the tests."""
        folder = Path(self._left.enter_context(TemporaryDirectory()))
        changes = {number: site for site, number in self._numbers.items()}
        self._copy = _Copy(folder / "copy")
        self._forks = _Forks(folder / "forks", changes, sorted(self._files))
        self._left.callback(self._forks.close)
        return self

    def __exit__(self, *exc: object) -> None:
        """Remove them."""
        self._left.close()

    def judge(self, site: Site | None, tests: Sequence[str], seconds: float) -> Verdict:
        """Run tests, which took so many seconds of CPU before, with a change (``None``: none).

        What they do not notice, the checker of types may: it is run whenever they are.
        """
        number = 0 if site is None else self._numbers.get(site)
        if site is None or (number is not None and number not in self._forks.late()):
            verdict = self._forks.run(number or 0, tests, seconds)
        else:
            verdict = self._copy.run(site, tests, seconds)
        if verdict.is_caught or site is None:
            return verdict
        return Verdict(self._copy.check(site), verdict.seconds)


class _Forks:
    """A copy of the project in which a number chooses the change, and a session of its tests."""

    def __init__(self, root: Path, changes: Mapping[int, Site], files: Sequence[str]) -> None:
        """Copy it into a new folder, and begin to collect some files of tests."""
        copy_project(root)
        write_switches(root, changes)
        self._channel, its = socket.socketpair()
        self._answers = self._channel.makefile("r", encoding="utf-8")
        with its:
            self._running = subprocess.Popen(  # noqa: S603 - our own tests
                _pytest(root, "tests.mutants.forks", files, f"--basetemp={root / 'tmp'}"),
                cwd=root,
                env={**_environment(root), CHANNEL: str(its.fileno())},
                pass_fds=[its.fileno()],
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._late: frozenset[int] | None = None

    def late(self) -> frozenset[int]:
        """Return the numbers of the changes for which a fork comes too late.

        RuntimeError if the tests cannot be collected.
        """
        if self._late is None:
            self._late = frozenset(self._answer())
        return self._late

    def run(self, number: int, tests: Sequence[str], seconds: float) -> Verdict:
        """Run tests, which took so many seconds of CPU before, with a change (0: none)."""
        self.late()
        began = time.monotonic()
        asked = [number, list(tests), _limit_s(seconds)]
        self._channel.sendall(f"{json.dumps(asked)}\n".encode())
        return Verdict(self._answer(), time.monotonic() - began)

    def close(self) -> None:
        """End the session."""
        self._answers.close()
        self._channel.close()
        self._running.wait()

    def _answer(self) -> Any:
        if line := self._answers.readline():
            return json.loads(line)
        raise RuntimeError(f"the tests cannot be run: exit code {self._running.wait()}")


class _Copy:
    """A copy of the project, in which one place is changed at a time."""

    def __init__(self, root: Path) -> None:
        """Copy it into a new folder."""
        self._root = root
        copy_project(root)
        self._changes = 0
        # Whether the checker of types is there, and has nothing to say without a change.
        self._has_types: bool | None = None

    def run(self, site: Site, tests: Sequence[str], seconds: float) -> Verdict:
        """Run tests, which took so many seconds of CPU before, with a change."""
        (self._root / "chosen").write_text("\n".join(tests), encoding="utf-8")
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        limit_s = _limit_s(seconds)
        limits = {CHOSEN: str(self._root / "chosen"), LONGEST: str(limit_s)}
        began = time.monotonic()
        with (
            self._changed(site),
            subprocess.Popen(  # noqa: S603 - our own tests
                _pytest(self._root, "tests.mutants.chosen", files, "-x"),
                cwd=self._root,
                env={**_environment(self._root), **limits},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            ) as running,
        ):
            try:
                said, _ = running.communicate(timeout=4 * limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, 9)
                said, _ = running.communicate()
        return Verdict(_noticed(running.returncode, said), time.monotonic() - began)

    def check(self, site: Site) -> str:
        """Run the checker of types with a change; return ``TYPES`` if it notices it."""
        if not self._knows_types():
            return ""
        with self._changed(site):
            return "" if self._is_typed(site.path) else TYPES

    @contextmanager
    def _changed(self, site: Site) -> Iterator[None]:
        path = self._root / site.path
        source = path.read_bytes()
        try:
            self._write(path, site.apply(source))
            yield
        finally:
            self._write(path, source)

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


def _environment(root: Path) -> dict[str, str]:
    return {**environment(root), "SANDBOX_TESTS_PATIENCE_S": str(_PATIENCE_S)}


def _pytest(root: Path, plugin: str, files: Iterable[str], option: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
    # Tests are named by a record that may be older than what is there.
    return [*command, "-p", plugin, option, *(one for one in files if (root / one).exists())]


def _limit_s(seconds: float) -> int:
    return int(_START_S + _LONGER * seconds)


def _noticed(code: int, said: str) -> str:
    if code in (0, 5):
        return ""
    lines = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0].partition(" ")[2].partition(" - ")[0] if lines else f"exit code {code}"

"""The environments in which programs of others run: one each, as its lock says, kept between runs.

A lock is ``.ci/locks/integrations/PROGRAM.txt``, made of the dependency group of that name. What is
missing is fetched by pip, from its index alone, and checked by its hash.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Environment", "MissingProgramError", "environment"]

_ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 1800.0


class MissingProgramError(Exception):
    """A program of others cannot be installed, or not on this machine."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What one program is installed in, with all that it needs.

    Attributes:
        program: the name of its distribution.
        python: the interpreter that can import it.

    """

    program: str
    python: Path

    def source(self, into: Path) -> Path:
        """Unpack the program's source into a folder and return where it is.

        Raises:
            MissingProgramError: with what pip says.

        """
        kept = self.python.parents[1] / "source"
        if not kept.exists():
            requirement = kept.with_suffix(".txt")
            requirement.write_text(_locked_lines(self.program))
            # Only its metadata is built, by what the lock has for it.
            built = ("--no-deps", "--no-binary=:all:", "--no-build-isolation")
            draft = kept.with_suffix(".draft")
            _pip(self, "download", *built, f"--dest={draft}", f"--requirement={requirement}")
            draft.rename(kept)
        (archive,) = kept.iterdir()
        with tarfile.open(archive) as opened:
            opened.extractall(into, filter="data")
        return into / archive.name.removesuffix(".tar.gz")


def environment(program: str, *, at_least: tuple[int, int] = (3, 11)) -> Environment:
    """Return the environment of a program, which is made unless it is there.

    Args:
        program: the name of its distribution and of its lock.
        at_least: the oldest Python that it supports.

    Raises:
        MissingProgramError: with what pip says, or which Python is missing.

    """
    lock = _lock(program)
    interpreter = _interpreter(program, at_least)
    digest = hashlib.sha256(lock.read_bytes() + interpreter.encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "lean-sandbox" / "integrations" / program / digest
    found = Environment(program, folder / "bin" / "python")
    complete = folder / "complete"
    with _alone(folder.parent):
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run(program, interpreter, "-m", "venv", "--without-pip", str(folder))
            _pip(found, "install", "--no-deps", f"--requirement={lock}")
            complete.touch()
    return found


def _lock(program: str) -> Path:
    return _ROOT / ".ci" / "locks" / "integrations" / f"{program}.txt"


def _locked_lines(program: str) -> str:
    """Return what the lock says of the program itself."""
    text = _lock(program).read_text(encoding="utf-8")
    (found,) = re.findall(rf"^{program}==.*(?:\n .*)*\n", text, flags=re.MULTILINE)
    return str(found)


def _interpreter(program: str, at_least: tuple[int, int]) -> str:
    """Return this interpreter, or the oldest of the machine that is new enough.

    Not the path of this environment: another checkout has the same interpreter.
    """
    if sys.version_info >= at_least:
        return str(Path(sys.executable).resolve())
    listed = _run(program, str(_ROOT / ".ci" / "tasks"), "interpreters").split()
    for one in listed:
        found = re.search(r"python(\d+)\.(\d+)$", one)
        if found and (int(found[1]), int(found[2])) >= at_least:
            return one
    wanted = ".".join(map(str, at_least))
    raise MissingProgramError(
        f"{program} needs Python {wanted} or newer: `.ci/tasks interpreters` finds only {listed}."
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep out others who make the environment of the same program."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _pip(into: Environment, command: str, *arguments: str) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    chosen = ("--require-hashes", *arguments)
    _run(into.program, *pip, f"--python={into.python}", command, *chosen)


def _run(program: str, *command: str) -> str:
    done = subprocess.run(  # noqa: S603 -- fixed programs
        command, capture_output=True, text=True, check=False, timeout=_LIMIT_S
    )
    if done.returncode:
        raise MissingProgramError(
            f"{program} could not be installed, for which pip has to reach its index:"
            f" `{' '.join(command)}` said\n{done.stderr or done.stdout}"
        )
    return done.stdout

"""Laws of the start: a Python that is too old and an early signal end it in a sentence or less."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Sends itself a signal when it imports a module.
_TOLD = """
import os, signal, sys
amid, told = sys.argv[1:]
class Told:
    def find_spec(self, name, *_):
        if name == amid:
            os.kill(os.getpid(), int(told))
sys.meta_path.insert(0, Told())
sys.argv = ["lean-sandbox", "run", "--kubeconfig=/nowhere"]
from lean_sandbox import __main__
sys.exit(__main__.main())
"""
# Is sent a signal while one of its tasks is at work.
_TOLD_AMID_WORK = """
import signal, sys
from lean_sandbox.demo.story import DemoUser
async def create(*_, **__):
    signal.raise_signal(int(told))
DemoUser.create = create
told = sys.argv[1]
sys.argv = ["lean-sandbox", "demo", "--output", "json"]
from lean_sandbox import __main__
sys.exit(__main__.main())
"""
ROOT = Path(__file__).resolve().parents[2]
# Python 3.6 is the oldest `python3` of a distribution that is maintained.
OLD = [(3, minor) for minor in range(6, 11)]
# What such a Python reads before it has said so.
READ = ["setup.py", "lean_sandbox/__init__.py"]


def pythons() -> list[Path]:
    """Return the Pythons of this machine that are too old, of those that pyenv keeps."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return [one for _, minor in OLD for one in versions.glob(f"3.{minor}.*/bin/python")]


@pytest.mark.parametrize("version", OLD, ids=str)
@pytest.mark.parametrize("path", READ)
def test_an_old_python_can_read_the_sentence(path: str, version: tuple[int, int]) -> None:
    """It reads a whole file before it runs a line, and must not stumble over newer syntax."""
    ast.parse((ROOT / path).read_text(), feature_version=version)


@pytest.mark.parametrize("words", [("-m", "lean_sandbox", "demo"), ("setup.py", "--name")])
def test_an_old_python_is_told_so(words: tuple[str, ...]) -> None:
    """One line with the version that is needed and its own, in a checkout and to pip."""
    found = pythons()
    if not found:
        pytest.skip("no old Python on this machine")
    for python in found:
        ended = subprocess.run(  # noqa: S603
            [python, "-B", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        own = python.parts[-3].rpartition(".")[0]
        said = f"lean-sandbox needs Python 3.11 or newer, and this is {own}\n"
        assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", said)


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("amid", ["lean_sandbox.cli", "structlog", "lean_sandbox.manager.server"])
def test_whatever_ends_a_program_ends_it_amid_its_start(told: signal.Signals, amid: str) -> None:
    """Without a traceback, and by a handler: the first process of a container has no defaults."""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _TOLD, amid, str(told.value)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_a_request_to_end_ends_a_program_amid_its_work() -> None:
    """Without a traceback of the task that was at work when it came."""
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _TOLD_AMID_WORK, str(signal.SIGTERM.value)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")

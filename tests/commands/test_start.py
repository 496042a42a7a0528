"""Laws of the start: a Python that is too old and an early Ctrl-C end it in a sentence or less."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lean_sandbox import __main__

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


def test_ctrl_c_before_the_command_is_known_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the start imports takes a while on a busy machine."""

    class Interrupts:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "lean_sandbox.cli":
                raise KeyboardInterrupt

    for name in [one for one in sys.modules if one.startswith("lean_sandbox.c")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("lean_sandbox.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupts(), *sys.meta_path])
    assert __main__.main() == 130

"""Which Pythons of a machine the runner looks at: `.ci/tasks interpreters`; and too old a one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.manifests.files import ROOT
from tests.support.patience import PATIENCE_S


def python(path: Path, answer: str) -> Path:
    """Write a program in the place of a Python, which answers whatever it is asked like this."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return path


def release(path: Path, number: str) -> Path:
    """Write a Python of a release."""
    return python(path, f"echo {number} {path}")


def found(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Ask the task in a machine that has those of two folders, beside what is there."""
    return subprocess.run(  # noqa: S603 -- a task of the project
        [ROOT.parent / ".ci/tasks", "interpreters"],
        env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PYENV_ROOT": f"{tmp_path}/pyenv"},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )


def test_the_patch_release_counts_wherever_a_python_is_from(tmp_path: Path) -> None:
    """The system's older one comes before pyenv's, and 3.11.10 is newer than 3.11.9."""
    versions = tmp_path / "pyenv/versions"
    wanted = [
        release(tmp_path / "bin/python3.11", "3.11.0"),
        release(versions / "3.11.98/bin/python3.11", "3.11.98"),
        release(versions / "3.11.100/bin/python3.11", "3.11.100"),
        release(versions / "3.14.99/bin/python3.14", "3.14.99"),
    ]
    release(versions / "3.10.1/bin/python3.10", "3.10.1")
    listed = found(tmp_path).stdout.split()
    assert [one for one in listed if one.startswith(str(tmp_path))] == [*map(str, wanted)]
    assert (listed[0], listed[-1]) == (str(wanted[0]), str(wanted[-1]))


def test_one_that_cannot_be_used_is_passed_over(tmp_path: Path) -> None:
    """A shim that leads nowhere says nothing; one without the modules that it takes is named."""
    shim = python(tmp_path / "bin/python3.12", "exit 127")
    bare = python(tmp_path / "bin/python3.13", 'case "$2" in *ssl*) exit 1;; esac; echo 3.13.9 x')
    done = found(tmp_path)
    assert str(tmp_path) not in done.stdout
    assert f"passed over, it has no ssl or no venv: {bare}" in done.stderr.splitlines()
    assert str(shim) not in done.stderr


def test_too_old_a_python_is_told_which_one_is_needed() -> None:
    """In one line, before pip finds that a package or a name of the standard library is missing."""
    script = "import runpy, sys; sys.version_info = (3, 10, 13); runpy.run_path('setup.py')"
    done = subprocess.run(  # noqa: S603 -- our own file
        [sys.executable, "-c", script],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert done.stderr == "lean-sandbox needs Python 3.11 or newer, and this is 3.10\n"

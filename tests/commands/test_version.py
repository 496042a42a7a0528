"""``--version`` tells which commit was built."""

from __future__ import annotations

import os
import platform
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lean_sandbox.cli import main
from lean_sandbox.config.sources import EXIT_OK
from lean_sandbox.version import about, build_facts, revision_and_date

UNKNOWN = ("unknown", "unknown")
to_build = runpy.run_path(str(Path(__file__).parents[2] / "setup.py"))["revision_and_date"]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Return the folder of the module in a project of its own."""
    folder = tmp_path / "lean_sandbox"
    folder.mkdir()
    return folder


def test_what_was_built_says_what_from(here: Path) -> None:
    """The build wrote it beside the module; elsewhere nothing is known."""
    assert revision_and_date(here) == UNKNOWN
    (here / "built.txt").write_text("0123456789ab 2026-01-02T03:04:05Z\n")
    revision_and_date.cache_clear()
    assert revision_and_date(here) == ("0123456789ab", "2026-01-02T03:04:05Z")


def test_what_is_built_from_a_checkout_is_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit that is checked out, and its time in UTC; the environment is believed first."""
    day = "2026-01-02T05:04:05+02:00"
    environment = {
        "PATH": os.environ["PATH"],
        **{
            f"GIT_{who}_{what}": "a@b"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
        **dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), day),
    }
    for command in ("init -q", "commit -q --allow-empty -m one"):
        subprocess.run(  # noqa: S603
            ["git", *command.split()],  # noqa: S607
            cwd=tmp_path,
            env=environment,
            check=True,
        )
    told = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=tmp_path, text=True)  # noqa: S607
    assert to_build(tmp_path) == (told[:12], "2026-01-02T03:04:05Z")
    monkeypatch.setenv("REVISION", "abc")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert to_build(tmp_path) == ("abc", "1970-01-01T00:00:00Z")


def test_what_git_cannot_read_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a folder that is no repository nor a missing git is an error."""
    assert to_build(tmp_path) == UNKNOWN
    (tmp_path / ".git").mkdir()
    assert to_build(tmp_path) == UNKNOWN
    monkeypatch.setenv("PATH", "/nowhere")
    assert to_build(tmp_path) == UNKNOWN


def test_a_person_is_told_what_each_row_is(capsys: pytest.CaptureFixture[str]) -> None:
    """The same facts, without a word of Go: the program is written in Python."""
    assert main(["version"]) == EXIT_OK
    first, *rows = capsys.readouterr().out.splitlines()
    known = about().splitlines()
    assert [first, rows[0], rows[2]] == [known[0], known[1], known[4]]
    assert rows[1] == f"  Python:           {platform.python_version()} (cpython)"


@pytest.mark.parametrize(
    ("machine", "told"),
    [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")],
)
def test_the_platform_is_named_as_images_name_it(
    monkeypatch: pytest.MonkeyPatch, machine: str, told: str
) -> None:
    """A machine that has no other name there keeps its own."""
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine))
    assert build_facts()[-1] == f"{sys.platform}/{told}"


def test_a_closed_output_is_no_failure() -> None:
    """Who closes it wants none: no traceback, and the code of what was done."""
    command = f'"{sys.executable}" -m lean_sandbox version >&-'
    ended = subprocess.run(  # noqa: S602 -- only a shell can close it
        command, shell=True, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")

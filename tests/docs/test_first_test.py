"""The test that CONTRIBUTING shows to whoever writes his first one is one that passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks
from tests.support.patience import PATIENCE_S

PAGE = ROOT / "CONTRIBUTING.md"


def _run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a test as one of this project's: with its settings, from its root."""
    test = folder / "test_first.py"
    test.write_text(text)
    settings = ["-c", "pyproject.toml", "--rootdir", ".", "-p", "no:cacheprovider"]
    return subprocess.run(  # noqa: S603 -- our own page
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.failures", *settings, test],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "CI"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_the_first_test_of_the_page_passes_as_it_stands(tmp_path: Path) -> None:
    """There is one such block; pytest runs one test of it."""
    [block] = blocks(PAGE, "python")
    done = _run(tmp_path, block.text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_first_test_of_the_page_fails_when_its_law_is_turned_around(tmp_path: Path) -> None:
    """What the page says to try next: it fails there, not earlier, and in few lines."""
    [block] = blocks(PAGE, "python")
    law = 'assert world.writes()["create pods"] == 1'
    assert law in block.text
    done = _run(tmp_path, block.text.replace(law, law.replace("==", "!=")))
    assert done.returncode == 1, done.stdout + done.stderr
    assert law.replace("==", "!=") in done.stdout
    assert len(done.stdout.splitlines()) <= 10

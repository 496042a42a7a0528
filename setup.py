"""Writes down revision and date when a wheel is built: what is installed is no checkout."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 -- pip runs this before it reads requires-python
    major, minor = sys.version_info[:2]
    sys.exit(f"lean-sandbox needs Python 3.11 or newer, and this is {major}.{minor}")

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPy(build_py):
    """Copies the modules, and ``built.txt`` beside them."""

    def run(self) -> None:
        """Copy."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "lean_sandbox", "built.txt")
        target.write_text(" ".join(revision_and_date(Path(__file__).parent)) + "\n", "ascii")


def revision_and_date(root: Path) -> tuple[str, str]:
    """Return what is built: a commit and its time, from the environment or from git.

    REVISION and SOURCE_DATE_EPOCH of the environment say it where there is no checkout.
    """
    revision = date = "unknown"
    if (root / ".git").exists():
        try:
            told = subprocess.run(  # noqa: S603
                ["git", "-C", str(root), "log", "-1", "--format=%H %ct"],  # noqa: S607
                capture_output=True,
                text=True,
                check=True,
                timeout=5.0,
            )
            revision, seconds = told.stdout.split()
            revision, date = revision[:12], _date_of(seconds)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"the commit is unknown: {error}")  # noqa: T201
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    if seconds:
        date = _date_of(seconds)
    return "-".join(os.environ.get("REVISION", "").split()) or revision, date


def _date_of(seconds: str) -> str:
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildPy})

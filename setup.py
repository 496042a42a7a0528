"""Writes down revision and date when a wheel is built: what is installed is no checkout."""

import os
import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPy(build_py):
    """Copies the modules, and ``built.txt`` beside them.

    REVISION and SOURCE_DATE_EPOCH of the environment say what is built where there is no checkout.
    """

    def run(self) -> None:
        """Copy."""
        super().run()
        if self.editable_mode:
            return
        # The project that is built is not among the modules that can be imported.
        version = runpy.run_path(str(Path(__file__).with_name("lean_sandbox") / "version.py"))
        revision, date = version["revision_and_date"]()
        revision = "-".join(os.environ.get("REVISION", "").split()) or revision
        if seconds := os.environ.get("SOURCE_DATE_EPOCH"):
            date = version["date_of"](seconds)
        target = Path(self.build_lib, "lean_sandbox", "built.txt")
        target.write_text(f"{revision} {date}\n", encoding="ascii")


setup(cmdclass={"build_py": BuildPy})

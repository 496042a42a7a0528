"""Writes down revision and date when a wheel is built: what is installed is no checkout."""

import os
import runpy
from pathlib import Path

from setuptools.command.build_py import build_py


class BuildPy(build_py):  # type: ignore[misc]
    """Copies the modules, and ``built.txt`` beside them.

    REVISION and SOURCE_DATE_EPOCH of the environment say what is built where there is no checkout.
    """

    def run(self) -> None:
        """Copy."""
        super().run()
        if self.editable_mode:
            return
        # The project that is built is not among the modules that can be imported.
        version = runpy.run_path(str(Path(__file__).with_name("__init__.py")))
        revision, date = version["revision_and_date"]()
        revision = "-".join(os.environ.get("REVISION", "").split()) or revision
        if seconds := os.environ.get("SOURCE_DATE_EPOCH"):
            date = version["date_of"](seconds)
        target = Path(self.build_lib, "lean_sandbox", "version", "built.txt")
        target.write_text(f"{revision} {date}\n", encoding="ascii")

"""What is running: version, revision and date of the program, and what it runs on."""

import functools
import os
import sys
from pathlib import Path

__version__ = "0.1.0"

_UNKNOWN = "unknown"
_HERE = Path(__file__).parent
# What Go calls the machines this runs on.
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@functools.cache
def revision_and_date(here: Path = _HERE) -> tuple[str, str]:
    """Return the commit and its time as the build wrote them down; a checkout knows neither."""
    built = here / "built.txt"
    if not built.exists():
        return _UNKNOWN, _UNKNOWN
    revision, date = built.read_text(encoding="utf-8").split()
    return revision, date


def build_facts() -> tuple[str, str, str, str, str, str]:
    """Return version, commit, build date, language, compiler and platform.

    The order and the meaning are those of the labels of the reference's build information, with
    Python in the place of Go.
    """
    machine = os.uname().machine
    return (
        f"v{__version__}",
        *revision_and_date(),
        f"python{sys.version.split()[0]}",
        sys.implementation.name,
        f"{sys.platform}/{_MACHINES.get(machine, machine)}",
    )


def about() -> str:
    """Return what ``--version`` prints, for tools: the names of the rows are the reference's."""
    version, commit, *rest = build_facts()
    names = ("build date:", "go version:", "compiler:", "platform:")
    return _table(version, commit, dict(zip(names, rest, strict=True)))


def described() -> str:
    """Return what ``lean-sandbox version`` prints, for people."""
    version, commit, date, language, implementation, platform = build_facts()
    python = f"{language.removeprefix('python')} ({implementation})"
    rows = {"build date:": date, "Python:": python, "platform:": platform}
    return _table(version, commit, rows)


def _table(version: str, commit: str, rows: dict[str, str]) -> str:
    shown = (f"  {name:<18}{fact}" for name, fact in rows.items())
    return "\n".join((f"lean-sandbox, version {version} (revision: {commit})", *shown))

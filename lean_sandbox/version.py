"""What is running: the version of the program, in one place, and of what it runs on."""

import os
import sys

__version__ = "0.1.0"

_UNKNOWN = "unknown"
# What Go calls the machines this runs on.
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def python_version() -> str:
    """Return the version of Python as three numbers."""
    return ".".join(map(str, sys.version_info[:3]))


def build_facts() -> tuple[str, str, str, str, str, str]:
    """Return version, commit, build date, language, compiler and platform.

    The order and the meaning are those of the labels of the reference's build information; what is
    said there of Go is said of Python here.
    """
    machine = os.uname().machine
    return (
        f"v{__version__}",
        _UNKNOWN,
        _UNKNOWN,
        f"python{python_version()}",
        sys.implementation.name,
        f"{sys.platform}/{_MACHINES.get(machine, machine)}",
    )


def about() -> str:
    """Return what ``--version`` prints, in the reference's form (spec, 7.3)."""
    version, commit, *rest = build_facts()
    names = ("build date:", "go version:", "compiler:", "platform:")
    rows = (f"  {name:<18}{fact}" for name, fact in zip(names, rest, strict=True))
    return "\n".join((f"lean-sandbox, version {version} (revision: {commit})", *rows))

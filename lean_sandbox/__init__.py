"""A lean controller for agent sandboxes on Kubernetes."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 -- in a checkout nothing else keeps it from starting
    major, minor = sys.version_info[:2]
    sys.exit(f"lean-sandbox needs Python 3.11 or newer, and this is {major}.{minor}")

from lean_sandbox.version import __version__

__all__ = ["__version__"]

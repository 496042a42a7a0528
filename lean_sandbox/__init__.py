"""A lean controller for agent sandboxes on Kubernetes."""

from lean_sandbox.version import __version__

__all__ = ["__version__"]

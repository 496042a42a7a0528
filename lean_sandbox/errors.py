"""Errors that the user of a command can mend: settings, files, packages that are missing.

They come before any work begins. Errors of the API server are in ``kube/errors.py``.
"""

from __future__ import annotations

import re
import shlex
import sys


class ConfigError(Exception):
    """A setting, a kubeconfig or another file cannot be used.

    ``source`` is the file or variable, ``field`` the place in it, ``way_out`` what to do.
    """

    def __init__(
        self, problem: str, *, source: str = "", field: str = "", way_out: str = ""
    ) -> None:
        self.problem = problem
        self.way_out = way_out
        place = ": ".join(part for part in (source, field) if part)
        text = f"{place}: {problem}" if place else problem
        super().__init__(f"{text}. To fix: {way_out}" if way_out else text)


def missing_extra(what: str, extra: str, error: ImportError) -> ConfigError:
    """Return the error that names the extra which brings a library."""
    pip = f"{shlex.quote(sys.executable)} -m pip install '.[{extra}]'"
    way_out = f"install the extra {extra}: {pip} in a checkout of lean-sandbox"
    return ConfigError(f"{what} needs {error.name or error}", way_out=way_out)


def yaml_problem(error: Exception) -> str:
    """Return what is wrong with a YAML text, without the names of its aliases and tags.

    A password that begins with * or ! and is not quoted is taken for one.
    """
    found: str = getattr(error, "problem", "") or getattr(error, "reason", "")
    return re.sub("'[^<].+'", "'...'", found)


def refuse_password() -> str:
    """Refuse a key that is protected by a password: there is nobody to enter it. Raises OSError."""
    raise OSError("the key is protected by a password, which is not supported")

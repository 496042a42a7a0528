"""Runs a program of others to its end."""

from __future__ import annotations

import os
import subprocess

from tests.integrations.environments import Environment
from tests.support.patience import PATIENCE_S

__all__ = ["run"]


def run(installed: Environment, *arguments: str, **variables: str) -> str:
    """Run the Python of an environment and return all that it says.

    Args:
        installed: the environment.
        arguments: those of its Python.
        variables: of the process, beside those of this one.

    Raises:
        AssertionError: it failed; with what it said.
        subprocess.TimeoutExpired: it did not end.

    """
    done = subprocess.run(  # noqa: S603 -- programs that are pinned
        [installed.python, *arguments],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout

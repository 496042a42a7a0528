"""Runs a program of others to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

from tests.integrations.environments import Environment
from tests.support.patience import PATIENCE_S

__all__ = ["run"]


def run(
    installed: Environment, *arguments: str, limit_s: float = PATIENCE_S, **variables: str
) -> str:
    """Run the Python of an environment and return all that it says.

    Args:
        installed: the environment.
        arguments: those of its Python.
        limit_s: after so many seconds it has not ended.
        variables: of the process, beside those of this one.

    Raises:
        AssertionError: it failed or did not end; with what it said.

    """
    with subprocess.Popen(  # noqa: S603 -- programs that are pinned
        [installed.python, *arguments],
        # What does not end shows where each of its threads is.
        env={**os.environ, "PYTHONFAULTHANDLER": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        ends = threading.Timer(limit_s, process.send_signal, [signal.SIGABRT])
        ends.start()
        said, _ = process.communicate()
        ends.cancel()
    assert process.returncode == 0, said
    return said

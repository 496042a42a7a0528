"""The controller as a process of its own, as a user starts it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import anyio
from anyio.abc import Process

__all__ = ["controller_process", "listens"]


@asynccontextmanager
async def controller_process(
    kubeconfig: Path, *flags: str, log: Path | None = None, command: str = "run"
) -> AsyncIterator[Process]:
    """Run a command without listeners; what is left of it at the end is killed.

    What it logs goes to ``log``, or else to the ``stderr`` of what is yielded.
    """
    program = [
        *(sys.executable, "-m", "lean_sandbox", command, "--log-format=json"),
        *(f"--kubeconfig={kubeconfig}", "--metrics-bind-address=0"),
        *("--health-probe-bind-address=0", *flags),
    ]
    with log.open("wb") if log is not None else nullcontext(subprocess.PIPE) as errors:
        async with await anyio.open_process(program, stdout=None, stderr=errors) as started:
            try:
                yield started
            finally:
                if started.returncode is None:
                    started.kill()


def listens(port: int) -> bool:
    """Tell whether something of this machine listens on a port."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0

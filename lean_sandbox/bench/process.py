"""Processes of the bench: how they are started, asked, and measured through /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, TypeVar

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from lean_sandbox.clock import Clock

T = TypeVar("T")

# The children import what this process runs, also from a checkout that is not installed.
_ROOT = str(Path(__file__).resolve().parents[2])
_LINE_BYTES = 1 << 20
_END_S = 10.0
_PATIENCE_S = 90.0
_POLL_S = 0.1


class BenchError(Exception):
    """The measurement could not be made; the message says why."""


class Memory(msgspec.Struct, frozen=True):
    """Resident memory of a process in KiB: at present and at its highest."""

    rss_kib: int
    peak_kib: int


def parse_status(text: str) -> Memory:
    """Return the resident memory that a /proc/PID/status tells.

    Raises BenchError when it does not tell, as for a process that has ended.
    """
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        return Memory(int(fields["VmRSS"].split()[0]), int(fields["VmHWM"].split()[0]))
    except (KeyError, ValueError, IndexError) as error:
        raise BenchError("/proc does not tell the memory of the process") from error


def memory_of(pid: int | str) -> Memory:
    """Return the resident memory of a process. Raises BenchError where /proc lacks it."""
    try:
        return parse_status(
            Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        )
    except OSError as error:
        raise BenchError(f"memory is measured through /proc, which fails: {error}") from error


def cpu_ticks(pid: int) -> int:
    """Return the CPU time a process has used, in clock ticks. Raises BenchError."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise BenchError(f"the process {pid} has ended") from error
    # The second field is the program's name in brackets, and may hold anything.
    fields = text.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


async def settled_memory(pid: int, clock: Clock, *, quiet_s: float = 1.0) -> Memory:
    """Return the memory of a process once it has used no CPU for ``quiet_s`` seconds.

    Raises BenchError when it never comes to rest.
    """
    deadline = clock.monotonic() + _PATIENCE_S
    ticks, since = cpu_ticks(pid), clock.monotonic()
    while clock.monotonic() < deadline:
        await clock.sleep(_POLL_S)
        now = cpu_ticks(pid)
        # One tick is what timers of an idle process come to.
        if now - ticks > 1:
            ticks, since = now, clock.monotonic()
        elif clock.monotonic() - since >= quiet_s:
            return memory_of(pid)
    raise BenchError(f"the process did not come to rest within {_PATIENCE_S:g} s")


class Worker:
    """A running process that answers lines of JSON."""

    def __init__(self, started: Process, log: Path) -> None:
        self.started = started
        self._log = log
        assert started.stdout is not None
        self._lines = BufferedByteReceiveStream(started.stdout)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.started.pid

    def log(self) -> str:
        """Return what it has written to standard error so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    async def read(self, type_: type[T]) -> T:
        """Return its next line. Raises BenchError with the end of its log when there is none."""
        try:
            with anyio.fail_after(_PATIENCE_S):
                line = await self._lines.receive_until(b"\n", _LINE_BYTES)
        except (anyio.IncompleteRead, anyio.EndOfStream, TimeoutError) as error:
            raise self.failed("gave no answer") from error
        try:
            return msgspec.json.decode(line, type=type_)
        except msgspec.DecodeError as error:
            raise self.failed(f"answered {line[:80]!r}") from error

    async def ask(self, type_: type[T]) -> T:
        """Send an empty line and return the answer. Raises BenchError."""
        assert self.started.stdin is not None
        try:
            with anyio.fail_after(_PATIENCE_S):
                await self.started.stdin.send(b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError) as error:
            raise self.failed("took no question") from error
        return await self.read(type_)

    def failed(self, what: str) -> BenchError:
        """Return an error with the last lines of the log."""
        said = "\n".join(self.log().splitlines()[-8:])
        return BenchError(f"a process of the bench {what}; its log ends with\n{said}")


@asynccontextmanager
async def process(module: str, *arguments: str, log: Path) -> AsyncIterator[Worker]:
    """Run ``python -m module`` until the block ends; its standard error goes to ``log``."""
    with log.open("wb") as errors:
        started = await _start([sys.executable, "-m", module, *arguments], errors)
    try:
        yield Worker(started, log)
    finally:
        with anyio.CancelScope(shield=True):
            await _end(started)


async def _start(command: list[str], errors: IO[bytes]) -> Process:
    search = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
    return await anyio.open_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        # An installed controller has its bytecode; compiling all anew would count as its start.
        env={
            **os.environ,
            "PYTHONPATH": search,
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "",
        },
        # Ctrl-C on the terminal is for this process, which then ends its children in order.
        start_new_session=True,
    )


async def _end(started: Process) -> None:
    if started.returncode is None:
        started.terminate()
        with anyio.move_on_after(_END_S):
            await started.wait()
    if started.returncode is None:
        started.kill()
    await started.aclose()

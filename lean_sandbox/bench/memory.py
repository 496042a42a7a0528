"""What the controller's memory is, and what pruning while decoding is worth.

For each number of Sandboxes an embedded control plane is started in a process of its own, the real
controller is restarted over it until it rests, and then each way of holding the same objects is
tried. Everything is measured as resident memory through /proc.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from lean_sandbox.bench.holder import WAYS, Held
from lean_sandbox.bench.plane import KUBECONFIG, Asked, Listening
from lean_sandbox.bench.process import (
    BenchError,
    Memory,
    Worker,
    cpu_ticks,
    memory_of,
    process,
    settled_memory,
)
from lean_sandbox.clock import Clock

SIZES: Final = (0, 1000, 5000, 10_000)
UNPRUNED_MOST: Final = 5000
"""More Sandboxes than this are not held whole: the figure is scaled from this many."""
REFERENCE_EMPTY_MIB: Final = 44.0
REFERENCE_EACH_KIB: Final = 24.0
"""The reference controller on a real API server: with nothing, and for each healthy Sandbox."""
_SYNC_S: Final = 60.0
_POLL_S: Final = 0.05


class ControllerRow(msgspec.Struct, frozen=True):
    """The controller, restarted over a number of Sandboxes."""

    sandboxes: int
    memory: Memory
    start_s: float
    asked: Asked
    """What it asked for from its start until it rested."""
    cpu_s: float = 0.0
    """What it used until then."""


class HolderRow(msgspec.Struct, frozen=True):
    """One way of holding the objects of a number of Sandboxes."""

    way: str
    sandboxes: int
    memory: Memory
    is_scaled: bool = False


class MemoryReport(msgspec.Struct, frozen=True):
    """Everything that ``bench memory`` measured."""

    sandbox_bytes: int
    pod_bytes: int
    controller: list[ControllerRow]
    holders: list[HolderRow]
    reference_empty_mib: float = REFERENCE_EMPTY_MIB
    reference_each_kib: float = REFERENCE_EACH_KIB

    def each_kib(self, sandboxes: int) -> float:
        """Return the controller's KiB for each Sandbox, above what it takes with none."""
        by_size = {row.sandboxes: row.memory.rss_kib for row in self.controller}
        return (by_size[sandboxes] - by_size[0]) / sandboxes if sandboxes else 0.0

    def held_each_kib(self, row: HolderRow) -> float:
        """Return a holder's KiB for each Sandbox, above what it takes with none."""
        empty = next(held.memory.rss_kib for held in self.holders if held.sandboxes == 0)
        return (row.memory.rss_kib - empty) / row.sandboxes if row.sandboxes else 0.0


def reference_mib(sandboxes: int) -> float:
    """Return what the reference controller takes over so many Sandboxes."""
    return REFERENCE_EMPTY_MIB + sandboxes * REFERENCE_EACH_KIB / 1024


async def measure_memory(
    clock: Clock,
    *,
    sizes: Sequence[int] = SIZES,
    unpruned_most: int = UNPRUNED_MOST,
    progress: Callable[[str], None] = lambda _text: None,
    quiet_s: float = 1.0,
) -> MemoryReport:
    """Measure the controller and the ways of holding at each number of Sandboxes, 0 among them.

    Raises BenchError when a process fails or memory cannot be read.
    """
    memory_of("self")  # fails early, and in words, on a system without /proc
    controller: list[ControllerRow] = []
    holders: list[HolderRow] = []
    hello = Listening("", 0, 0)
    for size in sorted(sizes):
        with TemporaryDirectory(prefix="lean-sandbox-bench-") as named:
            folder = Path(named)
            progress(f"{size} Sandboxes: filling a control plane")
            arguments = (str(size), str(folder))
            async with process(
                "lean_sandbox.bench.plane", *arguments, log=folder / "plane.log"
            ) as plane:
                hello = await plane.read(Listening)
                progress(f"{size} Sandboxes: starting the controller over them")
                row = await _controller(plane, folder, size, clock, quiet_s)
                controller.append(row)
                progress(
                    f"{size} Sandboxes: {row.memory.rss_kib / 1024:.1f} MiB at rest"
                    f" after {row.asked.lists} list pages, {row.asked.gets} GETs,"
                    f" {row.asked.writes} writes"
                )
                progress(f"{size} Sandboxes: holding them in {len(WAYS)} other ways")
                holders += await _holders(hello.url, folder, size, unpruned_most)
    report = MemoryReport(hello.sandbox_bytes, hello.pod_bytes, controller, holders)
    return msgspec.structs.replace(report, holders=_with_scaled(report, max(sizes)))


async def _controller(
    plane: Worker, folder: Path, size: int, clock: Clock, quiet_s: float
) -> ControllerRow:
    options = (
        *("--kubeconfig", str(folder / KUBECONFIG), "--log-format", "json"),
        # As in a cluster with its listeners open, but on ports that nobody has.
        *("--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0"),
        # Nobody else serves this server; in a cluster the Lease decides, without a look.
        "--allow-second-controller",
    )
    began = clock.monotonic()
    async with process(
        "lean_sandbox.cli", "run", *options, log=folder / "controller.log"
    ) as controller:
        while '"caches_synced"' not in controller.log():
            if controller.started.returncode is not None or clock.monotonic() - began > _SYNC_S:
                raise controller.failed("did not come in sync")
            await clock.sleep(_POLL_S)
        start_s = clock.monotonic() - began
        memory = await settled_memory(controller.pid, clock, quiet_s=quiet_s)
        cpu_s = cpu_ticks(controller.pid) / os.sysconf("SC_CLK_TCK")
        asked = await plane.ask(Asked)
    row = ControllerRow(size, memory, round(start_s, 2), asked, round(cpu_s, 2))
    if asked.open_watches == 0:
        raise BenchError("the controller holds no watch open: this measured something else")
    return row


async def _holders(url: str, folder: Path, size: int, unpruned_most: int) -> list[HolderRow]:
    rows: list[HolderRow] = []
    for way in ("empty",) if size == 0 else WAYS:
        if way == "never" and size > unpruned_most:
            continue
        log = folder / f"{way}.log"
        async with process("lean_sandbox.bench.holder", way, url, log=log) as holder:
            held = await holder.read(Held)
        if held.objects != 2 * size:
            raise BenchError(f"{held.objects} objects were listed instead of {2 * size}")
        rows.append(HolderRow(way, size, held.memory))
    return rows


def _with_scaled(report: MemoryReport, largest: int) -> list[HolderRow]:
    """Add what was too large to hold, in proportion to the largest that was held."""
    rows = list(report.holders)
    for way in WAYS:
        measured = [row for row in rows if row.way == way]
        if not measured or measured[-1].sandboxes >= largest:
            continue
        each = report.held_each_kib(measured[-1])
        empty = next(row.memory.rss_kib for row in rows if row.sandboxes == 0)
        scaled = empty + round(each * largest)
        rows.append(HolderRow(way, largest, Memory(scaled, scaled), is_scaled=True))
    return rows

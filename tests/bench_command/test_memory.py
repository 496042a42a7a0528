"""The memory bench: what it parses, and one tiny run with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lean_sandbox.bench.holder import Held
from lean_sandbox.bench.memory import HolderRow, MemoryReport, measure_memory
from lean_sandbox.bench.process import BenchError, Memory, cpu_ticks, parse_status, process
from lean_sandbox.clock import SystemClock


def test_resident_memory_is_read_from_the_status_of_a_process() -> None:
    """VmRSS and VmHWM are taken, in KiB."""
    text = "Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   5120 kB\nVmRSS:\t   4096 kB\nThreads:\t1\n"
    assert parse_status(text) == Memory(rss_kib=4096, peak_kib=5120)


@pytest.mark.parametrize("text", ["", "Name:\tzombie\nState:\tZ (zombie)\n", "VmRSS:\n"])
def test_a_status_without_memory_is_said_in_words(text: str) -> None:
    """A process that has ended has no memory to tell."""
    with pytest.raises(BenchError, match="memory"):
        parse_status(text)


def test_a_process_that_is_gone_has_no_cpu_time() -> None:
    """A pid that is not there raises the bench's own error."""
    with pytest.raises(BenchError, match="ended"):
        cpu_ticks(2**22 + 1)


async def test_a_process_that_fails_shows_the_end_of_its_log(tmp_path: Path) -> None:
    """What went wrong in another process is not lost."""
    async with process("lean_sandbox.no_such_module", log=tmp_path / "log") as worker:
        with pytest.raises(BenchError, match="no_such_module"):
            await worker.read(Held)


async def test_a_restart_over_healthy_sandboxes_writes_nothing_and_gets_nothing() -> None:
    """Budget of a restart: list pages and nothing else; every way of holding holds everything."""
    report = await measure_memory(SystemClock(), sizes=(0, 20), unpruned_most=10, quiet_s=0.3)
    assert [row.sandboxes for row in report.controller] == [0, 20]
    for row in report.controller:
        assert (row.asked.writes, row.asked.gets, row.asked.failures) == (0, 0, 0)
        assert row.asked.open_watches >= 3
        assert row.asked.lists <= 2 * row.asked.open_watches
        assert 10_000 < row.memory.rss_kib <= row.memory.peak_kib < 120_000
    assert {(row.way, row.sandboxes) for row in report.holders} == {
        ("empty", 0),
        ("while", 20),
        ("after", 20),
    }


def test_figures_for_each_sandbox_are_above_the_empty_process() -> None:
    """KiB each is the growth over nothing, divided by the number."""
    holders = [
        HolderRow("empty", 0, Memory(1000, 1000)),
        HolderRow("never", 10, Memory(1430, 1430)),
    ]
    report = MemoryReport(1, 1, [], holders)
    assert report.held_each_kib(report.holders[1]) == 43.0
    assert report.held_each_kib(report.holders[0]) == 0.0

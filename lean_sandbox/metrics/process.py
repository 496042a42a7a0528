"""The process itself, as every Prometheus client tells of it."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.version import build_facts, python_version


def build_info(into: Exposition) -> None:
    """Add what is running; the labels have the reference's names and this runtime's values."""
    into.one(families.BUILD_INFO, 1, *build_facts())
    into.one(families.PYTHON_INFO, 1, sys.implementation.name, python_version())


def process(into: Exposition, proc: Path = Path("/proc")) -> None:
    """Add CPU time, memory, files and the garbage collector; without /proc only what is known."""
    used = os.times()
    into.one(families.CPU_SECONDS, round(used.user + used.system, 2))
    for generation, counted in enumerate(gc.get_stats()):
        into.one(families.COLLECTIONS, counted["collections"], str(generation))
        into.one(families.COLLECTED, counted["collected"], str(generation))
        into.one(families.UNCOLLECTABLE, counted["uncollectable"], str(generation))
    try:
        fields = (proc / "self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        booted = (proc / "stat").read_text("ascii", "replace").partition("\nbtime ")[2].split()[0]
        limits = (proc / "self/limits").read_text("ascii", "replace")
        open_files = sum(1 for _ in (proc / "self/fd").iterdir())
    except (OSError, IndexError):
        # Not Linux, or hidden from us: there is nothing more to tell.
        return
    into.one(families.VIRTUAL_BYTES, int(fields[20]))
    into.one(families.RESIDENT_BYTES, int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))
    started_s = int(booted) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    into.one(families.START_TIME, started_s)
    into.one(families.OPEN_FILES, open_files)
    most = limits.partition("Max open files")[2].split()
    if most and most[0].isdigit():
        into.one(families.MOST_FILES, int(most[0]))

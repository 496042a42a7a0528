"""What one scrape of a process finds."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import structlog

from lean_sandbox import log as logging
from lean_sandbox.clock import Clock
from lean_sandbox.controllers.metrics import cache_size, survey
from lean_sandbox.http.server import Answer, Request, not_found
from lean_sandbox.manager.manager import Manager
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import TEXT, Exposition, dropped_series, render
from lean_sandbox.version import build_facts, python_version

log = structlog.get_logger("metrics")

# A page serves everybody who asks in this time: how often it is made is not up to its readers.
_FRESH_S: Final = 1.0
# A larger page is written as it is made, for each reader anew.
_MOST_HELD_BYTES: Final = 1024 * 1024


class Scraper:
    """Reads the metrics of a process: of its manager, by ``others``, and what is nobody's part."""

    def __init__(
        self, manager: Manager, clock: Clock, *others: Callable[[Exposition], None]
    ) -> None:
        self._manager = manager
        self._clock = clock
        self._others = others
        self._incomplete = 0
        self._rendering = anyio.Lock()
        self._page: tuple[float, Answer] | None = None

    async def scrape(self) -> Exposition:
        """Read everything; lets other tasks run while it counts what the caches hold."""
        found = Exposition()
        caches = self._manager.caches
        if not await survey(found, caches.sandboxes, list(caches.pools), self._clock):
            self._incomplete += 1
            log.error("scrape_incomplete", missing=families.SANDBOXES.name)
        for cache in self._manager.all_caches:
            cache_size(found, cache)
        await anyio.lowlevel.checkpoint()
        self._manager.collect(found)
        for collect in self._others:
            collect(found)
        found.one(families.LOG_DROPPED, logging.dropped_lines())
        found.one(families.SERIES_DROPPED, dropped_series())
        found.one(families.SCRAPE_INCOMPLETE, self._incomplete)
        found.one(families.BUILD_INFO, 1, *build_facts())
        found.one(families.PYTHON_INFO, 1, sys.implementation.name, python_version())
        process(found)
        return found

    async def handle(self, request: Request) -> Answer:
        """Answer ``/metrics``: a page made within the last second serves all who ask."""
        if request.path != "/metrics":
            return not_found(request)
        async with self._rendering:
            if self._page is not None and self._clock.monotonic() - self._page[0] < _FRESH_S:
                return self._page[1]
            self._page = None
            found = await self.scrape()
            blocks: list[bytes] = []
            size = 0
            for block in render(found):
                blocks.append(block.encode())
                size += len(blocks[-1])
                if size > _MOST_HELD_BYTES:
                    return Answer(200, (block.encode() for block in render(found)), TEXT)
                await anyio.lowlevel.checkpoint()
            answer = Answer(200, b"".join(blocks), TEXT)
            self._page = self._clock.monotonic(), answer
            return answer


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

"""What one scrape of a process finds; everything is read at that moment and nothing before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from lean_sandbox.metrics.process import build_info, process
from lean_sandbox.metrics.registry import Exposition, dropped_series
from lean_sandbox.metrics.text import content_type, render

log = structlog.get_logger("metrics")

# A page serves everybody who asks in this time: how often it is made is not up to its readers.
_FRESH_S: Final = 1.0
# A larger page is written as it is made, for each reader anew.
_MOST_HELD_BYTES: Final = 1024 * 1024


class Scraper:
    """Reads the metrics of a process: of its manager, by ``others``, and what is nobody's part."""

    def __init__(
        self, manager: Manager, clock: Clock, *, others: Iterable[Callable[[Exposition], None]] = ()
    ) -> None:
        self._manager = manager
        self._clock = clock
        self._collectors = (manager.collect, *others)
        self._incomplete = 0
        self._rendering = anyio.Lock()
        self._pages: dict[str, tuple[float, Answer]] = {}

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
        for collect in self._collectors:
            collect(found)
        found.one(families.LOG_DROPPED, logging.dropped_lines())
        found.one(families.SERIES_DROPPED, dropped_series())
        found.one(families.SCRAPE_INCOMPLETE, self._incomplete)
        build_info(found)
        process(found)
        return found

    async def handle(self, request: Request) -> Answer:
        """Answer ``/metrics``."""
        if request.path != "/metrics":
            return not_found(request)
        return await self._page(content_type(request.accept))

    async def _page(self, form: str) -> Answer:
        """Return the page: one made within the last second serves all who ask."""
        async with self._rendering:
            known = self._pages.get(form)
            if known is not None and self._clock.monotonic() - known[0] < _FRESH_S:
                return known[1]
            self._pages.clear()
            found = await self.scrape()
            blocks: list[bytes] = []
            size = 0
            for block in render(found, form):
                blocks.append(block.encode())
                size += len(blocks[-1])
                if size > _MOST_HELD_BYTES:
                    return Answer(200, (block.encode() for block in render(found, form)), form)
                await anyio.lowlevel.checkpoint()
            answer = Answer(200, b"".join(blocks), form)
            self._pages[form] = (self._clock.monotonic(), answer)
            return answer

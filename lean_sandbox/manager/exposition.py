"""What one scrape of a controller finds; everything is read at that moment and nothing before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import anyio
import anyio.lowlevel
import structlog

from lean_sandbox import log as logging
from lean_sandbox.clock import Clock
from lean_sandbox.controllers.metrics import cache_size, survey
from lean_sandbox.http.server import Answer, Handler, Request, not_found
from lean_sandbox.manager import metrics_sources as sources
from lean_sandbox.manager.manager import Manager, ManagerStatistics
from lean_sandbox.metrics import families
from lean_sandbox.metrics.process import build_info, process
from lean_sandbox.metrics.registry import Exposition, dropped_series
from lean_sandbox.metrics.text import content_type, render

log = structlog.get_logger("metrics")

# A page serves everybody who asks in this time: how often it is made is not up to its readers.
_FRESH_S: Final = 1.0
# A larger page is written as it is made, for each reader anew.
_MOST_HELD_BYTES: Final = 1024 * 1024


class Source(Protocol):
    """Anything that counts for itself."""

    def collect(self, into: Exposition) -> None:
        """Add its series as they are now."""


class Scraper:
    """Reads a controller's metrics. ``sources`` are read besides the controller's own parts."""

    def __init__(
        self,
        controller: Manager,
        clock: Clock,
        *,
        sources: Iterable[Source] = (),
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._sources = tuple(sources)
        self._incomplete = 0
        self._rendering = anyio.Lock()
        self._pages: dict[str, tuple[float, Answer]] = {}

    async def scrape(self) -> Exposition:
        """Read everything; lets other tasks run while it counts what the caches hold."""
        found = Exposition()
        await self._objects(found)
        counted = self._controller.statistics()
        self._parts(found, counted)
        await anyio.lowlevel.checkpoint()
        self._kinds(found, counted)
        for source in self._sources:
            source.collect(found)
        if self._controller.elector is not None:
            self._controller.elector.collect(found)
        found.one(families.LOG_DROPPED, logging.dropped_lines())
        found.one(families.SERIES_DROPPED, dropped_series())
        found.one(families.SCRAPE_INCOMPLETE, self._incomplete)
        build_info(found)
        process(found)
        return found

    async def _objects(self, found: Exposition) -> None:
        extensions = self._controller.extensions
        pools = list(self._controller.caches.pools) if extensions is not None else []
        if not await survey(found, self._controller.caches.sandboxes, pools, self._clock):
            self._incomplete += 1
            log.error("scrape_incomplete", missing=families.SANDBOXES.name)

    def _parts(self, found: Exposition, counted: ManagerStatistics) -> None:
        controller = self._controller
        controller.sandboxes.metrics.collect(found)
        extensions = controller.extensions
        if extensions is not None:
            extensions.claims.metrics.collect(found)
            extensions.claims.warm.collect(found)
        for one in controller.controllers:
            one.collect(found)
        counted.requests.collect(found)
        sources.absence(found, controller.sandboxes.absence())
        for name, recorder in controller.recorders.items():
            recorder.collect(found, name)

    def _kinds(self, found: Exposition, counted: ManagerStatistics) -> None:
        failing = self._controller.problems
        for cache in self._controller.all_caches:
            plural = cache.kind.resource.plural
            kind = counted.kinds[plural]
            sources.watches(found, plural, kind.cache, kind.passed_by_leaf, kind.watch)
            found.one(families.WATCH_PROBLEMS, int(plural in failing), plural)
            cache_size(found, plural, cache)

    def handler(self) -> Handler:
        """Return what answers ``/metrics``."""

        async def handle(request: Request) -> Answer:
            if request.path != "/metrics":
                return not_found(request)
            return await self._page(content_type(request.accept))

        return handle

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

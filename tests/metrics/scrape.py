"""Scraping a controller over HTTP, and reading what came."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from lean_sandbox.config.options import Settings
from lean_sandbox.manager.server import Listeners
from tests.support.clock import FakeClock
from tests.support.world import World

__all__ = ["ON_FREE_PORTS", "Scraped", "scraping", "serving"]

Labels = dict[str, str]

# Settings of listeners that get in nobody's way.
ON_FREE_PORTS: dict[str, Any] = {
    "metrics_bind_address": "127.0.0.1:0",
    "health_probe_bind_address": "127.0.0.1:0",
}


class Scraped:
    """What a scrape found, by names and labels."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self.families = {one.name: one for one in families}
        self._values = {
            (sample.name, _frozen(sample.labels)): sample.value
            for one in self.families.values()
            for sample in one.samples
        }

    def value(self, name: str, /, **labels: str) -> float:
        """Return the value of one series; fails when there is none."""
        return self._values[name, _frozen(labels)]

    def find(self, name: str, /, **labels: str) -> list[tuple[Labels, float]]:
        """Return the series of a name whose labels include those given."""
        return [
            (json.loads(frozen), value)
            for (sample, frozen), value in self._values.items()
            if sample == name and labels.items() <= json.loads(frozen).items()
        ]

    def count(self, histogram: str, /, **labels: str) -> float:
        """Return how many values a histogram holds, in all its series that have the labels."""
        return sum(value for _, value in self.find(f"{histogram}_count", **labels))

    def bounds(self, histogram: str, /, **labels: str) -> list[str]:
        """Return the bounds of a histogram as they are written."""
        found = self.find(f"{histogram}_bucket", **labels)
        return list(dict.fromkeys(labels["le"] for labels, _ in found))


def _frozen(labels: Labels) -> str:
    return json.dumps(labels, sort_keys=True)


class Scraper:
    """A client of the listeners of a world."""

    def __init__(self, listeners: Listeners, client: httpx.AsyncClient, clock: FakeClock) -> None:
        self.listeners = listeners
        self.clock = clock
        self.client = client

    def url(self, path: str, listener: str = "metrics") -> str:
        """Return where a path is served."""
        return f"http://127.0.0.1:{self.listeners.ports[listener]}{path}"

    async def get(self, path: str, listener: str = "metrics", **headers: str) -> httpx.Response:
        """Ask for a path."""
        return await self.client.get(self.url(path, listener), headers=headers)

    async def scrape(self) -> Scraped:
        """Scrape and read the classic text."""
        answer = await self.get("/metrics")
        assert answer.status_code == 200
        return Scraped(text_string_to_metric_families(answer.text))


@asynccontextmanager
async def serving(world: World, **settings: Any) -> AsyncIterator[Scraper]:
    """Serve a world's metrics and health on free ports."""
    wanted = Settings(**{**ON_FREE_PORTS, **settings})
    listeners = Listeners(world.whole, wanted, world.clock, world.trace)
    async with anyio.create_task_group() as group, httpx.AsyncClient() as client:
        group.start_soon(listeners.run)
        yield Scraper(listeners, client, world.clock)
        group.cancel_scope.cancel()


async def scraping(world: World) -> Scraped:
    """Scrape a world once."""
    async with serving(world) as scraper:
        return await scraper.scrape()

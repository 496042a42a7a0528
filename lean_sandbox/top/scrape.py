"""Reads what a controller says of itself, this one or the reference's, on its page of metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from lean_sandbox.clock import Clock
from lean_sandbox.kube.connection import to_listener
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.kube.transport import Transport
from lean_sandbox.top.figures import ControllerFigures, Scraped
from lean_sandbox.watch.kind import Key

_PATH: Final = "/metrics"
_TIMEOUT_S: Final = 5.0
_MOST_BYTES: Final = 64 * 1024 * 1024

_CREATIONS: Final = "agent_sandbox_claim_creation_total"
_STUCK: Final = "lean_sandbox_warmpool_not_progressing"
_FAILING: Final = "lean_sandbox_watch_failing"
_LEADING: Final = "leader_election_master_status"
_MEMORY: Final = "process_resident_memory_bytes"
_CPU: Final = "process_cpu_seconds_total"
_QUEUED: Final = "workqueue_depth"
_WANTED: Final = (_CREATIONS, _STUCK, _FAILING, _LEADING, _MEMORY, _CPU, _QUEUED)


class MetricsReader:
    """Reads the metrics of one controller."""

    def __init__(self, url: str, ca_file: Path | None, clock: Clock) -> None:
        """Raises ConfigError for an address that is none, and an authority that is unreadable."""
        connection = to_listener(url, ca_file)
        self._url = connection.server
        self._clock = clock
        self._transport = Transport(connection, clock=clock)
        # The monotonic time of the page before, in seconds, and the CPU seconds that it showed.
        self._before: tuple[float, float] | None = None

    async def read(self) -> Scraped | str:
        """Return what the page says, or why it cannot be read; one GET."""
        try:
            answer = await self._transport.request(
                "GET", _PATH, timeout_s=_TIMEOUT_S, max_body_bytes=_MOST_BYTES
            )
        except ControlPlaneError as error:
            return f"{self._url}{_PATH} cannot be read: {error}"
        if answer.status != 200:
            return f"{self._url}{_PATH} cannot be read: it answers {answer.status}"
        try:
            found = scraped(self._url, answer.body.decode("utf-8", "replace"))
        except ValueError as error:
            return f"{self._url}{_PATH} cannot be read: it is no page of metrics: {error}"
        return msgspec.structs.replace(found, controller=self._with_cores(found.controller))

    def _with_cores(self, found: ControllerFigures) -> ControllerFigures:
        before = self._before
        if found.cpu_seconds is None:
            return found
        now_s = self._clock.monotonic()
        self._before = now_s, found.cpu_seconds
        # A controller that was started anew has used less.
        if before is None or now_s <= before[0] or found.cpu_seconds < before[1]:
            return found
        cores = (found.cpu_seconds - before[1]) / (now_s - before[0])
        return msgspec.structs.replace(found, cores=round(cores, 3))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


def scraped(url: str, page: str) -> Scraped:
    """Return what a page of metrics says. Raises ValueError for lines that break the format."""
    sums: dict[str, float] = {}
    launches: dict[str, float] = {}
    causes = {}
    failing = set()
    for sample in _samples(page):
        name = sample.name
        labels = sample.labels
        value = sample.value
        sums[name] = sums.get(name, 0.0) + value
        if name == _CREATIONS:
            launch = labels.get("launch_type", "")
            launches[launch] = launches.get(launch, 0.0) + value
        elif name == _STUCK and value:
            pool = Key(labels.get("namespace", ""), labels.get("warmpool_name", ""))
            causes[pool] = labels.get("cause", "")
        elif name == _FAILING and value:
            failing.add(labels.get("resource", ""))
    controller = ControllerFigures(
        url=url,
        memory_bytes=sums.get(_MEMORY),
        cpu_seconds=sums.get(_CPU),
        queued=sums.get(_QUEUED),
        warm=launches.get("warm", 0.0) if launches else None,
        cold=launches.get("cold", 0.0) if launches else None,
        is_leading=bool(sums[_LEADING]) if _LEADING in sums else None,
        failing_watches=tuple(sorted(failing)),
    )
    return Scraped(controller, causes)


def _samples(page: str) -> Iterator[Sample]:
    # The parser takes 16 us a line, and a page has 10,000 lines of which a dozen count here.
    lines = [line for line in page.split("\n") if line.startswith(_WANTED)]
    for family in text_string_to_metric_families("\n".join(lines)):
        for sample in family.samples:
            if sample.name in _WANTED:
                yield sample

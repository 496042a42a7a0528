"""The controller that is measured: its counters, its process, and when it has come to rest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec

from lean_sandbox.bench.counts import Cost, Snapshot, read_metrics
from lean_sandbox.bench.plane import Asked
from lean_sandbox.bench.process import BenchError, Worker, cpu_ticks, memory_of
from lean_sandbox.clock import Clock
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.kube.transport import Transport

QUIET_LIMIT_S = 180.0
_SCRAPE_S = 15.0
# A process that is never at rest for so long is judged by its requests.
_CPU_LIMIT_S = 60.0
_LOOKS = 4
_LOOK_S = 0.25
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct, frozen=True):
    """CPU time and resident memory of a process so far; None where /proc does not tell."""

    cpu_s: float | None
    rss_kib: float | None


class Mark(msgspec.Struct, frozen=True):
    """The counters at the beginning of a stretch that is measured."""

    snapshot: Snapshot


def process_usage(pid: int | None) -> Usage:
    """Read /proc. Raises BenchError when the process has ended though there is a /proc."""
    if pid is None or not os.path.isdir("/proc/self"):  # noqa: PTH112 - no Path made at 20 Hz
        return Usage(None, None)
    return Usage(cpu_ticks(pid) * _TICK_S, memory_of(pid).rss_kib)


class Subject:
    """A running controller. ``plane`` is the embedded server, whose audit log checks the counts."""

    def __init__(
        self,
        clock: Clock,
        *,
        pid: int | None,
        metrics: Transport | None,
        path: str,
        plane: Worker | None,
    ) -> None:
        self.pid = pid
        self._clock = clock
        self._metrics = metrics
        self._path = path
        self._plane = plane

    async def snapshot(self, *, process_first: bool = False) -> Snapshot:
        """Read all counters; what cannot be read is None. Raises BenchError for one that fails.

        The process is read after its metrics or before them: what answering them costs is then not
        between two snapshots of which the later reads the process first.
        """
        usage = process_usage(self.pid) if process_first else None
        found = await self._scrape()
        usage = usage or process_usage(self.pid)
        if usage.cpu_s is None:
            return found
        return msgspec.structs.replace(found, cpu_s=usage.cpu_s, rss_kib=usage.rss_kib)

    async def _scrape(self) -> Snapshot:
        if self._metrics is None:
            return Snapshot()
        try:
            answer = await self._metrics.request("GET", self._path, timeout_s=_SCRAPE_S)
        except ControlPlaneError as error:
            raise BenchError(f"the controller's metrics cannot be read: {error}") from error
        if answer.status != 200:
            raise BenchError(
                f"the controller's metrics at {self._metrics.host}{self._path} are answered"
                f" with {answer.status}; give the address of a plain HTTP endpoint"
            )
        return read_metrics(answer.body.decode("utf-8", "replace"))

    async def begin(self) -> Mark:
        """Begin a stretch: from here on requests count."""
        if self._plane is not None:
            await self._plane.ask(Asked)
        return Mark(await self.snapshot())

    async def end(self, mark: Mark) -> tuple[Cost, int | None]:
        """End a stretch: its cost, and how far the audit log differs from the counters.

        The difference is the number of requests that only one of the two has seen; None without an
        audit log.
        """
        cost = (await self.snapshot(process_first=True)).since(mark.snapshot)
        if self._plane is None or cost.requests is None:
            return cost, None
        return cost, await self._audit(self._plane, mark)

    async def _audit(self, plane: Worker, mark: Mark) -> int:
        """Compare both counts since the mark; again where a request came between the two looks."""
        audited: Counter[str] = Counter()
        differs = 0
        for _ in range(_LOOKS):
            audited.update((await plane.ask(Asked)).requests)
            counted = (await self.snapshot()).since(mark.snapshot).by_kind()
            kinds = {*audited, *counted}
            differs = sum(abs(audited[kind] - counted.get(kind, 0)) for kind in kinds)
            if not differs:
                break
            await self._clock.sleep(_LOOK_S)
        return differs

    async def quiet(self, quiet_s: float, after: str) -> None:
        """Wait until the controller has done nothing for ``quiet_s``.

        That is: used next to no CPU, which is looked up without disturbing it; where /proc does not
        tell, or it never rests that much, made no request. Raises BenchError after three minutes.
        """
        if process_usage(self.pid).cpu_s is not None:
            limit_s = QUIET_LIMIT_S if self._metrics is None else _CPU_LIMIT_S
            # One tick is what timers of an idle process come to.
            if await self._rests(self._ticks, 1, quiet_s, limit_s):
                return
        if self._metrics is not None and await self._rests(
            self._requests, 0, quiet_s, QUIET_LIMIT_S
        ):
            return
        raise BenchError(f"waited {QUIET_LIMIT_S:g} s for the controller to rest after {after}")

    async def _rests(
        self, count: Callable[[], Awaitable[int]], forgiven: int, quiet_s: float, limit_s: float
    ) -> bool:
        """Wait until a counter has grown by no more than ``forgiven`` for ``quiet_s``."""
        deadline = self._clock.monotonic() + limit_s
        last, since = await count(), self._clock.monotonic()
        while self._clock.monotonic() < deadline:
            await self._clock.sleep(quiet_s / 4)
            found = await count()
            if found - last > forgiven:
                last, since = found, self._clock.monotonic()
            elif self._clock.monotonic() - since >= quiet_s:
                return True
        return False

    async def _ticks(self) -> int:
        return round((process_usage(self.pid).cpu_s or 0.0) / _TICK_S)

    async def _requests(self) -> int:
        return ((await self._scrape()).requests or Counter()).total()


@asynccontextmanager
async def open_subject(
    clock: Clock, *, pid: int | None, metrics_url: str, plane: Worker | None = None
) -> AsyncIterator[Subject]:
    """Open a running controller by its process id, its metrics, or both.

    Raises ConfigError for an address that is none.
    """
    if not metrics_url:
        yield Subject(clock, pid=pid, metrics=None, path="", plane=plane)
        return
    url = urlsplit(metrics_url)
    connection = Connection(f"{url.scheme}://{url.netloc}", source="--against")
    transport = Transport(connection, clock=clock, user_agent="bench-metrics")
    try:
        yield Subject(clock, pid=pid, metrics=transport, path=url.path or "/metrics", plane=plane)
    finally:
        await transport.aclose()

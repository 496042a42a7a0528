"""The process of a controller: its scrapes, listeners, signals, memory and end."""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import structlog
from anyio.abc import TaskGroup

from lean_sandbox import log as logging
from lean_sandbox import signals
from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.config.options import OPTIONS, Settings
from lean_sandbox.controllers.metrics import survey
from lean_sandbox.http.server import Answer, Endpoint, Handler, Request, bind, health, not_found
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.kube.resources import SANDBOXCLAIMS
from lean_sandbox.manager.manager import Manager, build_client
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import TEXT, Exposition, dropped_series, render
from lean_sandbox.runtime.tracing import open_tracing
from lean_sandbox.version import build_facts

if TYPE_CHECKING:
    from lean_sandbox.manager.leaderelection import Elector
    from lean_sandbox.trace.recorder import Recorder

log = structlog.get_logger("endpoints")

_OFF = "0"
# Of mallopt(3). Blocks from this size on come from the system and go back to it when freed.
# Left alone, the C library raises the size to that of the largest block freed, and what large
# objects leave behind stays: 16 MiB after forty Sandboxes with 250 kB each.
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 128 * 1024
# How often a moment without work is looked for, and the least time between two releases of memory.
_CHECK_S: Final = 1.0
_TRIM_INTERVAL_S: Final = 300.0
# A page serves all readers for this long: they do not decide how often it is made.
_FRESH_S: Final = 1.0


class Scraper:
    """Reads the metrics of a process: of its manager, of ``others``, and of the process itself."""

    def __init__(
        self, manager: Manager, clock: Clock, *others: Callable[[Exposition], None]
    ) -> None:
        self._manager = manager
        self._clock = clock
        self._others = others
        self._rendering = anyio.Lock()
        # The page, for as long as it is fresh.
        self._page: Answer | None = None
        self._has_page = anyio.Event()

    async def scrape(self) -> Exposition:
        """Read everything; lets other tasks run while it counts what the caches hold."""
        found = Exposition()
        caches = self._manager.caches
        if not await survey(found, caches.sandboxes, list(caches.pools), self._clock):
            log.error("scrape_incomplete", missing=families.SANDBOXES.name)
        for cache in self._manager.all_caches:
            found.one(families.CACHE_OBJECTS, len(cache), cache.kind.name)
        await anyio.lowlevel.checkpoint()
        self._manager.collect(found)
        for collect in self._others:
            collect(found)
        found.one(families.LOG_DROPPED, logging.dropped_lines())
        found.one(families.SERIES_DROPPED, dropped_series())
        found.one(families.BUILD_INFO, 1, *build_facts())
        process_metrics(found)
        return found

    async def handle(self, _request: Request) -> Answer:
        """Answer ``/metrics``: a page made within the last second serves all readers.

        Its size is bounded by that of the families.
        """
        async with self._rendering:
            if self._page is None:
                blocks = []
                for block in render(await self.scrape()):
                    blocks.append(block.encode())
                    await anyio.lowlevel.checkpoint()
                self._page = Answer(200, b"".join(blocks), TEXT)
                self._has_page.set()
            return self._page

    async def drop_pages(self) -> None:
        """Drop each page when it is not fresh any more, until cancelled."""
        while True:
            await self._has_page.wait()
            await self._clock.sleep(_FRESH_S)
            self._page = None
            self._has_page = anyio.Event()


def process_metrics(into: Exposition, proc: Path = Path("/proc")) -> None:
    """Add CPU time, memory and files; without /proc only CPU time."""
    used = os.times()
    into.one(families.CPU_SECONDS, round(used.user + used.system, 2))
    try:
        fields = (proc / "self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        booted = (proc / "stat").read_text("ascii", "replace").partition("\nbtime ")[2].split()[0]
        limits = (proc / "self/limits").read_text("ascii", "replace")
        open_files = sum(1 for _ in (proc / "self/fd").iterdir())
    except (OSError, IndexError):
        # Not Linux, or not readable: there is nothing more to add.
        return
    into.one(families.VIRTUAL_BYTES, int(fields[20]))
    into.one(families.RESIDENT_BYTES, int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))
    started_s = int(booted) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    into.one(families.START_TIME, started_s)
    into.one(families.OPEN_FILES, open_files)
    if most := re.search(r"Max open files +(\d+)", limits):
        into.one(families.MOST_FILES, int(most[1]))


class Listeners:
    """Serves the health and the metrics of a manager.

    The addresses are bound before anything runs.
    """

    def __init__(
        self, manager: Manager, settings: Settings, clock: Clock, trace: Recorder | None = None
    ) -> None:
        """Bind what the settings ask for. Raises ConfigError, naming the flag."""
        self._scraper = Scraper(manager, clock, self.collect)
        # What the metrics listener serves, by the first two names of a path.
        self._pages: dict[str, Handler] = {"/metrics": self._scraper.handle}
        if trace is not None:
            self._pages["/debug/trace"] = trace.handle
        everything = settings.enable_pprof_debug
        if settings.enable_pprof or everything:
            from lean_sandbox.http.pprof import profiles  # noqa: PLC0415 -- rarely used

            self._pages["/debug/pprof"] = profiles(clock, everything=everything)
        self._bound: list[tuple[Endpoint, socket.socket]] = []
        tls = None
        if settings.metrics_secure_serving:
            from lean_sandbox.http.tls import Certificates  # noqa: PLC0415 -- rarely used

            tls = Certificates(
                settings.metrics_cert_dir, settings.tls_min_version, settings.tls_cipher_suites
            ).context
        metrics = Endpoint("metrics", self._answer, clock, tls=tls)
        probes = Endpoint("health", health(lambda: manager.not_ready), clock)
        places = (
            (metrics, "metrics-bind-address", settings.metrics_bind_address),
            (probes, "health-probe-bind-address", settings.health_probe_bind_address),
        )
        try:
            for endpoint, flag, address in places:
                if address != _OFF:
                    self._bound.append((endpoint, bind(f"--{flag}", _nearby(flag, address))))
        except BaseException:
            for _, made in self._bound:
                made.close()
            raise

    async def _answer(self, request: Request) -> Answer:
        if request.path == "/":
            from lean_sandbox.http.page import page as front  # noqa: PLC0415 -- rarely asked for

            return await front(request)
        page = self._pages.get("/".join(request.path.split("/")[:3]))
        return not_found(request) if page is None else await page(request)

    @property
    def ports(self) -> dict[str, int]:
        """The port of each listener, for callers that asked for a free one."""
        return {one.name: int(made.getsockname()[1]) for one, made in self._bound}

    def collect(self, into: Exposition) -> None:
        """Add the series of the listeners."""
        for endpoint, _ in self._bound:
            endpoint.collect(into)

    async def run(self) -> None:
        """Answer until cancelled."""
        log.info("listening", **self.ports)
        async with anyio.create_task_group() as group:
            group.start_soon(self._scraper.drop_pages)
            for endpoint, made in self._bound:
                group.start_soon(endpoint.serve, made)


def _nearby(flag: str, address: str) -> str:
    # Outside of a Pod nobody but this machine has a reason to ask, unless another address is named.
    is_named = address != OPTIONS[flag].default
    return address if is_named or "KUBERNETES_SERVICE_HOST" in os.environ else f"127.0.0.1{address}"


async def run_until_signalled(settings: Settings, *, companions_only: bool = False) -> bool:
    """Run the manager and its listeners until a signal to end; a second one stops at once.

    With ``companions_only`` it runs companions alone, even beside another controller. Returns
    whether it ended in good order, not cut short by a second signal. Raises ConfigError, or a group
    of it, before anything is watched or written; NotLeaderError when the Lease was lost.
    """
    _allow_open_files()
    clock = SystemClock()
    tracing = open_tracing() if settings.enable_tracing else None
    connection = load(settings.kubeconfig or None, settings.context or None, clock=clock)
    hurried = anyio.Event()
    ends = AsyncExitStack()
    try:
        if tracing is not None:
            ends.push_async_callback(tracing.aclose)
        client = build_client(settings, clock, connection)
        ends.push_async_callback(client.transport.aclose)
        elector = _open_elector(settings, client, companions_only=companions_only)
        if elector is not None:
            ends.push_async_callback(elector.client.transport.aclose)
        manager = Manager(
            client,
            settings,
            clock=clock,
            elector=elector,
            tracing=tracing,
            companions_only=companions_only,
        )
        trace = open_trace(settings, clock, manager, client)
        listeners = Listeners(manager, settings, clock, trace)
        async with anyio.create_task_group() as group:
            group.start_soon(listeners.run)
            group.start_soon(_stop_on_signal, manager, group, hurried)
            group.start_soon(trim_when_idle, manager, clock)
            await _check_alone(settings, client, clock, manager, alone=not companions_only)
            if not companions_only:
                group.start_soon(_tell_what_is_missing, connection, settings, clock)
            await manager.run()
            group.cancel_scope.cancel()
    finally:
        await _close(ends, at_once=hurried.is_set())
    if elector is not None and elector.loss is not None:
        raise elector.loss
    return not hurried.is_set()


async def _close(ends: AsyncExitStack, *, at_once: bool) -> None:
    with anyio.CancelScope(shield=True) as scope:
        if at_once:
            scope.cancel()
        await ends.aclose()


def open_trace(
    settings: Settings, clock: Clock, manager: Manager, client: Client
) -> Recorder | None:
    """Return what records the manager's work from now on, if the settings ask for it."""
    if not settings.trace_entries:
        return None
    from lean_sandbox.trace.recorder import Recorder  # noqa: PLC0415 -- rarely used

    trace = Recorder(settings.trace_entries, clock)
    trace.follow(manager.all_caches, manager.controllers, client.transport)
    return trace


async def _check_alone(
    settings: Settings, client: Client, clock: Clock, manager: Manager, *, alone: bool
) -> None:
    """Raise ConfigError if another controller is active, unless the settings have decided.

    The process does without the Lease if it may not contend for it. In a cluster the operator
    decides.
    """
    decided = settings.leader_elect or settings.allow_second_controller
    if decided or client.transport.connection.in_cluster:
        return
    from lean_sandbox.manager.preflight import another_controller, make_lease  # noqa: PLC0415 -- seldom used

    elector = manager.elector
    home = settings.leader_election_namespace if elector is None else elector.namespace
    refused = await another_controller(client, clock, namespace=home) if alone else None
    if refused is not None:
        raise refused
    if elector is not None and not await make_lease(
        client, clock, namespace=home, lease=elector.lease
    ):
        manager.elector = None


async def _tell_what_is_missing(connection: Connection, settings: Settings, clock: Clock) -> None:
    from lean_sandbox.manager.rights import tell_missing_rights  # noqa: PLC0415 -- only wanted once

    if not settings.extensions:
        log.info("extensions_off", unserved=SANDBOXCLAIMS.group, fix="--extensions")
    await tell_missing_rights(connection, settings, clock)


def _open_elector(
    settings: Settings, client: Client, *, companions_only: bool = False
) -> Elector | None:
    if settings.leader_elect is False:
        return None
    is_beside = settings.allow_second_controller and not client.transport.connection.in_cluster
    if settings.leader_elect is None and is_beside:
        return None
    from lean_sandbox.manager.leaderelection import open_elector  # noqa: PLC0415 -- not always used

    return open_elector(settings, client, companions_only=companions_only)


async def _stop_on_signal(manager: Manager, group: TaskGroup, hurried: anyio.Event) -> None:
    """Stop at the first signal, and at once at the second."""
    with anyio.open_signal_receiver(*signals.ending()) as received:
        first = await anext(received)
        if manager.is_active:
            name = signal.Signals(first).name
            structlog.get_logger("controller").info("stopping", signal=name)
            manager.stop()
        else:
            group.start_soon(_end_waiting, manager, group)
        await anext(received)
        hurried.set()
        group.cancel_scope.cancel()


async def _end_waiting(manager: Manager, group: TaskGroup) -> None:
    """End a process that is not active yet; release the Lease if it is just acquiring it."""
    if manager.elector is not None:
        await manager.elector.release()
    group.cancel_scope.cancel()


def _allow_open_files() -> None:
    """Raise the limit of open files: each watch and each request in flight has a connection.

    Low limits are for programs that use select(2).
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _release_free_memory() -> None:
    import ctypes  # noqa: PLC0415 -- only wanted once

    gc.collect()
    # Both are of glibc; elsewhere nothing is to be done.
    library = ctypes.CDLL(None)
    trim = getattr(library, "malloc_trim", None)
    tune = getattr(library, "mallopt", None)
    if trim is not None and tune is not None:
        tune(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        trim(0)


async def trim_when_idle(
    manager: Manager, clock: Clock, release: Callable[[], None] = _release_free_memory
) -> None:
    """Give free memory back to the system at moments without work, until cancelled.

    After a start over 10,000 Sandboxes with their Pods, 8 to 12 MiB of 76 are free in the
    allocator; large objects that have come and gone leave more. ``release`` is called soon after
    the start, then at most every five minutes, and only if there were reconciles since.
    """
    done = -1
    wait_s = _CHECK_S
    while True:
        await clock.sleep(wait_s)
        wait_s = _TRIM_INTERVAL_S
        if manager.reconciles == done:
            continue
        if manager.is_idle:
            release()
            done = manager.reconciles
        else:
            wait_s = _CHECK_S

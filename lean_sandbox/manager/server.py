"""The process of a controller: its listeners (spec, 7.4), its signals, its memory and its end."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.config.sources import ConfigMap
from lean_sandbox.http.server import Answer, Endpoint, Handler, Request, bind, health
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.kube.kubeconfig import load, own_namespace
from lean_sandbox.kube.transport import Transport
from lean_sandbox.manager.exposition import Scraper
from lean_sandbox.manager.manager import Manager, open_client
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.runtime.tracing import open_tracing

if TYPE_CHECKING:
    from lean_sandbox.manager.leaderelection import Elector

Tune: TypeAlias = Callable[[ConfigMap], Settings]

log = structlog.get_logger("endpoints")

_OFF = "0"
# Of mallopt(3). Blocks from this size on come from the system and go back to it when freed.
# Left alone, the C library raises the size to that of the largest block freed, and what large
# objects leave behind stays: 16 MiB after forty Sandboxes with 250 kB each.
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 128 * 1024


class Listeners:
    """Serves metrics and health of a process; binds the addresses before anything else is done."""

    def __init__(self, settings: Settings, manager: Manager, clock: Clock) -> None:
        """Bind what the settings ask for. Raises ConfigError, naming the flag."""
        self._sockets: dict[str, socket.socket] = {}
        self._endpoints: list[Endpoint] = []
        tls = None
        if settings.metrics_secure_serving:
            from lean_sandbox.http.tls import Certificates  # noqa: PLC0415 -- rarely used

            tls = Certificates(
                settings.metrics_cert_dir, settings.tls_min_version, settings.tls_cipher_suites
            ).context
        try:
            address = _nearby(settings.metrics_bind_address, default=":8080")
            if address != _OFF:
                self._sockets["metrics"] = bind("--metrics-bind-address", address)
                metrics = Scraper(manager, clock, self.collect).handle
                handler = _with_debug(metrics, settings, manager, clock)
                self._endpoints.append(Endpoint("metrics", handler, clock, tls=tls))
            bound = _bind_health(settings)
            if bound is not None:
                self._sockets["health"] = bound
                self._endpoints.append(_health(clock, lambda: manager.not_ready))
        except BaseException:
            for made in self._sockets.values():
                made.close()
            raise

    @property
    def ports(self) -> dict[str, int]:
        """The port of each listener, for who asked for a free one."""
        return {name: int(made.getsockname()[1]) for name, made in self._sockets.items()}

    def collect(self, into: Exposition) -> None:
        """Add what the listeners have answered."""
        for endpoint in self._endpoints:
            endpoint.collect(into)

    async def run(self) -> None:
        """Answer until cancelled."""
        log.info("listening", **self.ports)
        async with anyio.create_task_group() as group:
            for endpoint, made in zip(self._endpoints, self._sockets.values(), strict=True):
                group.start_soon(endpoint.serve, made)


def _bind_health(settings: Settings) -> socket.socket | None:
    address = _nearby(settings.health_probe_bind_address or _OFF, default=":8081")
    return bind("--health-probe-bind-address", address) if address != _OFF else None


def _health(clock: Clock, not_ready: Callable[[], str | None]) -> Endpoint:
    return Endpoint("health", health({"healthz": lambda: None, "readyz": not_ready}), clock)


def _nearby(address: str, default: str) -> str:
    # Outside of a Pod nobody but this machine has a reason to ask, unless an address is named.
    is_in_a_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    address = address or default
    return address if is_in_a_pod or address != default else f"127.0.0.1{address}"


def _with_debug(metrics: Handler, settings: Settings, manager: Manager, clock: Clock) -> Handler:
    debug: dict[str, Handler] = {}
    if settings.enable_pprof or settings.enable_pprof_debug:
        from lean_sandbox.http.pprof import profiles  # noqa: PLC0415 -- rarely used

        debug["pprof"] = profiles(clock, everything=settings.enable_pprof_debug)
    if manager.trace is not None:
        debug["trace"] = manager.trace.handle

    async def handle(request: Request) -> Answer:
        folder, _, rest = request.path.removeprefix("/").partition("/")
        handler = debug.get(rest.partition("/")[0]) if folder == "debug" else None
        return await (handler or metrics)(request)

    return handle


async def run_until_signalled(settings: Settings, tune: Tune | None = None) -> bool:
    """Run the manager with its listeners until SIGINT or SIGTERM; a second signal stops at once.

    ``tune`` gives the settings with what the ConfigMap of all controllers says, where there is one.
    Returns whether it ended in good order, which a second signal cuts short. Raises ConfigError
    before anything is watched or written, and NotLeaderError when the Lease was lost.
    """
    clock = SystemClock()
    tracing = open_tracing() if settings.enable_tracing else None
    connection = load(settings.kubeconfig or None, settings.context or None, clock=clock)
    if tune is not None:
        tuned = await _tuned(settings, connection, clock, tune)
        if tuned is None:
            return True
        settings = tuned
    client = open_client(settings, clock, connection)
    elector = _open_elector(settings, client)
    hurried = anyio.Event()
    refused: ConfigError | None = None
    try:
        manager = Manager(client, settings, clock=clock, elector=elector, tracing=tracing)
        listeners = Listeners(settings, manager, clock)
        async with anyio.create_task_group() as group:
            group.start_soon(listeners.run)
            group.start_soon(_stop_on_signal, manager, elector, group, hurried)
            group.start_soon(_trim_when_idle, lambda: manager.is_idle, clock)
            # In a cluster its operator decides whether to begin beside another controller.
            is_alone = elector is None and not connection.in_cluster
            if is_alone and not settings.allow_second_controller:
                from lean_sandbox.manager.preflight import refusal  # noqa: PLC0415

                home = settings.leader_election_namespace
                refused = await refusal(client, clock, namespace=home)
            if refused is None:
                await manager.run()
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await client.transport.aclose()
            if elector is not None:
                await elector.client.transport.aclose()
            if tracing is not None:
                await anyio.to_thread.run_sync(tracing.close)
    if refused is not None:
        raise refused
    if elector is not None and elector.loss is not None:
        raise elector.loss
    return not hurried.is_set()


async def _tuned(
    settings: Settings, connection: Connection, clock: Clock, tune: Tune
) -> Settings | None:
    """Return the settings with what the ConfigMap says, ``None`` when a signal came before it."""
    namespace = settings.config_map_namespace
    namespace = namespace or (own_namespace() if connection.in_cluster else "")
    if not namespace:
        return settings
    # Neither this nor its libraries where nothing is read.
    from lean_sandbox.manager.preflight import read_config_map  # noqa: PLC0415

    client = Client(Transport(connection, clock=clock), timeout_s=settings.request_timeout)
    listening = _bind_health(settings)
    found: ConfigMap | None = None
    is_answered = False
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_end_on_signal, group.cancel_scope)
            if listening is not None:
                endpoint = _health(clock, lambda: "the ConfigMap is not read")
                group.start_soon(endpoint.serve, listening)
            found = await read_config_map(client, clock, namespace)
            is_answered = True
            group.cancel_scope.cancel()
    finally:
        if listening is not None:
            listening.close()
        with anyio.CancelScope(shield=True):
            await client.transport.aclose()
    if not is_answered:
        return None
    return settings if found is None else tune(found)


async def _end_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return


def _open_elector(settings: Settings, client: Client) -> Elector | None:
    if settings.leader_elect is False:
        return None
    if settings.leader_elect is None and not client.transport.connection.in_cluster:
        return None
    from lean_sandbox.manager.leaderelection import open_elector  # noqa: PLC0415 -- not on a laptop

    return open_elector(settings, client)


async def _stop_on_signal(
    manager: Manager, elector: Elector | None, group: TaskGroup, hurried: anyio.Event
) -> None:
    is_ending = False
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for signum in signals:
            if is_ending or manager.sandboxes.queue.is_closed:
                hurried.set()
                group.cancel_scope.cancel()
                return
            is_ending = True
            if manager.is_active:
                name = signal.Signals(signum).name
                structlog.get_logger("controller").info("stopping", signal=name)
                manager.stop()
            else:
                group.start_soon(_end_waiting, elector, group)


async def _end_waiting(elector: Elector | None, group: TaskGroup) -> None:
    """End a process that does not work yet; a Lease that it is just being given goes back."""
    if elector is not None:
        await elector.release()
    group.cancel_scope.cancel()


def _release_free_memory() -> None:
    gc.collect()
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415 -- only wanted once, and not everywhere

    library = ctypes.CDLL(None)
    trim, tune = getattr(library, "malloc_trim", None), getattr(library, "mallopt", None)
    if trim is not None and tune is not None:
        tune(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        trim(0)


async def _trim_when_idle(is_idle: Callable[[], bool], clock: Clock) -> None:
    # What the start brought leaves 8 to 12 MiB of 76 free in the allocator, over 10,000 Sandboxes
    # with their Pods. After two minutes of work without a pause they stay there.
    for _ in range(120):
        await clock.sleep(1.0)
        if is_idle():
            _release_free_memory()
            return

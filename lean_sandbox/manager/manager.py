"""The parts of a process over one client, and how they start and stop."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import structlog
from anyio.abc import TaskStatus

from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.common import Shared
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.limits import Limits
from lean_sandbox.kube.resources import PVCS, SANDBOXES
from lean_sandbox.kube.telemetry import RequestCounters
from lean_sandbox.kube.transport import Transport
from lean_sandbox.manager.wallclock import WallClock
from lean_sandbox.manager.wiring import build_controllers, build_shared
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.tracing import TRACING, Tracing
from lean_sandbox.runtime.workers import ReconcileOutcome
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Delta

if TYPE_CHECKING:
    from lean_sandbox.manager.leaderelection import Elector

log = structlog.get_logger("controller")

_EVENT_DRAIN_S = 3.0


class Manager:
    """The caches, watches, controllers and Events of one process, over one client.

    ``run`` returns after :meth:`stop` once running reconciles have ended; cancelling it stops at
    once. With an ``elector`` it only watches until that has been elected, the client's transport
    lets no write pass while it is not, and ``run`` returns at once when the Lease is lost.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        *,
        clock: Clock,
        uniform: Callable[[], float] = random.random,
        tracing: Tracing | None = None,
        elector: Elector | None = None,
        companions_only: bool = False,
    ) -> None:
        """With ``companions_only`` there are only the companions that the settings name."""
        self._client = client
        #: May be set to None before :meth:`run`.
        self.elector = elector
        self._clock = clock
        self._tracing = tracing
        self._page_size = settings.page_size
        self.synced = anyio.Event()
        #: Whether reconciles run: Sandboxes and Pods are known, and the election, if any, was won.
        self.is_active = False
        # Set once all kinds are known, or when there is nothing more to wait for.
        self._may_extend = anyio.Event()
        shared = build_shared(client, settings, clock, uniform)
        self.caches = shared.caches
        self.reflectors = shared.reflectors
        self.wakes = shared.wakes
        self.recorders = shared.recorders
        self._metrics = shared.metrics
        #: Everything that reconciles; the first begins before the kinds of the others are listed.
        self.controllers = [] if companions_only else build_controllers(shared)
        # Companions hold up none of them.
        self._waited_for = _names(self.controllers)
        companions = _companions(shared)
        self.controllers += companions
        watched = [cache for one in self.controllers for cache in one.watched]
        #: The cache of each kind that is or may be watched.
        self.all_caches: list[Cache[Any]] = list(dict.fromkeys(watched))
        # What has to be known of a namespace before a Sandbox in it is reconciled. Claims for
        # volumes are watched when the first Sandbox needs one.
        self._own = _names(self.controllers[:1])
        self._wall_clock = WallClock(client, clock, shared.server_time, self.controllers)
        self._leave_out_namespaces(settings, companions)

    def _leave_out_namespaces(self, settings: Settings, companions: list[Controller[Any]]) -> None:
        """Leave out the namespaces that are ending, or were not listed."""
        for controller in self.controllers:
            controller.is_ending = self._client.ending.__contains__
            if settings.namespaces:
                needed = self._own if controller is self.controllers[0] else self._waited_for
                controller.is_unlisted = partial(self.reflectors.lacks, needed)
        for companion in companions:
            companion.is_unlisted = partial(self.reflectors.lacks, _names([companion]))
        caches = self.caches
        for made in (caches.sandboxes, caches.claims, caches.pools, caches.templates):
            made.handlers.append(self._seen)

    def _seen(self, delta: Delta[Any]) -> None:
        # A namespace in which somebody makes something is not ending.
        if delta.is_new:
            self._client.ending.forget(delta.key.namespace)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch, wait until the caches are in sync, then reconcile until stopped.

        Sandboxes are served as soon as their own kinds are listed: a kind of the extensions that is
        missing, or may not be watched, holds up the extensions alone. Started when all are in sync.
        """
        TRACING.set(self._tracing)
        if self.elector is not None:
            self._client.transport.fence = self.elector.fence
            for controller in self.controllers:
                controller.queue.is_paused = True
        async with anyio.create_task_group() as group:
            self.reflectors.group = group
            for cache in self.all_caches:
                if cache is not self.caches.pvcs:
                    self.reflectors.start(cache)
            group.start_soon(self._complete, task_status)
            group.start_soon(self._wall_clock.follow)
            await self.reflectors.synced(*self._own)
            self._wall_clock.note_server_time()
            if self.elector is None:
                await self._work()
            else:
                await self._work_when_elected(self.elector)
            group.cancel_scope.cancel()

    async def _complete(self, task_status: TaskStatus[None]) -> None:
        await self.reflectors.synced(*self._waited_for)
        self._may_extend.set()
        await self.reflectors.synced()
        self.synced.set()
        # Those of the controllers, of the companions, or of both.
        known = [len(cache) for cache in self.all_caches if cache.kind.resource is SANDBOXES]
        log.info("caches_synced", sandboxes=max(known, default=0))
        task_status.started()

    async def _work_when_elected(self, elector: Elector) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._contend, elector, group.cancel_scope)
            await elector.acquired.wait()
            await self._list_what_changed()
            for controller in self.controllers:
                controller.enqueue_all("elected")
            await self._work()
            # A request of a cancelled reconcile may still be carried out: then the Lease expires.
            if not any(
                one.workers.outcomes[ReconcileOutcome.CANCELLED] for one in self.controllers
            ):
                await elector.release()
            group.cancel_scope.cancel()

    async def _list_what_changed(self) -> None:
        """List kinds again if the watch has shown of many objects only that they changed.

        That takes a request for each page of them; reconciles would take one for each object.
        """
        sandboxes = self.caches.sandboxes
        for sandbox in list(sandboxes):
            # Of two writes of its status within a second rows show but one.
            if sandbox.version > sandboxes.gate.listed_at(sandbox.key.namespace):
                sandboxes.mark(sandbox, status=None)
        unknown = (
            (sandboxes, sum(sandbox.needs_fetch for sandbox in sandboxes)),
            (self.caches.pods, sum(pod.needs_fetch for pod in self.caches.pods)),
        )
        many = (cache for cache, number in unknown if number > self._page_size)
        await self.reflectors.list_anew(*many)

    async def _contend(self, elector: Elector, work: anyio.CancelScope) -> None:
        await elector.run()
        work.cancel()

    async def _work(self) -> None:
        """Reconcile until stopped, and give the last Events a moment to be posted."""
        self.is_active = True
        recorders = self.recorders.values()
        async with anyio.create_task_group() as recording:
            for recorder in recorders:
                recording.start_soon(recorder.run)
            async with anyio.create_task_group() as working:
                working.start_soon(self.controllers[0].workers.run)
                await self._may_extend.wait()
                for controller in self.controllers[1:]:
                    working.start_soon(controller.workers.run)
            for recorder in recorders:
                recorder.close()
            with suppress(TimeoutError):
                async with self._clock.limit(_EVENT_DRAIN_S):
                    for recorder in recorders:
                        await recorder.ended.wait()
            recording.cancel_scope.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether the caches are in sync and no reconcile runs or waits to run."""
        return self.synced.is_set() and not any(one.queue.is_busy for one in self.controllers)

    @property
    def reconciles(self) -> int:
        """How many reconciles have ended."""
        return sum(sum(one.workers.outcomes.values()) for one in self.controllers)

    def stop(self) -> None:
        """Begin no more reconciles; running ones may finish within the grace."""
        for controller in self.controllers:
            controller.queue.close()
        self._may_extend.set()

    @property
    def not_ready(self) -> str | None:
        """Why the caches are not in sync yet, by resource; ``None`` once they were."""
        if self.synced.is_set():
            return None
        missing = self.reflectors.missing
        return ", ".join(f"{name}: {why}" for name, why in missing.items()) or "not started"

    def collect(self, into: Exposition) -> None:
        """Add the series of all parts."""
        for controller in self.controllers:
            controller.collect(into)
        self._metrics.collect(into)
        for name, recorder in self.recorders.items():
            recorder.collect(into, name)
        for cache in self.all_caches:
            cache.collect(into)
            self.reflectors.collect(into, cache.kind.name)
        transport = self._client.transport
        transport.counted.collect(into)
        into.one(families.TOKEN_READS_FAILED, transport.connection.auth.failed_reads)
        if self.elector is not None:
            self.elector.collect(into)


def _names(controllers: list[Controller[Any]]) -> list[str]:
    """Return the kinds that controllers watch, but for claims for volumes, which may wait."""
    watched = [cache.kind for one in controllers for cache in one.watched]
    return [kind.name for kind in watched if kind.resource is not PVCS]


def _companions(shared: Shared) -> list[Controller[Any]]:
    if not shared.settings.companions:
        return []
    from lean_sandbox.companions.build import build_companions  # noqa: PLC0415 -- opt-in

    return list(build_companions(shared))


def build_client(settings: Settings, clock: Clock, connection: Connection) -> Client:
    """Build the client that the settings describe; makes no request."""
    limits = Limits(
        max_in_flight=settings.max_requests_in_flight,
        max_spare=max(1, settings.max_requests_in_flight // 8),
        qps=max(0.0, settings.kube_api_qps),
        burst=settings.kube_api_burst,
    )
    counted = RequestCounters(with_times=settings.enable_rest_client_metrics)
    transport = Transport(connection, clock=clock, limits=limits, counted=counted)
    log.info("connecting", server=connection.server, source=connection.source)
    return Client(transport, timeout_s=settings.request_timeout)

"""The wiring: which parts there are, how they are joined, and how they start and stop."""

from __future__ import annotations

import random
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from filters import FilterStatistics
from lean_sandbox.api.client import Client
from lean_sandbox.api.config import load
from lean_sandbox.api.events import EventRecorder
from lean_sandbox.api.limits import Limits
from lean_sandbox.api.telemetry import Observer
from lean_sandbox.api.transport import Transport, TransportStatistics
from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.reconcile.sandbox.act import Act, Intakes
from lean_sandbox.reconcile.sandbox.children import Children
from lean_sandbox.reconcile.sandbox.launch import Launches
from lean_sandbox.reconcile.sandbox.notes import Notes
from lean_sandbox.reconcile.sandbox.reconciler import Options, SandboxReconciler, Tracing
from lean_sandbox.reconcile.sandbox.teardown import Teardown
from lean_sandbox.reconcile.sandbox.wake import Wake, pod_wakes, service_wakes
from lean_sandbox.run.absent import KnownAbsent, Proof
from lean_sandbox.run.queue import LOW, NORMAL, Item, QueueStatistics, WorkQueue
from lean_sandbox.run.workers import Dispatcher, PassReport, Result, WorkerStatistics
from lean_sandbox.settings import Settings
from lean_sandbox.watch import kinds
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.informer import Informer, WatchOptions, WatchStatistics
from lean_sandbox.watch.intake import Intake, IntakeStatistics
from lean_sandbox.watch.kind import Kind, Notice
from lean_sandbox.watch.objects import PodEntry, SandboxEntry, ServiceEntry
from lean_sandbox.watch.representation import Representation
from lean_sandbox.watch.store import Key

__all__ = [
    "Controller",
    "ControllerStatistics",
    "KindStatistics",
    "open_client",
    "run_controller",
    "run_until_signalled",
]

log = structlog.get_logger("controller")

_ABSENT_ENTRIES = 100_000
_ABSENT_TTL_S = 600.0
_EVENT_DRAIN_S = 3.0
_REPORTING_CONTROLLER = "sandbox-controller"


@dataclass(frozen=True, slots=True)
class KindStatistics:
    """What was watched of one kind and what became of it."""

    watch: tuple[WatchStatistics, ...]
    intake: IntakeStatistics
    filter: FilterStatistics
    cached: int


@dataclass(frozen=True, slots=True)
class ControllerStatistics:
    """A snapshot of everything that is counted."""

    kinds: dict[str, KindStatistics]
    queue: QueueStatistics
    workers: WorkerStatistics
    transport: TransportStatistics


class Controller:
    """The Sandbox controller over one client.

    ``run`` returns after :meth:`stop` once running passes have ended; cancelling it stops at once.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        uniform: Callable[[], float] = random.random,
        tracing: Tracing | None = None,
        watch_options: WatchOptions | None = None,
        on_pass: Callable[[PassReport[Key]], None] | None = None,
    ) -> None:
        self._client = client
        self._settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._uniform = uniform
        self._watch_options = watch_options or WatchOptions(
            page_size=self._settings.page_size,
            streams_initial_list=self._settings.streams_initial_list,
        )
        self.caches = Caches()
        self.queue: WorkQueue[Key] = WorkQueue(self._clock)
        self.synced = anyio.Event()
        self._recorder_done = anyio.Event()
        self._absent = KnownAbsent(_ABSENT_ENTRIES, _ABSENT_TTL_S, self._clock)
        order = kinds.representations(Representation(self._settings.watch_representation))
        only_tracked = self._settings.cache_label_selectors
        self.intakes = Intakes(
            sandboxes=Intake(kinds.sandboxes(order), self.caches.sandboxes, self._on_sandbox),
            pods=Intake(kinds.pods(order), self.caches.pods, self._on_pod),
            services=Intake(
                kinds.services(order, only_tracked=only_tracked),
                self.caches.services,
                self._on_service,
            ),
            pvcs=Intake(kinds.pvcs(), self.caches.pvcs, lambda _notice: None),
        )
        self._informers: dict[str, list[Informer[Any]]] = {}
        self._group: TaskGroup | None = None
        self._launches = Launches(self._settings.sandbox_status_window)
        self._recorder = (
            None
            if self._settings.disable_sandbox_events
            else EventRecorder(
                client, self._clock, _REPORTING_CONTROLLER, f"{_REPORTING_CONTROLLER}-{hostname()}"
            )
        )
        notes = Notes(self._recorder)
        act = Act(
            client,
            self.intakes,
            self.queue,
            self._absent,
            timeout_s=self._settings.request_timeout,
        )
        self._children = Children(
            self.caches,
            act,
            self._absent,
            notes,
            clock=self._clock,
            pvcs_ready=self._pvcs_ready,
            write_behind_s=self._settings.sandbox_write_behind_window,
        )
        self._reconciler = SandboxReconciler(
            self.caches,
            act,
            self._children,
            Teardown(self.caches, act, self._absent),
            notes,
            self._launches,
            clock=self._clock,
            options=Options(cluster_domain=self._settings.cluster_domain),
            tracing=tracing,
        )
        self._dispatcher: Dispatcher[Key] = Dispatcher(
            self.queue,
            self._pass,
            count=self._settings.sandbox_concurrent_workers,
            clock=self._clock,
            deadline_s=self._settings.reconcile_deadline,
            grace_s=self._settings.shutdown_grace,
            on_result=on_pass,
            retry_no_later_than_s=self._reconciler.due_in_s,
            name="sandbox",
        )

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch, wait until the caches are in sync, then reconcile until stopped."""
        async with anyio.create_task_group() as group:
            self._group = group
            for intake in (self.intakes.sandboxes, self.intakes.pods, self.intakes.services):
                self._start(intake.kind, intake)
            if self._recorder is not None:
                group.start_soon(self._record, self._recorder)
            for informers in list(self._informers.values()):
                for informer in informers:
                    await informer.synced.wait()
            self.synced.set()
            log.info("caches_synced", sandboxes=len(self.caches.sandboxes))
            task_status.started()
            await self._dispatcher.run()
            await self._drain_events()
            group.cancel_scope.cancel()

    async def _drain_events(self) -> None:
        """Give the Events of the last passes a moment to be posted."""
        if self._recorder is None:
            return
        self._recorder.close()
        await self._clock.wait(self._recorder_done, _EVENT_DRAIN_S)

    async def _record(self, recorder: EventRecorder) -> None:
        await recorder.run()
        self._recorder_done.set()

    def stop(self) -> None:
        """Begin no more passes; running ones may finish within the grace."""
        self.queue.close()

    def seen_versions(self) -> dict[str, list[str | None]]:
        """Return up to which resource version each watch has taken everything in, by resource."""
        return {
            plural: [informer.version for informer in informers]
            for plural, informers in self._informers.items()
        }

    @property
    def problems(self) -> dict[str, str]:
        """What each watch is failing with at present, by resource; empty while all is well."""
        return {
            plural: informer.problem
            for plural, informers in self._informers.items()
            for informer in informers
            if informer.problem is not None
        }

    def statistics(self) -> ControllerStatistics:
        """Return the counters as they are now."""
        intakes: tuple[Intake[Any], ...] = (
            self.intakes.sandboxes,
            self.intakes.pods,
            self.intakes.services,
            self.intakes.pvcs,
        )
        return ControllerStatistics(
            kinds={
                intake.kind.resource.plural: KindStatistics(
                    watch=tuple(
                        informer.statistics
                        for informer in self._informers.get(intake.kind.resource.plural, ())
                    ),
                    intake=intake.statistics,
                    filter=intake.filter.statistics(),
                    cached=len(intake.store),
                )
                for intake in intakes
            },
            queue=self.queue.statistics(),
            workers=self._dispatcher.statistics(),
            transport=self._client.transport.statistics(),
        )

    def _start(self, kind: Kind[Any], intake: Intake[Any]) -> None:
        assert self._group is not None
        informers = [
            Informer(
                self._client,
                kind,
                intake,
                clock=self._clock,
                uniform=self._uniform,
                options=self._watch_options,
                namespace=namespace,
            )
            for namespace in self._settings.namespaces or (None,)
        ]
        self._informers[kind.resource.plural] = informers
        for informer in informers:
            self._group.start_soon(informer.run)

    async def _pvcs_ready(self) -> None:
        """Start watching claims when the first Sandbox needs them: most clusters never do."""
        if "persistentvolumeclaims" not in self._informers:
            self._start(self.intakes.pvcs.kind, self.intakes.pvcs)
        for informer in self._informers["persistentvolumeclaims"]:
            await informer.synced.wait()

    async def _pass(self, item: Item[Key]) -> Result:
        return await self._reconciler.reconcile(item.key)

    # -- what wakes ------------------------------------------------------------------------------

    def _on_sandbox(self, notice: Notice[SandboxEntry]) -> None:
        self.queue.add(
            notice.key,
            priority=LOW if notice.initial else NORMAL,
            changes=int(notice.change),
            reason="sandbox gone" if notice.new is None else "sandbox",
            token=notice.token,
        )

    def _on_pod(self, notice: Notice[PodEntry]) -> None:
        key = notice.key
        if notice.new is not None:
            self._absent.forget("pods", key.namespace, key.name)
        elif notice.saw_deletion or (notice.old is not None and notice.old.is_deleting):
            self._absent.remember("pods", key.namespace, key.name, Proof.SYNCED_WATCH)
        else:
            # Its end, forced; or only the end of its tracking label.
            self._children.lost_sight_of_pod(key)
        if not notice.initial:
            self._wake(pod_wakes(notice), notice)

    def _on_service(self, notice: Notice[ServiceEntry]) -> None:
        if not notice.initial:
            self._wake(service_wakes(notice), notice)

    def _wake(self, wakes: list[Wake], notice: Notice[Any]) -> None:
        for wake in wakes:
            if wake.key not in self.caches.sandboxes:
                continue
            self.queue.add(
                wake.key,
                after_s=self._launches.window_s if wake.may_wait else 0.0,
                changes=int(notice.change),
                reason=wake.reason,
                token=notice.token,
            )


def hostname() -> str:
    """Return the name of this host, which in a cluster is the Pod's."""
    return socket.gethostname()


def open_client(settings: Settings, clock: Clock, observer: Observer | None = None) -> Client:
    """Build the client that the settings describe. Raises ConfigError; makes no request."""
    connection = load(settings.kubeconfig or None, settings.context or None, clock=clock)
    limits = Limits(
        max_in_flight=settings.max_requests_in_flight,
        reserved_for_client=max(0, min(4, settings.max_requests_in_flight - 1)),
        qps=settings.kube_api_qps if settings.kube_api_qps > 0 else None,
        burst=settings.kube_api_burst,
    )
    transport = Transport(connection, clock=clock, limits=limits, observer=observer)
    log.info("connecting", server=connection.server, source=connection.source)
    return Client(transport, timeout_s=settings.request_timeout)


async def run_controller(
    settings: Settings, *, task_status: TaskStatus[Controller] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Run the controller until cancelled; starts with the controller once its caches are in sync.

    Raises ConfigError before anything is started.
    """
    clock = SystemClock()
    client = open_client(settings, clock)
    controller = Controller(client, settings, clock=clock)
    try:
        async with anyio.create_task_group() as group:
            await group.start(controller.run)
            task_status.started(controller)
    finally:
        with anyio.CancelScope(shield=True):
            await client.transport.aclose()


async def run_until_signalled(settings: Settings) -> None:
    """Run the controller until SIGINT or SIGTERM; a second signal stops at once.

    Raises ConfigError before anything is started.
    """
    clock = SystemClock()
    client = open_client(settings, clock)
    controller = Controller(client, settings, clock=clock)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_stop_on_signal, controller, group)
            await controller.run()
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await client.transport.aclose()


async def _stop_on_signal(controller: Controller, group: TaskGroup) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for signum in signals:
            if controller.queue.is_closed or not controller.synced.is_set():
                group.cancel_scope.cancel()
                return
            log.info("stopping", signal=signal.Signals(signum).name)
            controller.stop()

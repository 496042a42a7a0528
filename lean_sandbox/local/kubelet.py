"""The simulated kubelet: drives Pods through their lives over the API alone, on any API server.

What a Pod does beyond starting, getting ready and going away when deleted is asked for by the Pod:
see :mod:`lean_sandbox.local.script` for the annotations under ``kubelet.lean-sandbox/``, image
names and commands. What comes next for a Pod is decided by pure functions (:mod:`.pods`,
:mod:`.scheduling`); this module keeps the timers and makes the requests.

Requests: LIST and WATCH of Pods and Nodes; POST nodes where asked to; for each start one POST
pods/binding (where it schedules) and 1, 2 or 4 PATCHes of pods/status; for each deletion one
DELETE, and before it one PATCH of pods/status with the last phase of a Pod that had started. A Pod
that fails to start, is evicted or fits nowhere gets an Event, one that does well gets none.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

import anyio
import structlog
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import Conflict, ControlPlaneError, NotFound
from lean_sandbox.kube.events import EventRecorder
from lean_sandbox.kube.resources import NODES, PODS, ObjectReference
from lean_sandbox.local.addresses import AddressesUsedUpError, AddressPool
from lean_sandbox.local.follow import Follower
from lean_sandbox.local.kubelet_settings import Delay, KubeletSettings, WritesPerStart
from lean_sandbox.local.nodekeeper import NodeKeeper
from lean_sandbox.local.nodes import SIMULATED_LABEL
from lean_sandbox.local.pods import Step, StepKind, next_step
from lean_sandbox.local.podstatus import troubles
from lean_sandbox.local.podview import NodeView, PodView
from lean_sandbox.local.podwriter import PodWriter
from lean_sandbox.local.scheduling import next_binding
from lean_sandbox.local.script import read_script
from lean_sandbox.local.timers import Timers

__all__ = ["Delay", "Kubelet", "KubeletSettings", "WritesPerStart"]

_RETRY_FIRST_S = 0.2
_RETRY_CAP_S = 30.0
log = structlog.get_logger("kubelet")


class _Outcome(Enum):
    DONE = auto()
    AGAIN = auto()
    # Nothing more to do until the Pod changes.
    PARK = auto()


@dataclass(slots=True, eq=False)
class _Entry:
    """One Pod and what is to be done with it."""

    pod: PodView
    # The Node it counts for: where it is, or where it is about to be bound.
    node: str = ""
    step: Step | None = None
    # The number of the step's timer; zero without one.
    timer: int = 0
    is_busy: bool = False
    failures: int = 0
    # The last request of a kind that is answered by an event and not by the Pod.
    asked: StepKind | None = None


class Kubelet:
    """Simulated nodes, their kubelets and, if asked, their scheduler.

    ``chance`` gives the jitter; seed it and the delays are the same again. A kubelet keeps nothing
    that is not in the API: one that starts anew continues where another stopped.
    """

    def __init__(
        self, client: Client, settings: KubeletSettings, *, clock: Clock, chance: random.Random
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._chance = chance
        ranges = (settings.ipv4_range, settings.ipv6_range)
        self._addresses = AddressPool(ranges if settings.dual_stack else ranges[:1])
        self._writer = PodWriter(client, settings, clock, self._addresses)
        self._node_keeper = NodeKeeper(client, settings, clock)
        self._recorder = EventRecorder(client, clock, "kubelet", settings.node_prefix)
        self._entries: dict[str, _Entry] = {}
        self._nodes: dict[str, NodeView] = {}
        self._node_names: dict[str, str] = {}
        self._pods_on: Counter[str] = Counter()
        self._timers: Timers[str] = Timers(clock)
        #: Requests that have failed so far.
        self.errors = 0
        self._pods_synced = anyio.Event()
        self._nodes_synced = anyio.Event()
        self._pod_follower = Follower(
            client,
            clock,
            PODS,
            PodView,
            on_change=self._see_pod,
            on_gone=self._forget_pod,
            on_synced=self._pods_synced.set,
            page_size=settings.page_size,
        )
        self._node_follower = Follower(
            client,
            clock,
            NODES,
            NodeView,
            on_change=self._see_node,
            on_gone=self._forget_node,
            on_synced=self._nodes_synced.set,
            label_selector=_node_selector(settings),
            page_size=settings.page_size,
        )

    @property
    def pods(self) -> int:
        """Number of Pods that are known now."""
        return len(self._entries)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Drive Pods until cancelled; started once Nodes are registered and Pods are listed.

        Raises nothing of its own: what fails is counted and tried again.
        """
        settings = self._settings
        send, receive = anyio.create_memory_object_stream[_Entry](math.inf)
        async with send, receive, anyio.create_task_group() as group:
            if settings.creates_nodes:
                await self._node_keeper.register()
                if settings.node_heartbeat_s > 0:
                    group.start_soon(self._node_keeper.beat)
            group.start_soon(self._recorder.run)
            group.start_soon(self._node_follower.run)
            await self._nodes_synced.wait()
            group.start_soon(self._pod_follower.run)
            await self._pods_synced.wait()
            group.start_soon(self._timers.run, partial(self._ring, send.send_nowait))
            for _ in range(settings.max_in_flight):
                group.start_soon(self._work, receive)
            task_status.started()

    # What the watches say.

    def _see_pod(self, pod: PodView) -> None:
        entry = self._entries.get(pod.metadata.uid)
        if entry is None:
            entry = self._entries[pod.metadata.uid] = _Entry(pod)
            self._note_mistakes(pod)
        elif 0 < _version(pod) <= _version(entry.pod):
            # An event our own write has overtaken, or a list that tells nothing new.
            return
        entry.pod = pod
        self._addresses.note(pod.metadata.uid, tuple(ip.ip for ip in pod.status.podIPs))
        if pod.spec.nodeName:
            self._place(entry, pod.spec.nodeName)
        if not entry.is_busy:
            self._plan(entry)

    def _forget_pod(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is not None:
            entry.timer = 0
            self._place(entry, "")
            self._addresses.free(uid)

    def _see_node(self, node: NodeView) -> None:
        name = node.metadata.name
        old = self._nodes.get(name)
        self._nodes[name] = node
        self._node_names[node.metadata.uid] = name
        if old is None or _offer(old) != _offer(node):
            self._plan_again(name)

    def _forget_node(self, uid: str) -> None:
        name = self._node_names.pop(uid, "")
        if self._nodes.pop(name, None) is not None:
            self._plan_again(name)

    def _plan_again(self, node: str) -> None:
        """Plan afresh for Pods of ``node`` and for those that have none."""
        for entry in self._entries.values():
            if entry.pod.spec.nodeName in ("", node) and not entry.is_busy:
                self._plan(entry)

    def _note_mistakes(self, pod: PodView) -> None:
        mistakes = read_script(pod, self._settings).mistakes
        if mistakes:
            log.warning("annotations cannot be read", keys=mistakes, **_named(pod))

    # What to do next, and when.

    def _plan(self, entry: _Entry) -> None:
        """Set the entry's timer for its next step, or stop it."""
        try:
            step = self._decide(entry)
        except Exception as problem:  # noqa: BLE001 - one odd Pod must not stop the others
            log.warning("nothing can be decided", problem=repr(problem), **_named(entry.pod))
            step = None
        if step is None:
            entry.step, entry.timer = None, 0
            if not entry.pod.spec.nodeName and entry.asked is not StepKind.BIND:
                self._place(entry, "")
            return
        if entry.step is not None and entry.timer and self._is_same(entry.step, step):
            return
        entry.step = step
        if step.kind is StepKind.BIND:
            self._place(entry, step.node)
        delay = step.delay
        self._set_timer(entry, delay.base_s + delay.jitter_s * self._chance.random())

    def _decide(self, entry: _Entry) -> Step | None:
        pod, settings, now = entry.pod, self._settings, self._clock.now()
        if entry.asked is StepKind.DELETE:
            return None
        node = pod.spec.nodeName
        if node:
            if node in self._nodes:
                return next_step(pod, settings, now)
            # The Node was taken away. Where we also schedule, nobody else ends what was on it.
            return next_step(pod, settings, now) if settings.schedules and pod.is_deleting else None
        if pod.is_deleting:
            return next_step(pod, settings, now)
        if not settings.schedules or entry.asked is StepKind.BIND:
            return None
        return next_binding(pod, self._nodes, self._pods_on, settings, now)

    def _is_same(self, old: Step, new: Step) -> bool:
        # The emptiest Node changes all the time; a binding on its way stays with the one it chose.
        if old.kind is StepKind.BIND and new.kind is StepKind.BIND:
            return old.node in self._nodes
        return old.key == new.key

    def _place(self, entry: _Entry, node: str) -> None:
        if entry.node != node:
            if entry.node:
                self._pods_on[entry.node] -= 1
            if node:
                self._pods_on[node] += 1
            entry.node = node

    # Making the requests.

    def _ring(self, hand_over: Callable[[_Entry], None], uid: str, timer: int) -> None:
        entry = self._entries.get(uid)
        if entry is not None and entry.timer == timer and not entry.is_busy:
            entry.is_busy = True
            hand_over(entry)

    def _set_timer(self, entry: _Entry, delay_s: float) -> None:
        entry.timer = self._timers.set(entry.pod.metadata.uid, delay_s)

    async def _work(self, receive: MemoryObjectReceiveStream[_Entry]) -> None:
        async for entry in receive:
            if entry.step is not None:
                await self._carry_out(entry, entry.step)

    async def _carry_out(self, entry: _Entry, step: Step) -> None:
        """Make the step's request, then plan what follows from its outcome."""
        seen = entry.pod
        entry.timer = 0
        try:
            outcome = await self._request(entry, step)
        except Exception as problem:  # noqa: BLE001 - one odd Pod must not stop the others
            outcome = self._outcome_of(entry, problem)
        entry.is_busy = False
        if entry.pod.metadata.uid not in self._entries:
            return
        if outcome is _Outcome.AGAIN and entry.pod is seen:
            entry.failures += 1
            delay_s = _RETRY_FIRST_S * 2.0 ** min(entry.failures, 20)
            self._set_timer(entry, min(_RETRY_CAP_S, delay_s))
            return
        entry.step = None
        if outcome is not _Outcome.PARK or entry.pod is not seen:
            self._plan(entry)

    async def _request(self, entry: _Entry, step: Step) -> _Outcome:
        pod, writer = entry.pod, self._writer
        if step.kind is StepKind.STATUS:
            written = await writer.write_status(pod, step)
            if _version(written) == _version(pod):
                # Nothing came of the write; the same one again would not do better.
                return _Outcome.PARK
            self._tell(pod, written)
            if _version(written) >= _version(entry.pod):
                entry.pod = written
        elif step.kind is StepKind.BIND:
            await writer.bind(pod, step.node)
            entry.asked = step.kind
        else:
            await writer.finish(pod)
            entry.asked = step.kind
        entry.failures = 0
        return _Outcome.DONE

    def _tell(self, before: PodView, after: PodView) -> None:
        """Emit an Event for each trouble that is new."""
        meta, known = after.metadata, troubles(before.status)
        about = ObjectReference("v1", "Pod", meta.name, meta.namespace, meta.uid)
        for reason, message in troubles(after.status).items():
            if known.get(reason) != message:
                self._recorder.emit(about, "Warning", reason, reason, message)

    def _outcome_of(self, entry: _Entry, problem: Exception) -> _Outcome:
        if isinstance(problem, NotFound):
            # Gone already; the watch will say so.
            entry.asked = StepKind.DELETE
            return _Outcome.PARK
        if isinstance(problem, Conflict):
            # What changed comes through the watch.
            return _Outcome.AGAIN
        self.errors += 1
        again = isinstance(problem, AddressesUsedUpError) or (
            isinstance(problem, ControlPlaneError) and problem.retryable
        )
        if not again or entry.failures == 0:
            log.warning("a step failed", problem=repr(problem), again=again, **_named(entry.pod))
        return _Outcome.AGAIN if again else _Outcome.PARK


def _node_selector(settings: KubeletSettings) -> str | None:
    labels = settings.node_labels
    if settings.creates_nodes:
        # Never a machine that runs real containers.
        labels = ((SIMULATED_LABEL, "true"), *labels)
    return ",".join(f"{key}={value}" for key, value in labels) or None


def _offer(node: NodeView) -> tuple[object, ...]:
    """Return what of a Node matters to scheduling; heartbeats do not."""
    return (node.metadata.labels, node.spec.unschedulable, node.max_pods)


def _version(pod: PodView) -> int:
    text = pod.metadata.resource_version
    return int(text) if text.isdecimal() else 0


def _named(pod: PodView) -> dict[str, str]:
    return {"namespace": pod.metadata.namespace, "pod": pod.metadata.name}

"""Simulated nodes, their kubelets and their scheduler: Pods live over the API alone.

What comes next for a Pod is decided by pure functions (:mod:`.pods`, :mod:`.scheduling`); this
module waits and makes the requests, on any API server.

Requests: LIST and WATCH of Pods and Nodes; one POST for each Node, or one PATCH of nodes/status if
it is there; for each start one POST pods/binding and four PATCHes of pods/status; for each deletion
one DELETE, and before it one PATCH of pods/status with the last phase of a Pod that had started. A
Pod that fails to start, is evicted or fits nowhere gets an Event, one that does well gets none.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import AlreadyExists, Conflict, ControlPlaneError, NotFound
from lean_sandbox.kube.events import EventRecorder, EventType
from lean_sandbox.kube.resources import NODES, PODS, ObjectReference
from lean_sandbox.local.addresses import AddressesUsedUpError, AddressPool
from lean_sandbox.local.follow import follow
from lean_sandbox.local.pods import (
    Delay,
    KubeletSettings,
    Step,
    StepKind,
    next_step,
    perform,
    read_script,
)
from lean_sandbox.local.podstatus import FAILED_SCHEDULING, status_patch, troubles
from lean_sandbox.local.podview import (
    NODE_ADDRESS,
    SIMULATED_LABEL,
    Json,
    NodeView,
    PodView,
    node_object,
)
from lean_sandbox.local.scheduling import Scheduler
from lean_sandbox.model.meta import as_version

__all__ = ["Delay", "Kubelet", "KubeletSettings"]

_SCHEDULER = "default-scheduler"
_POD_NETWORK = "10.64.0.0/10"
_RETRY_FIRST_S = 0.4
_RETRY_CAP_S = 30.0
_REQUEST_S = 15.0
log = structlog.get_logger("kubelet")


class _Outcome(Enum):
    DONE = auto()
    AGAIN = auto()
    # Nothing more to do until the Pod changes.
    PARK = auto()


@dataclass(slots=True, eq=False)
class _Entry:
    """A Pod, and what its task has to know."""

    pod: PodView
    changed: anyio.Event = field(default_factory=anyio.Event)
    # The last request of a kind that is answered by an event and not by the Pod.
    asked: StepKind | None = None
    is_gone: bool = False


class Kubelet:
    """Simulated nodes, their kubelets and their scheduler.

    ``chance`` gives the jitter; seed it and the delays are the same again. A kubelet keeps nothing
    that is not in the API: one that starts anew continues where another stopped.
    """

    def __init__(
        self, client: Client, settings: KubeletSettings, *, clock: Clock, chance: random.Random
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._group: TaskGroup
        self._in_flight = anyio.CapacityLimiter(settings.max_in_flight)
        self._writer = _Writer(client, clock, settings.node_prefix)
        self._scheduler = Scheduler(settings)
        self._entries: dict[str, _Entry] = {}
        #: Requests that have failed so far.
        self.errors = 0

    @property
    def pods(self) -> int:
        """Number of Pods that are known now."""
        return len(self._entries)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Drive Pods until cancelled; started once Nodes are registered and Pods are listed.

        Raises nothing of its own: what fails is counted and tried again.
        """
        async with anyio.create_task_group() as self._group:
            self._writer.group = self._group
            for number in range(self._settings.nodes):
                await self._register(f"{self._settings.node_prefix}-{number}")
            following = partial(follow, self._client, self._clock, uniform=self._chance.random)
            nodes = following(
                NODES,
                NodeView,
                on_change=self._see_node,
                on_gone=self._forget_node,
                # Never a machine that runs real containers.
                label_selector=f"{SIMULATED_LABEL}=true",
            )
            pods = following(PODS, PodView, on_change=self._see_pod, on_gone=self._forget_pod)
            for reflector in (nodes, pods):
                self._group.start_soon(reflector.run)
                await reflector.synced.wait()
            task_status.started()

    async def _register(self, name: str) -> None:
        """Create a Node, trying again until it is there and Ready."""
        node = node_object(name, self._clock.now())
        while True:
            try:
                return await self._writer.register(name, node)
            except ControlPlaneError:
                self.errors += 1
                await self._clock.sleep(_RETRY_FIRST_S)

    # What the watches say.

    def _see_pod(self, pod: PodView) -> None:
        meta = pod.metadata
        entry = self._entries.get(meta.uid)
        if entry is None:
            entry = self._entries[meta.uid] = _Entry(pod)
            for mistake in read_script(meta.annotations).mistakes:
                self._writer.emit(pod, "Warning", "InvalidAnnotation", mistake)
            self._group.start_soon(self._live, entry)
        elif 0 < _version(pod) <= _version(entry.pod):
            # An event our own write has overtaken, or a list that tells nothing new.
            return
        self._writer.addresses.note(meta.uid, pod.status.podIP)
        self._renew(entry, pod)
        entry.changed.set()

    def _renew(self, entry: _Entry, pod: PodView) -> None:
        entry.pod = pod
        if pod.status.is_terminal:
            self._place(pod, "")
        elif pod.spec.nodeName:
            self._place(pod, pod.spec.nodeName)

    def _forget_pod(self, pod: PodView) -> None:
        uid = pod.metadata.uid
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._place(entry.pod, "")
            self._scheduler.waiting.discard(uid)
            self._writer.addresses.free(uid)
            entry.is_gone = True
            entry.changed.set()

    def _see_node(self, node: NodeView) -> None:
        if self._scheduler.update_node(node):
            self._plan_again(node.metadata.name)

    def _forget_node(self, node: NodeView) -> None:
        self._scheduler.remove_node(node.metadata.name)
        self._plan_again(node.metadata.name)

    def _plan_again(self, node: str) -> None:
        """Let Pods of ``node`` and those that have none look for their next step."""
        for entry in self._entries.values():
            if entry.pod.spec.nodeName in ("", node):
                entry.changed.set()

    def _place(self, pod: PodView, node: str) -> None:
        """Count a Pod on ``node``, empty for nowhere; wake those that wait if there is room now."""
        if self._scheduler.place(pod, node):
            for uid in self._scheduler.waiting:
                self._entries[uid].changed.set()

    # The life of one Pod.

    async def _live(self, entry: _Entry) -> None:
        """Take one step after the other until the Pod is gone."""
        step: Step | None = None
        due, failures = math.inf, 0
        while not entry.is_gone:
            entry.changed = anyio.Event()
            before, step = step, self._decide(entry)
            if step is not None and (before is None or before.key != step.key):
                wait_s = step.delay.base_s + step.delay.jitter_s * self._chance.random()
                due = self._clock.monotonic() + wait_s
            left_s = None if step is None else due - self._clock.monotonic()
            if await self._clock.wait(entry.changed, left_s) or step is None:
                continue
            outcome = await self._take(entry, step)
            step = None
            failures = failures + 1 if outcome is _Outcome.AGAIN else 0
            if outcome is not _Outcome.DONE:
                again_s = min(_RETRY_CAP_S, _RETRY_FIRST_S * 2.0 ** min(failures - 1, 20))
                await self._clock.wait(
                    entry.changed, again_s if outcome is _Outcome.AGAIN else None
                )

    def _decide(self, entry: _Entry) -> Step | None:
        pod = entry.pod
        node = pod.spec.nodeName
        try:
            if entry.asked is StepKind.DELETE:
                return None
            # A Node that is not ours has a kubelet of its own.
            if self._scheduler.has(node) or (self._scheduler.has_lost(node) and pod.is_deleting):
                return next_step(pod, self._settings, self._clock.now())
            return None if node or entry.asked is StepKind.BIND else self._schedule(pod)
        except Exception as problem:  # noqa: BLE001 - one odd Pod must not stop the others
            log.warning("nothing can be decided", problem=repr(problem), **_named(pod))
            return None

    def _schedule(self, pod: PodView) -> Step | None:
        step = self._scheduler.decide(pod)
        node = step.node if step is not None else ""
        self._place(pod, node)
        if not node and not pod.is_deleting:
            self._scheduler.waiting.add(pod.metadata.uid)
        return step

    async def _take(self, entry: _Entry, step: Step) -> _Outcome:
        """Make the request of a step; whatever fails is told by the outcome."""
        try:
            async with self._in_flight:
                # It may have gone in the queue; what it took now would never be given back.
                return _Outcome.PARK if entry.is_gone else await self._request(entry, step)
        except NotFound:
            # Gone already; the watch will say so.
            entry.asked = StepKind.DELETE
            return _Outcome.PARK
        except Conflict:
            # What changed comes through the watch.
            return _Outcome.AGAIN
        except Exception as problem:  # noqa: BLE001 - one odd Pod must not stop the others
            self.errors += 1
            is_passing = isinstance(problem, AddressesUsedUpError) or (
                isinstance(problem, ControlPlaneError) and problem.retryable
            )
            log.warning(
                "a step failed", problem=repr(problem), again=is_passing, **_named(entry.pod)
            )
            return _Outcome.AGAIN if is_passing else _Outcome.PARK

    async def _request(self, entry: _Entry, step: Step) -> _Outcome:
        pod = entry.pod
        if step.kind is StepKind.STATUS:
            written = await self._writer.write_status(pod, step)
            if _version(written) == _version(pod):
                # Nothing came of the write; the same one again would not do better.
                return _Outcome.PARK
            if not entry.is_gone and _version(written) >= _version(entry.pod):
                self._renew(entry, written)
            return _Outcome.DONE
        if step.kind is StepKind.BIND:
            await self._writer.bind(pod, step.node)
        else:
            # Its containers have stopped.
            await self._writer.delete(pod)
        entry.asked = step.kind
        return _Outcome.DONE


class _Writer:
    """Makes the requests for Nodes and Pods, and tells of troubles by Events."""

    def __init__(self, client: Client, clock: Clock, unbound: str) -> None:
        self._client = client
        self._clock = clock
        # Tells of Pods that no Node has.
        self._unbound = unbound
        self._recorders: dict[str, EventRecorder] = {}
        self.addresses = AddressPool(_POD_NETWORK)
        self.group: TaskGroup

    async def register(self, name: str, node: Json) -> None:
        """Create a Node, or tell that one which is there is Ready."""
        try:
            made = await self._client.create(NODES, None, node, NodeView)
        except AlreadyExists:
            # What it can hold may have been changed by hand.
            status = {"status": {"conditions": node["status"]["conditions"]}}
            await self._client.patch(NODES, None, name, status, bytes, subresource="status")
            return
        if made.spec.taints:
            # A server keeps Pods away from a new Node until a controller finds that it is ready.
            await self._client.patch(NODES, None, name, {"spec": {"taints": None}}, bytes)

    async def bind(self, pod: PodView, node: str) -> None:
        meta = pod.metadata
        body: Json = {
            "apiVersion": "v1",
            "kind": "Binding",
            # The uid keeps a Pod of the same name made meanwhile from being bound.
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._client.create(
            PODS, meta.namespace, body, bytes, name=meta.name, subresource="binding"
        )

    async def delete(self, pod: PodView) -> None:
        meta = pod.metadata
        await self._client.delete(PODS, meta.namespace, meta.name, uid=meta.uid, grace_s=0)

    async def write_status(self, pod: PodView, step: Step) -> PodView:
        """Write what a step makes of a status; return the Pod that the server has then."""
        meta = pod.metadata
        address = ""
        if step.move == "network":
            address = NODE_ADDRESS if pod.spec.hostNetwork else self.addresses.take(meta.uid)
        patch = status_patch(pod.status, perform(pod, step, self._clock.now(), address))
        # Whole arrays are written, so the write holds only against the version it was made from: a
        # condition that another writer set in between would be lost.
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        written = await self._client.patch(
            PODS,
            meta.namespace,
            meta.name,
            {"metadata": guard, "status": patch},
            PodView,
            subresource="status",
            # Operators tell the scheduler's writes from the kubelet's by this name.
            field_manager="kube-scheduler" if step.unschedulable else "kubelet",
        )
        for kind, reason, note in sorted(troubles(written) - troubles(pod)):
            self.emit(written, kind, reason, note)
        return written

    def emit(self, pod: PodView, kind: EventType, reason: str, note: str) -> None:
        """Record an Event of the scheduler, or of the kubelet of the Pod's Node."""
        meta, is_scheduling = pod.metadata, reason == FAILED_SCHEDULING
        reporter = _SCHEDULER if is_scheduling else "kubelet"
        instance = _SCHEDULER if is_scheduling else pod.spec.nodeName or self._unbound
        recorder = self._recorders.get(instance)
        if recorder is None:
            recorder = EventRecorder(self._client, self._clock, reporter, instance)
            self._recorders[instance] = recorder
            self.group.start_soon(recorder.run)
        about = ObjectReference("v1", "Pod", meta.name, meta.namespace, meta.uid)
        recorder.emit(about, kind, reason, "Scheduling" if is_scheduling else reason, note)


def _version(pod: PodView) -> int:
    return as_version(pod.metadata.resource_version)


def _named(pod: PodView) -> dict[str, str]:
    return {"namespace": pod.metadata.namespace, "pod": pod.metadata.name}

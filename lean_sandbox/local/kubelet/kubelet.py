"""Simulated nodes, their kubelets and their scheduler: Pods live over the API alone.

What comes next for a Pod is decided by pure functions (:mod:`.pods`, :mod:`.scheduling`); this
module waits and makes the requests, on any API server.

Requests: LIST and WATCH of Pods and Nodes; one POST for each Node, or one PATCH of nodes/status if
it is there; for each start one POST pods/binding and four PATCHes of pods/status; for each deletion
one DELETE, and before it one PATCH of pods/status with the last phase of a Pod that had started. A
Pod that fails to start, is evicted or fits nowhere gets an Event, one that does well gets none.
"""

from __future__ import annotations

import ipaddress
import math
import random
from dataclasses import dataclass, field
from functools import partial

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from filters import parse_labels
from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import AlreadyExists, Conflict, ControlPlaneError, NotFound
from lean_sandbox.kube.events import EventRecorder, Severity
from lean_sandbox.kube.resources import NODES, PODS, ObjectReference
from lean_sandbox.local.kubelet.follow import follow
from lean_sandbox.local.kubelet.pods import (
    Delay,
    Json,
    KubeletSettings,
    PodStep,
    PodView,
    next_step,
    read_script,
)
from lean_sandbox.local.kubelet.podstatus import FAILED_SCHEDULING, perform, status_patch
from lean_sandbox.local.kubelet.scheduling import (
    NODE_ADDRESS,
    SIMULATED_LABEL,
    NodeView,
    Scheduler,
    next_binding,
    node_object,
)
from lean_sandbox.model.meta import as_version
from lean_sandbox.watch.failures import pause_s

__all__ = ["Delay", "Kubelet", "KubeletSettings"]

_SCHEDULER = "default-scheduler"
_POD_NETWORK = ipaddress.IPv4Network("10.64.0.0/10")
log = structlog.get_logger("kubelet")


@dataclass(slots=True, eq=False)
class _Entry:
    """A Pod, and what its task has to know."""

    pod: PodView
    changed: anyio.Event = field(default_factory=anyio.Event)
    # "bind" or "delete", once asked for: these are answered by an event and not by the Pod.
    asked: str = ""
    failures: int = 0
    is_gone: bool = False


class Kubelet:
    """Simulated nodes, their kubelets and their scheduler.

    ``chance`` gives the jitter; seed it and the delays are the same again. A kubelet keeps nothing
    that is not in the API: one that starts anew continues where another stopped.
    """

    def __init__(
        self, client: Client, settings: KubeletSettings, *, clock: Clock, chance: random.Random
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._group: TaskGroup
        self._follow = partial(follow, client, clock, uniform=chance.random)
        self._in_flight = anyio.CapacityLimiter(settings.max_in_flight)
        self._writer = _Writer(client, clock, settings.node_prefix)
        self._scheduler = Scheduler()
        self._entries: dict[str, _Entry] = {}

    @property
    def pods(self) -> int:
        """Number of Pods that are known now."""
        return len(self._entries)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Drive Pods until cancelled; started once Nodes are registered and Pods are listed.

        Raises nothing of its own: what fails is tried again.
        """
        async with anyio.create_task_group() as self._group:
            self._writer.group = self._group
            for number in range(self._settings.nodes):
                await self._register(f"{self._settings.node_prefix}-{number}")
            nodes = self._follow(
                NODES,
                NodeView,
                on_change=self._see_node,
                on_gone=self._forget_node,
                # Never a machine that runs real containers.
                label_selector=parse_labels(f"{SIMULATED_LABEL}=true"),
            )
            pods = self._follow(PODS, PodView, on_change=self._see_pod, on_gone=self._forget_pod)
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
                await self._clock.sleep(pause_s(1, self._chance.random()))

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
        if pod.status.is_terminal or pod.spec.nodeName:
            self._place(pod, "" if pod.status.is_terminal else pod.spec.nodeName)

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
        step: PodStep | None = None
        due = math.inf
        while not entry.is_gone:
            entry.changed = anyio.Event()
            before = step
            step = self._decide(entry)
            if step is not None and step != before:
                wait_s = step.delay.base_s + step.delay.jitter_s * self._chance.random()
                due = self._clock.monotonic() + wait_s
            left_s = None if step is None else due - self._clock.monotonic()
            if await self._clock.wait(entry.changed, left_s) or step is None:
                continue
            rest_s = await self._take(entry, step)
            step = None
            if rest_s != 0:
                await self._clock.wait(entry.changed, rest_s)

    def _decide(self, entry: _Entry) -> PodStep | None:
        pod = entry.pod
        node = pod.spec.nodeName
        try:
            if entry.asked == "delete":
                return None
            # A Node that is not ours has a kubelet of its own.
            is_lost = node in self._scheduler.lost
            if node in self._scheduler.nodes or (is_lost and pod.is_deleting):
                return next_step(pod, self._settings, self._clock.now())
            return None if node or entry.asked == "bind" else self._schedule(pod)
        except Exception as problem:  # noqa: BLE001 - one odd Pod must not stop the others
            log.warning("nothing can be decided", problem=repr(problem), **_named(pod))
            return None

    def _schedule(self, pod: PodView) -> PodStep | None:
        scheduler = self._scheduler
        step = next_binding(pod, scheduler.nodes, scheduler.uses, self._settings)
        node = step.detail if step is not None and step.name == "bind" else ""
        self._place(pod, node)
        if not node and not pod.is_deleting:
            self._scheduler.waiting.add(pod.metadata.uid)
        return step

    async def _take(self, entry: _Entry, step: PodStep) -> float | None:
        """Make the request of a step; return how long to rest then, None until the Pod changes."""
        try:
            async with self._in_flight:
                # It may have gone in the queue; what it took now would never be given back.
                is_done = not entry.is_gone and await self._request(entry, step)
        except NotFound:
            # Gone already; the watch will say so.
            entry.asked = "delete"
            return None
        except Conflict:
            # What changed comes through the watch.
            pass
        except Exception as problem:  # noqa: BLE001 - one odd Pod must not stop the others
            is_passing = isinstance(problem, ControlPlaneError) and problem.retryable
            log.warning(
                "a step failed", problem=repr(problem), again=is_passing, **_named(entry.pod)
            )
            if not is_passing:
                return None
        else:
            entry.failures = 0
            return 0 if is_done else None
        entry.failures += 1
        return pause_s(entry.failures, self._chance.random())

    async def _request(self, entry: _Entry, step: PodStep) -> bool:
        """Make the request of a step; return whether anything came of it."""
        pod = entry.pod
        if step.name == "bind":
            await self._writer.bind(pod, step.detail)
        elif step.name == "delete":
            # Its containers have stopped.
            await self._writer.delete(pod)
        else:
            written = await self._writer.write_status(pod, step)
            if not entry.is_gone and _version(written) >= _version(entry.pod):
                self._renew(entry, written)
            # One of which nothing came would do no better the next time.
            return _version(written) != _version(pod)
        entry.asked = step.name
        return True


class _Addresses:
    """Hands out addresses of Pods, unique while in use; a freed one comes round again last.

    There are four million, more than Pods that fit into any memory.
    """

    def __init__(self) -> None:
        self._last = 0
        self._held: dict[str, str] = {}
        self._used: set[str] = set()

    def take(self, uid: str) -> str:
        """Return the address of the Pod ``uid``, always the same one until it is freed."""
        while uid not in self._held:
            # The first one names the network.
            self._last = self._last % (_POD_NETWORK.num_addresses - 1) + 1
            address = str(_POD_NETWORK[self._last])
            if address not in self._used:
                self.note(uid, address)
        return self._held[uid]

    def note(self, uid: str, address: str) -> None:
        """Remember that the Pod ``uid`` already has an address, from wherever it got it."""
        if address and self._held.get(uid) != address:
            self.free(uid)
            self._held[uid] = address
            self._used.add(address)

    def free(self, uid: str) -> None:
        """Give back what the Pod ``uid`` has."""
        self._used.discard(self._held.pop(uid, ""))


class _Writer:
    """Makes the requests for Nodes and Pods, and tells of troubles by Events."""

    def __init__(self, client: Client, clock: Clock, unbound: str) -> None:
        self._client = client
        self._clock = clock
        # Tells of Pods that no Node has.
        self._unbound = unbound
        self._recorders: dict[str, EventRecorder] = {}
        self.addresses = _Addresses()
        self.group: TaskGroup

    async def register(self, name: str, node: Json) -> None:
        """Create a Node, or tell that one which is there is Ready."""
        try:
            made = await self._client.create(NODES, node, NodeView)
        except AlreadyExists:
            # What it can hold may have been changed by hand.
            status = {"status": {"conditions": node["status"]["conditions"]}}
            await self._client.patch(NODES, name, status, bytes, subresource="status")
            return
        if made.spec.taints:
            # A server keeps Pods away from a new Node until a controller finds that it is ready.
            await self._client.patch(NODES, name, {"spec": {"taints": None}}, bytes)

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
            PODS, body, bytes, namespace=meta.namespace, name=meta.name, subresource="binding"
        )

    async def delete(self, pod: PodView) -> None:
        meta = pod.metadata
        await self._client.delete(
            PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace_period=0
        )

    async def write_status(self, pod: PodView, step: PodStep) -> PodView:
        """Write what a step makes of a status; return the Pod that the server has then."""
        meta = pod.metadata
        address = ""
        if step.name == "network":
            address = NODE_ADDRESS if pod.spec.hostNetwork else self.addresses.take(meta.uid)
        status, told = perform(pod, step, self._clock.now(), address)
        # Whole arrays are written, so the write holds only against the version it was made from: a
        # condition that another writer set in between would be lost.
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {"metadata": guard, "status": status_patch(pod.status, status)}
        # Operators tell the scheduler's writes from the kubelet's by this name.
        manager = "kube-scheduler" if step.name == "unschedulable" else "kubelet"
        written = await self._client.patch(
            PODS,
            meta.name,
            body,
            PodView,
            namespace=meta.namespace,
            subresource="status",
            field_manager=manager,
        )
        for kind, reason, note in sorted(told):
            self.emit(written, kind, reason, note)
        return written

    def emit(self, pod: PodView, kind: Severity, reason: str, note: str) -> None:
        """Record an Event of the scheduler, or of the kubelet of the Pod's Node."""
        meta = pod.metadata
        is_scheduling = reason == FAILED_SCHEDULING
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

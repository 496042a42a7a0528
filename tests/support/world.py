"""A whole world for a test: embedded control plane, the real controller over HTTP, a clock by hand.

The test plays the user and the kubelet by changing objects in the control plane's store directly,
and reads from the audit log what the controller asked for over the wire. Nothing sleeps:
:meth:`World.settle` waits until every watch has taken in everything that happened and the
controller has nothing left to do at the present moment of the clock.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import msgspec

from lean_sandbox.config.options import Settings
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.kube.resources import PODS
from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.kinds import to_events
from lean_sandbox.local.request import AuditEntry, Target
from lean_sandbox.manager.server import open_trace
from lean_sandbox.runtime.tracing import Tracing
from lean_sandbox.runtime.workers import ReconcileResult
from lean_sandbox.trace.recorder import Recorder
from lean_sandbox.watch.kind import Key, Representation
from tests.faults.history import history_of
from tests.support.clients import cluster_admin, connected, connection_to
from tests.support.clock import ClockLoop, FakeClock
from tests.support.names import CONTROLLER
from tests.support.objects import (
    HASH_LABEL,
    NS,
    condition,
    controlled_by,
    pod_body,
    pod_conditions,
    running_status,
    sandbox,
    status_managers,
    tracking,
)
from tests.support.observable import ObservedManager
from tests.support.patience import PATIENCE_S
from tests.support.rest import Rest
from tests.support.stored import is_ready

__all__ = [
    "CONTROLLER",
    "HASH_LABEL",
    "NS",
    "World",
    "condition",
    "controlled_by",
    "open_world",
    "pod_body",
    "pod_conditions",
    "running_status",
    "sandbox",
    "status_managers",
    "tracking",
    "watched",
    "write_pod_status",
]

Json = dict[str, Any]
#: What the controllers of worlds make their requests with.
CLIENT: type[Client] = Client
# Read by the controller, reported nowhere: a change of it is worth a reconcile and no write.
_POKE = "agents.x-k8s.io/sandbox-template-ref"
# What tests call by its plain name although its group has to be told.
_QUALIFIED = {"sandboxes": "sandboxes.agents.x-k8s.io", "events": "events.events.k8s.io"}


class World(Rest):
    """Everything a case needs; see the module docstring."""

    def __init__(
        self,
        plane: ControlPlane,
        controller: ObservedManager,
        clock: FakeClock,
        admin: Client,
        user: str = CONTROLLER,
    ) -> None:
        """Hold the parts; ``admin`` may do everything over HTTP, as a user with kubectl."""
        super().__init__(plane, controller, clock, user)
        # For what serves from a whole controller, as its listeners do, and for tests of its parts.
        self.whole = controller
        #: What records the controller's work, if the settings ask for it.
        self.trace: Recorder | None = None
        #: Set by tests that lose a wake-up on purpose.
        self.net_may_catch = False
        #: Set by tests that break a handler or a reconcile on purpose.
        self.has_bugs = False
        self.admin = admin
        self.reports: list[ReconcileResult[Key]] = []
        self.scope = anyio.CancelScope()

    def kill(self) -> None:
        """End the controller at once, as a crash does; ends the world's block at the next wait."""
        self.scope.cancel()

    @property
    def server_clock(self) -> FakeClock:
        """The clock of the server, which stands still unless it is the controller's."""
        clock = self.plane.clock
        assert isinstance(clock, FakeClock)
        return clock

    # -- objects ---------------------------------------------------------------------------------

    async def create(self, obj: Json) -> Json:
        """Create an object as a user and let the controller work."""
        made = self.plane.store.create(obj)
        await self.settle()
        return made

    async def patch(
        self, resource: str, name: str, patch: Json, *, subresource: str = "", namespace: str = NS
    ) -> Json:
        """Merge-patch an object as a user and let the controller work."""
        made = self.plane.store.patch(
            _QUALIFIED.get(resource, resource), namespace, name, patch, subresource=subresource
        )
        await self.settle()
        return made

    async def delete(self, resource: str, name: str, *, grace_s: int | None = 0) -> None:
        """Delete an object as a user (at once unless ``grace_s`` says otherwise) and settle."""
        self.plane.store.delete(_QUALIFIED.get(resource, resource), NS, name, grace_s=grace_s)
        await self.settle()

    def get(self, name: str = "sb-1") -> Json:
        """Return a Sandbox."""
        return self.plane.store.get(_QUALIFIED["sandboxes"], NS, name)

    def is_ready(self, name: str = "sb-1") -> bool:
        """Tell whether a Sandbox is Ready."""
        return is_ready(self.get(name))

    def find(self, resource: str, name: str = "sb-1") -> Json | None:
        """Return an object, ``None`` when there is none."""
        return self.plane.store.find(_QUALIFIED.get(resource, resource), NS, name)

    def pod(self, name: str = "sb-1") -> Json:
        """Return a Pod."""
        return self.plane.store.get("pods", NS, name)

    # -- the kubelet's part ----------------------------------------------------------------------

    async def bind(self, name: str = "sb-1", node: str = "node-1") -> None:
        """Place a Pod on a node, as a scheduler does."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.admin.create(PODS, body, bytes, namespace=NS, name=name, subresource="binding")
        await self.settle()

    async def pod_status(self, name: str = "sb-1", **status: Any) -> None:
        """Merge fields into a Pod's status, as scheduler and kubelet do."""
        write_pod_status(self.plane, name, status)
        await self.settle()

    async def run_pod(
        self,
        name: str = "sb-1",
        *,
        ready: bool = True,
        ips: tuple[str, ...] = ("10.244.0.5",),
        node: str = "node-1",
    ) -> None:
        """Take a Pod to Running, on a node, with addresses, ready or not."""
        if not self.pod(name)["spec"].get("nodeName"):
            await self.bind(name, node)
        await self.pod_status(name, **running_status(ready=ready, ips=ips))

    async def ready_sandbox(self, body: Json | None = None) -> Json:
        """Create a Sandbox and take its Pod to Ready; return the Sandbox."""
        made = await self.create(body or sandbox())
        await self.run_pod(made["metadata"]["name"])
        return self.get(made["metadata"]["name"])

    def foreign_owner(self, kind: str = "Deployment", name: str = "web") -> Json:
        """Return the controller reference to an owner that is not a Sandbox and exists."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": NS},
        }
        # Of a group that is not served: garbage collection leaves alone what it cannot look up.
        held = self.find("configmaps", name) or self.plane.store.create(body)
        return {**controlled_by(held, api_version="example.com/v1"), "kind": kind}

    async def poke(self, name: str = "sb-1") -> None:
        """Make the controller reconcile a Sandbox once more, changing nothing that it reports."""
        held = self.get(name)["metadata"].get("annotations") or {}
        count = int(held.get(_POKE, "0")) + 1
        await self.patch("sandboxes", name, {"metadata": {"annotations": {_POKE: str(count)}}})

    def meanwhile(self, verb: str, resource: str, act: Callable[[], object]) -> None:
        """Do something once, at the moment a request arrives and before it is answered."""
        pending = [act]

        def interfere(target: Target) -> bool:
            if target.verb == verb and pending:
                pending.pop()()
            return False

        self.plane.fail_next(verb, resource, 500, match=interfere)

    # -- what the controller asked for -----------------------------------------------------------

    def asked(self, *, events: bool = False) -> Counter[str]:
        """Return the controller's requests as ``verb resource``, without watches (and Events)."""
        counted = self.plane.audit.counts(CONTROLLER)
        return Counter(
            {what: n for what, n in counted.items() if events or not what.endswith(" events")}
        )

    def writes(self, *, events: bool = False) -> Counter[str]:
        """Return the controller's writes only."""
        return Counter(
            {
                what: n
                for what, n in self.asked(events=events).items()
                if what.split()[0] not in ("get", "list")
            }
        )

    def conflicts(self) -> Counter[str]:
        """Return the controller's requests that were answered with 409."""
        return Counter(
            {
                what: n
                for what, n in self.plane.audit.codes(CONTROLLER, at_least=409).items()
                if what.startswith("409")
            }
        )

    def requests(self, verb: str, resource: str) -> list[AuditEntry]:
        """Return the controller's requests of one kind."""
        return self.plane.audit.select(user=CONTROLLER, verb=verb, resource=resource)

    def forget_requests(self) -> None:
        """Start counting requests and reconciles anew."""
        self.plane.audit.reset()
        self.reports.clear()

    def events(self) -> list[Json]:
        """Return the Events the controller posted, in the form of events.k8s.io/v1."""
        return [to_events(one) for one in self.plane.store.list(_QUALIFIED["events"], NS)]


def write_pod_status(plane: ControlPlane, name: str, status: Json, namespace: str = NS) -> None:
    """Merge fields into a Pod's status in the name of those who write them.

    Where a Pod without a node can be placed is the scheduler's to say, all else the kubelet's.
    """
    pod = plane.store.get("pods", namespace, name)
    known = pod.get("status", {}).get("conditions", [])
    for one in status.get("conditions", ()):
        if one["type"] == "PodScheduled" and not pod["spec"].get("nodeName"):
            listed = [one, *(other for other in known if other["type"] != one["type"])]
            found = {"status": {"conditions": listed}}
            plane.store.patch(
                "pods", namespace, name, found, subresource="status", manager="kube-scheduler"
            )
    plane.store.patch(
        "pods", namespace, name, {"status": status}, subresource="status", manager="kubelet"
    )


def watched(form: str) -> Settings:
    """Return settings for a watch of one namespace in this form, from its beginning."""
    return Settings(
        sandbox_status_window=1.0, watch_representation=Representation(form), namespaces=(NS,)
    )


@asynccontextmanager
async def open_world(
    settings: Settings | None = None,
    *,
    local: LocalSettings | None = None,
    tracing: Tracing | None = None,
    before: tuple[Json, ...] = (),
    prepare: Callable[[ControlPlane], None] | None = None,
    plane: ControlPlane | None = None,
    clock: FakeClock | None = None,
    observer: Callable[[World, RequestRecord], None] | None = None,
    kubeconfig: Callable[[ControlPlane, Path], Path] | None = None,
    url: str | None = None,
    is_served: bool = True,
    user: str = CONTROLLER,
    one_time: bool = False,
    companions_only: bool = False,
) -> AsyncIterator[World]:
    """Start a world; ``before`` are objects that exist before the controller starts.

    ``prepare`` may do more to the control plane before the controller starts.

    The status window is 1 s unless ``settings`` say otherwise. With ``plane``, a control plane that
    runs already is used: closing and opening a world over it restarts the controller; ``clock`` is
    the controller's, by default one that stands at the epoch of all tests. ``observer`` is told of
    each request of the controller right after its answer came, before anything is made of it.
    ``kubeconfig`` writes the controller's; the folder it is given is gone once the world runs.
    ``url`` is where the controller finds the server, if something stands before it.
    Without ``is_served``, some kinds cannot be watched yet: nothing is waited for, and
    :meth:`World.pass_time` moves the clock.
    With ``one_time``, time passes at the server as well; otherwise its clock stands still.
    With ``companions_only`` there is no controller but the companions.
    ``user`` is as whom the controller asks, with rights of the test's making if it is another one.

    At the end no wake-up may have been lost, no handler or reconcile have raised what nobody
    expects, and no promise (``tests/faults/promises.py``) be broken.
    """
    clock = clock or FakeClock()
    settings = settings or Settings(sandbox_status_window=1.0, sandbox_status_step_window=0.0)
    worlds: list[World] = []

    def observe(record: RequestRecord) -> None:
        if observer is not None and worlds:
            observer(worlds[0], record)

    async with AsyncExitStack() as stack:
        if plane is None:
            theirs = clock.elsewhere() if one_time else FakeClock()
            fresh = ControlPlane(local or LocalSettings(), clock=theirs)
            plane = await stack.enter_async_context(fresh)
        history = history_of(plane)
        history.users.add(user)
        history.go_by(clock.monotonic)
        _furnish(plane, before)
        if prepare is not None:
            prepare(plane)
        # On a loop of real time nothing is slow on purpose: the machine may be.
        is_on_clock = isinstance(asyncio.get_running_loop(), ClockLoop)
        timeout_s = settings.request_timeout if is_on_clock else PATIENCE_S
        connection = _connection(plane, user, kubeconfig, url)
        client = await stack.enter_async_context(
            connected(connection, timeout_s=timeout_s, client_type=CLIENT, clock=clock)
        )
        client.transport.observer = observe
        admin = await stack.enter_async_context(connected(connection_to(plane), clock=clock))
        controller = ObservedManager(
            client,
            settings,
            clock=clock,
            uniform=lambda: 0.5,
            tracing=tracing,
            companions_only=companions_only,
        )
        world = World(plane, controller, clock, admin, user)
        controller.controllers[0].workers.on_end.append(world.reports.append)
        world.trace = open_trace(settings, clock, controller, client)
        worlds.append(world)
        async with anyio.create_task_group() as group:
            world.scope = group.cancel_scope
            if is_served:
                await group.start(controller.run)
                await world.settle()
            else:
                group.start_soon(controller.run)
            yield world
            group.cancel_scope.cancel()
        broken = history.broken()
        assert not broken, "promises were broken:\n" + "\n".join(broken)
        activity = controller.activity()
        assert world.has_bugs or not any(activity.bugs.values()), f"bugs: {activity.bugs}"
        caught = activity.caught
        is_lost = any(caught.values()) and not world.net_may_catch
        assert not is_lost, f"wake-ups were lost, the net caught {caught}"


def _furnish(plane: ControlPlane, before: tuple[Json, ...]) -> None:
    """Make the namespace of the tests, unless it is there, and what else is to be there."""
    if plane.store.find("namespaces", "", NS) is None:
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
        plane.store.create(cluster_admin(CONTROLLER))
    for obj in before:
        plane.store.create(obj)


def _connection(
    plane: ControlPlane,
    user: str,
    kubeconfig: Callable[[ControlPlane, Path], Path] | None,
    url: str | None,
) -> Connection:
    """Return how the controller reaches the server: by its kubeconfig, if it has one."""
    if kubeconfig is None:
        found = connection_to(plane, user)
    else:
        with TemporaryDirectory() as folder:
            found = load(str(kubeconfig(plane, Path(folder))))
    return found if url is None else msgspec.structs.replace(found, server=url)

"""A cluster in a thread of its own, for clients that block: server, kubelet and controller."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from lean_sandbox.api.client import Client
from lean_sandbox.api.config import load
from lean_sandbox.api.transport import Transport
from lean_sandbox.app import Controller
from lean_sandbox.clock import SystemClock
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kubelet import Kubelet
from lean_sandbox.local.kubelet_settings import Delay, KubeletSettings, WritesPerStart
from lean_sandbox.settings import Settings

__all__ = [
    "CLAIMS",
    "CONTROLLER",
    "LEFT_OPEN",
    "POOLS",
    "SANDBOXES",
    "VOLUME",
    "Cluster",
    "Room",
    "is_ready",
    "open_cluster",
]

Json = dict[str, Any]

CLAIMS = "sandboxclaims.extensions.agents.x-k8s.io"
POOLS = "sandboxwarmpools.extensions.agents.x-k8s.io"
SANDBOXES = "sandboxes.agents.x-k8s.io"
CONTROLLER = "system:serviceaccount:agent-sandbox-system:agent-sandbox-controller"

VOLUME: Json = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}

# A watch that the blocking client leaves by an error stays open until the collector finds it.
LEFT_OPEN = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"

_EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"
_PATIENCE_S = 15.0
_GLANCE_S = 0.01
_SWIFT = Delay(0.005)
_KUBELET = KubeletSettings(
    writes_per_start=WritesPerStart.TWO,
    schedule=_SWIFT,
    waiting=_SWIFT,
    network=_SWIFT,
    running=_SWIFT,
    ready=_SWIFT,
    termination=_SWIFT,
)


class Cluster:
    """What a test may do with the running cluster; every call waits for its answer.

    ``plane`` lives in the thread of the cluster and is for functions that are called there.
    """

    def __init__(self, plane: ControlPlane, portal: BlockingPortal, kubeconfig: Path) -> None:
        self.kubeconfig = str(kubeconfig)
        self.plane = plane
        self._portal = portal
        self._rooms = itertools.count(1)

    def create(self, obj: Mapping[str, Any]) -> Json:
        """Create an object, past HTTP."""
        return self._portal.call(self.plane.store.create, obj)

    def find(self, resource: str, namespace: str, name: str) -> Json | None:
        """Return an object, ``None`` when there is none."""
        return self._portal.call(self.plane.store.find, resource, namespace, name)

    def all(self, resource: str, namespace: str) -> list[Json]:
        """Return the objects of a kind."""
        return self._portal.call(self.plane.store.list, resource, namespace)

    def asked(self, user: str, namespace: str) -> list[str]:
        """Return what a user asked of the server in one namespace, in order, watches too."""
        entries = self._portal.call(self._select, user, namespace)
        return [f"{entry.verb} {entry.resource}" for entry in entries]

    def _select(self, user: str, namespace: str) -> list[Any]:
        return list(self.plane.audit.select(user=user, namespace=namespace))

    def until(self, what: str, holds: Callable[[], object]) -> None:
        """Wait until something holds; ``holds`` runs in the thread of the cluster.

        Fails after fifteen seconds.
        """
        assert self._portal.call(self._wait, holds), f"{what} was not reached"

    async def _wait(self, holds: Callable[[], object]) -> bool:
        with anyio.move_on_after(_PATIENCE_S):
            # The store tells nobody of its changes, and the client under test takes real time.
            while not holds():  # noqa: ASYNC110
                await anyio.sleep(_GLANCE_S)
            return True
        return False

    def until_gone(self, resource: str, namespace: str, name: str) -> None:
        """Wait until there is no such object."""
        store = self.plane.store
        self.until(
            f"the end of {resource} {name}", lambda: store.find(resource, namespace, name) is None
        )

    def until_object(
        self, resource: str, namespace: str, name: str, holds: Callable[[Json], object]
    ) -> Json:
        """Wait until something holds of an object and return it."""
        found: list[Json] = []

        def look() -> bool:
            obj = self.plane.store.find(resource, namespace, name)
            if obj is None or not holds(obj):
                return False
            found.append(obj)
            return True

        self.until(f"what is expected of {resource} {name}", look)
        return found[0]

    def room(self) -> Room:
        """Make a namespace."""
        name = f"room-{next(self._rooms)}"
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return Room(self, name)


class Room:
    """A namespace of one test."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def template(self, name: str = "python", **spec: Any) -> None:
        """Create a template of one container; ``spec`` is added to it."""
        self.cluster.create(
            {
                "apiVersion": _EXTENSIONS,
                "kind": "SandboxTemplate",
                "metadata": {"name": name, "namespace": self.name},
                "spec": {
                    "podTemplate": {"spec": {"containers": [{"name": "main", "image": "python"}]}},
                    **spec,
                },
            }
        )

    def pool(self, name: str = "pool", *, replicas: int = 2, template: str = "python") -> None:
        """Create a pool and wait until all its members are ready, which its status tells later."""
        self.cluster.create(
            {
                "apiVersion": _EXTENSIONS,
                "kind": "SandboxWarmPool",
                "metadata": {"name": name, "namespace": self.name},
                "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": template}},
            }
        )
        self.cluster.until(f"a filled pool {name}", lambda: self._ready(name) == replicas)

    def _ready(self, pool: str) -> int:
        """Count the ready members of a pool; for the thread of the cluster."""
        members = [
            one
            for one in self.cluster.plane.store.list(SANDBOXES, self.name)
            if one["metadata"]["ownerReferences"][0]["name"] == pool
        ]
        return sum(is_ready(one) for one in members)

    def until_reported(self, name: str = "pool", replicas: int = 2) -> None:
        """Wait until a pool reports so many ready members."""
        self.cluster.until_object(
            POOLS,
            self.name,
            name,
            lambda pool: pool.get("status", {}).get("readyReplicas", 0) == replicas,
        )

    def members(self) -> set[str]:
        """Return the names of all Sandboxes of the namespace."""
        return {one["metadata"]["name"] for one in self.cluster.all(SANDBOXES, self.name)}

    def count(self) -> int:
        """Count the Sandboxes of the namespace; for the thread of the cluster."""
        return self.cluster.plane.store.count(SANDBOXES, self.name)

    def claim(self, name: str | None) -> Json:
        """Return a claim."""
        found = self.cluster.find(CLAIMS, self.name, name or "")
        assert found is not None
        return found

    def sandbox(self, name: str) -> Json:
        """Return a Sandbox."""
        found = self.cluster.find(SANDBOXES, self.name, name)
        assert found is not None
        return found

    def pod(self, name: str) -> Json:
        """Return a Pod."""
        found = self.cluster.find("pods", self.name, name)
        assert found is not None
        return found


def is_ready(obj: Json) -> bool:
    """Tell whether an object has the condition Ready with status True."""
    return any(
        one["type"] == "Ready" and one["status"] == "True"
        for one in obj.get("status", {}).get("conditions", [])
    )


@contextmanager
def open_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a cluster until the block ends; its administrator's kubeconfig is kept in ``folder``."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_cluster(folder)) as plane,
    ):
        yield Cluster(plane, portal, folder / "admin")


@asynccontextmanager
async def _cluster(folder: Path) -> AsyncIterator[ControlPlane]:
    clock = SystemClock()
    async with ControlPlane() as plane:
        plane.kubeconfig(folder / "admin")
        plane.store.create(_cluster_admin("controller", CONTROLLER))
        plane.store.create(_cluster_admin("kubelet", "kubelet"))
        transports = [
            Transport(load(str(plane.kubeconfig(folder / name, user))), clock=clock)
            for name, user in (("controller", CONTROLLER), ("kubelet", "kubelet"))
        ]
        clients = [Client(transport) for transport in transports]
        controller = Controller(clients[0], Settings(extensions=True), clock=clock)
        kubelet = Kubelet(clients[1], _KUBELET, clock=clock, chance=random.Random(1))  # noqa: S311
        try:
            async with anyio.create_task_group() as group:
                await group.start(kubelet.run)
                await group.start(controller.run)
                yield plane
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                for transport in transports:
                    await transport.aclose()


def _cluster_admin(name: str, user: str) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
    }

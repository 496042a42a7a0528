"""A cluster for clients that block, whichever server it has: what a test may do with it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.controlplane.scene import CONTROLLER
from tests.support.names import CLAIMS, EXTENSIONS, POOLS, SANDBOXES
from tests.support.patience import PATIENCE_S
from tests.support.stored import is_ready

__all__ = [
    "CLAIMS",
    "CONTROLLER",
    "LEFT_OPEN",
    "POOLS",
    "SANDBOXES",
    "VOLUME",
    "Cluster",
    "Room",
]

Json = dict[str, Any]


VOLUME: Json = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}

# A watch that the blocking client leaves by an error stays open until the collector finds it; so
# may a connection of the one for asyncio that is being closed when its loop ends.
LEFT_OPEN = (
    "ignore:Exception ignored in. <(socket|ssl|function _SelectorTransport)"
    ":pytest.PytestUnraisableExceptionWarning"
)


class Cluster(ABC):
    """What a test may do with the running cluster; every call waits for its answer.

    Nothing that is asked here shows in :meth:`asked` under the name of the user or the controller.
    """

    glance_s = 0.01
    """The time between two looks at what is waited for."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = str(kubeconfig)

    @abstractmethod
    def create(self, obj: Mapping[str, Any]) -> Json:
        """Create an object."""

    @abstractmethod
    def find(self, resource: str, namespace: str, name: str) -> Json | None:
        """Return an object, ``None`` when there is none."""

    @abstractmethod
    def all(self, resource: str, namespace: str) -> list[Json]:
        """Return the objects of a kind."""

    @abstractmethod
    def asked(self, user: str, namespace: str) -> list[str]:
        """Return what a user asked of the server in one namespace, in order, watches too."""

    @abstractmethod
    def serve(self, definition: Mapping[str, Any]) -> None:
        """Serve a kind from now on."""

    @abstractmethod
    def room(self) -> Room:
        """Make a namespace."""

    def until(self, what: str, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        limit = time.monotonic() + PATIENCE_S
        # The client under test takes real time, and so does a real server.
        while not holds():
            assert time.monotonic() < limit, f"{what} was not reached"
            time.sleep(self.glance_s)

    def until_gone(self, resource: str, namespace: str, name: str) -> None:
        """Wait until there is no such object."""
        self.until(
            f"the end of {resource} {name}", lambda: self.find(resource, namespace, name) is None
        )

    def until_object(
        self, resource: str, namespace: str, name: str, holds: Callable[[Json], object]
    ) -> Json:
        """Wait until something holds of an object and return it."""
        found: list[Json] = []

        def look() -> bool:
            obj = self.find(resource, namespace, name)
            if obj is None or not holds(obj):
                return False
            found.append(obj)
            return True

        self.until(f"what is expected of {resource} {name}", look)
        return found[0]


class Room:
    """A namespace of one test."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def template(self, name: str = "python", **spec: Any) -> None:
        """Create a template of one container; ``spec`` is added to it."""
        self.cluster.create(
            {
                "apiVersion": EXTENSIONS,
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
                "apiVersion": EXTENSIONS,
                "kind": "SandboxWarmPool",
                "metadata": {"name": name, "namespace": self.name},
                "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": template}},
            }
        )
        self.cluster.until(f"a filled pool {name}", lambda: self._ready(name) == replicas)

    def _ready(self, pool: str) -> int:
        """Count the ready members of a pool."""
        members = [
            one
            for one in self.cluster.all(SANDBOXES, self.name)
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
        """Count the Sandboxes of the namespace."""
        return len(self.cluster.all(SANDBOXES, self.name))

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

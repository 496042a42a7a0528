"""The cluster of the real control plane; controller and kubelet in a thread of their own."""

from __future__ import annotations

import itertools
import json
import os
import urllib.error
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal

from lean_sandbox.config.options import Settings
from tests.client.cluster import Cluster, Room
from tests.controlplane.scene import SWIFT, open_scene
from tests.controlplane.server import OBSERVER, RealServer

__all__ = ["open_real"]

Json = dict[str, Any]

_PLURALS = {"SandboxTemplate": "sandboxtemplates", "SandboxWarmPool": "sandboxwarmpools"}
_NOT_FOUND = 404


class _Real(Cluster):
    """Everything is asked of kube-apiserver; the controller has the published permissions."""

    glance_s = 0.05

    def __init__(self, server: RealServer, kubeconfig: Path) -> None:
        super().__init__(kubeconfig)
        self._server = server
        self._rooms = itertools.count(1)
        self._made: list[str] = []

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        return self._server.ask(method, path, None if body is None else dict(body), OBSERVER)

    def create(self, obj: Mapping[str, Any]) -> Json:
        namespace = obj["metadata"]["namespace"]
        path = f"/apis/{obj['apiVersion']}/namespaces/{namespace}/{_PLURALS[obj['kind']]}"
        return self._ask("POST", path, obj)

    def find(self, resource: str, namespace: str, name: str) -> Json | None:
        try:
            return self._ask("GET", f"{_path(resource, namespace)}/{name}")
        except urllib.error.HTTPError as refusal:
            with refusal:
                if refusal.code != _NOT_FOUND:
                    raise
            return None

    def all(self, resource: str, namespace: str) -> list[Json]:
        return list(self._ask("GET", _path(resource, namespace))["items"])

    def asked(self, user: str, namespace: str) -> list[str]:
        found = []
        for line in self._server.audit_log.read_text().splitlines():
            entry = json.loads(line)
            reference = entry.get("objectRef", {})
            if (entry["user"]["username"], reference.get("namespace")) != (user, namespace):
                continue
            # A watch is told when it begins and again when it ends.
            if entry["verb"] != "watch" or entry["stage"] == "ResponseStarted":
                found.append((entry["requestReceivedTimestamp"], entry["verb"], reference))
        ordered = sorted(found, key=lambda one: str(one[0]))
        return [f"{verb} {reference['resource']}" for _, verb, reference in ordered]

    def serve(self, definition: Mapping[str, Any]) -> None:
        self._server.define([definition])
        self._made.append(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
            + definition["metadata"]["name"]
        )

    def room(self) -> Room:
        name = f"room-{os.getpid()}-{next(self._rooms)}"
        path = f"/api/v1/namespaces/{name}"
        self._ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self._made.append(path)
        self.until("the account of Pods", lambda: self.find("serviceaccounts", name, "default"))
        return Room(self, name)

    def clear(self) -> None:
        """Take away what was made, without waiting for its end."""
        for path in self._made:
            self._ask("DELETE", path)


def _path(resource: str, namespace: str) -> str:
    plural, _, group = resource.partition(".")
    base = f"/apis/{group}/v1beta1" if group else "/api/v1"
    return f"{base}/namespaces/{namespace}/{plural}"


@contextmanager
def open_real(server: RealServer, folder: Path) -> Iterator[Cluster]:
    """Run kubelet and controller on a server; the user's kubeconfig is kept in ``folder``."""
    scene = open_scene(server, folder, Settings(extensions=True), SWIFT)
    cluster = _Real(server, server.kubeconfig(folder / "admin", server.token))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(scene):
        yield cluster
        cluster.clear()

"""The controller, a simulated kubelet and a user on the real control plane, over the wire alone."""

from __future__ import annotations

import functools
import json
import random
import subprocess
import urllib.error
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import yaml

from lean_sandbox.clock import SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.local.kubelet.kubelet import Kubelet
from lean_sandbox.local.kubelet.pods import Delay, KubeletSettings
from tests.conformance.api import Api, Room
from tests.controlplane.server import KUBELET, RealServer
from tests.support.clients import connected, controlling
from tests.support.observable import Observable
from tests.support.patience import PATIENCE_S, patient

__all__ = [
    "CONTROLLER",
    "HOME",
    "SWIFT",
    "Scene",
    "Spent",
    "controllers_client",
    "open_scene",
    "open_stage",
    "permitted",
]

Json = dict[str, Any]

_MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
HOME = "agent-sandbox-system"
_ACCOUNT = "agent-sandbox-controller"
CONTROLLER = f"system:serviceaccount:{HOME}:{_ACCOUNT}"
_AT_ONCE = Delay(0.005)
SWIFT = KubeletSettings(
    schedule=_AT_ONCE,
    waiting=_AT_ONCE,
    network=_AT_ONCE,
    running=_AT_ONCE,
    ready=_AT_ONCE,
    termination=_AT_ONCE,
)
"""Pods that are up and gone as soon as they are asked for."""

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": f"/api/v1/namespaces/{HOME}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{HOME}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{HOME}/rolebindings",
}
_AGENTS = "/apis/agents.x-k8s.io/v1beta1"
_EXTENSIONS = "/apis/extensions.agents.x-k8s.io/v1beta1"
_GROUPS = {
    "persistentvolumeclaims": "/api/v1",
    "pods": "/api/v1",
    "services": "/api/v1",
    "events": "/apis/events.k8s.io/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "sandboxes": _AGENTS,
    "sandboxclaims": _EXTENSIONS,
    "sandboxtemplates": _EXTENSIONS,
    "sandboxwarmpools": _EXTENSIONS,
}
# The controller tells Events and counts of pools behind everything else.
_QUIET_S = 2.5
_READS = ("get", "list", "watch")
_CONFLICT = 409


@dataclass(slots=True)
class Spent:
    """What the controller asked for in a flow, by verb and resource, watches and Events apart."""

    asked: Counter[str] = field(default_factory=Counter)
    events: int = 0
    order: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def writes(self) -> Counter[str]:
        """Return the writes, without Events."""
        return Counter({k: n for k, n in self.asked.items() if k.split()[0] not in _READS})

    @property
    def reads(self) -> Counter[str]:
        """Return the reads."""
        return self.asked - self.writes


@dataclass(slots=True)
class Scene:
    """What a test needs: the API as its user, a namespace, the audit log."""

    server: RealServer
    room: Room
    _begun: int = 0

    def path(self, plural: str) -> str:
        """Return the path of a kind in the namespace of the test."""
        return f"{_GROUPS[plural]}/namespaces/{self.room.name}/{plural}"

    async def create(self, plural: str, body: Json) -> Json:
        """Create an object as the user."""
        return dict((await self.room.api.post(self.path(plural), body)).ok())

    async def patch(self, plural: str, name: str, body: Json) -> Json:
        """Merge-patch an object as the user."""
        return dict((await self.room.api.patch(f"{self.path(plural)}/{name}", body)).ok())

    async def delete(self, plural: str, name: str) -> None:
        """Delete an object as the user."""
        (await self.room.api.delete(f"{self.path(plural)}/{name}")).ok()

    async def objects(self, plural: str) -> list[Json]:
        """Return all objects of a kind in the namespace."""
        return list((await self.room.api.get(self.path(plural))).ok()["items"])

    async def until(self, plural: str, holds: Callable[[list[Json]], bool]) -> list[Json]:
        """Wait until something holds of all objects of a kind."""
        found: list[Json] = []
        with anyio.move_on_after(PATIENCE_S):
            while True:
                found = await self.objects(plural)
                if holds(found):
                    return found
                await anyio.sleep(0.05)
        told = [(one["metadata"]["name"], one.get("status")) for one in found]
        raise AssertionError(f"{plural} did not get there, {len(found)} as they are: {told}")

    def _lines(self) -> Iterator[Json]:
        with self.server.audit_log.open("rb") as file:
            file.seek(self._begun)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                if CONTROLLER.encode() not in line:
                    continue
                entry = json.loads(line)
                mine = entry.get("objectRef", {}).get("namespace") == self.room.name
                if entry["user"]["username"] == CONTROLLER and mine:
                    yield entry

    def begin(self) -> None:
        """Count anew from here."""
        self._begun = self.server.audit_log.stat().st_size

    async def spent(self) -> Spent:
        """Return what was asked for since the count began, once nothing more is; begin anew."""
        seen = -1
        quiet_s = 0.0
        with patient("fell silent", lambda: f"{seen} requests so far"):
            while quiet_s < _QUIET_S:
                await anyio.sleep(0.25)
                count = sum(1 for _ in self._lines())
                quiet_s = quiet_s + 0.25 if count == seen else 0.0
                seen = count
        return self.spent_so_far()

    def spent_so_far(self) -> Spent:
        """Return what was asked for since the count began; begin anew."""
        found = Spent()
        for entry in sorted(self._lines(), key=lambda one: str(one["requestReceivedTimestamp"])):
            what = _what(entry)
            code = entry.get("responseStatus", {}).get("code", 0)
            if entry["verb"] == "watch":
                continue
            if code >= 400 and (entry["verb"], code) != ("get", 404):
                found.refused.append(f"{code} {what}")
            if what.endswith(" events"):
                found.events += 1
                continue
            found.asked[what] += 1
            if entry["verb"] not in _READS:
                found.order.append(what)
        self.begin()
        return found


def _what(entry: Json) -> str:
    reference = entry["objectRef"]
    part = f"/{reference['subresource']}" if "subresource" in reference else ""
    return f"{entry['verb']} {reference['resource']}{part}"


@functools.cache
def _rendered() -> tuple[Json, ...]:
    """Return the objects of the published manifests."""
    overlay = str(_MANIFESTS / "overlays" / "drop-in-extensions")
    text = subprocess.run(  # noqa: S603 - fixed arguments
        ["kubectl", "kustomize", overlay],  # noqa: S607 - wherever the machine has it
        check=True,
        capture_output=True,
    ).stdout
    return tuple(yaml.safe_load_all(text))


def _install(server: RealServer) -> str:
    """Create what the published manifests give the controller; return its token."""
    for body in _rendered():
        path = _PATHS.get(body["kind"])
        if path is not None:
            ensure(server, path, body)
    path = f"/api/v1/namespaces/{HOME}/serviceaccounts/{_ACCOUNT}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(server.ask("POST", path, request)["status"]["token"])


def ensure(server: RealServer, path: str, body: Json) -> None:
    """Create an object unless an earlier scene of this server has."""
    try:
        server.ask("POST", path, body)
    except urllib.error.HTTPError as refusal:
        with refusal:
            if refusal.code != _CONFLICT:
                raise


def _client(
    server: RealServer, folder: Path, name: str, token: str
) -> AbstractAsyncContextManager[Client]:
    return connected(load(str(server.kubeconfig(folder / name, token))), user_agent=name)


def controllers_client(server: RealServer, folder: Path) -> AbstractAsyncContextManager[Client]:
    """Give a client of the controller's service account with what the manifests permit it."""
    return _client(server, folder, "controller", _install(server))


@asynccontextmanager
async def open_stage(
    server: RealServer, folder: Path, kubelet: KubeletSettings | None = None
) -> AsyncIterator[Scene]:
    """Run the kubelet, and no controller.

    The scene has no namespace yet: :meth:`dataclasses.replace` its room for each test.
    """
    chance = random.Random(1)  # noqa: S311 - delays, not secrets
    async with (
        _client(server, folder, "kubelet", server.token_of(KUBELET)) as nodes,
        Api(server.url, server.token, ca=server.authority.read_text()) as api,
        anyio.create_task_group() as group,
    ):
        settings = kubelet or KubeletSettings()
        await group.start(Kubelet(nodes, settings, clock=SystemClock(), chance=chance).run)
        yield Scene(server, Room(api, ""))
        group.cancel_scope.cancel()


@asynccontextmanager
async def permitted(
    server: RealServer, folder: Path, settings: Settings
) -> AsyncIterator[Observable]:
    """Run the controller, synced, with the published permissions and no more."""
    async with (
        controllers_client(server, folder) as client,
        controlling(client, settings, clock=SystemClock()) as controller,
    ):
        yield controller


@asynccontextmanager
async def open_scene(
    server: RealServer, folder: Path, settings: Settings, kubelet: KubeletSettings | None = None
) -> AsyncIterator[Scene]:
    """Run kubelet and controller; see :func:`open_stage` and :func:`permitted`."""
    async with open_stage(server, folder, kubelet) as scene, permitted(server, folder, settings):
        yield scene

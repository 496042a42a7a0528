"""What is asked of a control plane that a test breaks."""

from __future__ import annotations

import contextlib
import urllib.error
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import Process

from lean_sandbox.clock import SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.kube.kubeconfig import load
from tests.controlplane.server import RealServer
from tests.model.crds.definitions import definitions
from tests.support.clients import connected
from tests.support.observable import ObservedManager
from tests.support.patience import PATIENCE_S
from tests.support.process import controller_process

Json = dict[str, Any]
BY_NAME: dict[str, Json] = {one["metadata"]["name"]: one for one in definitions().values()}
HOME = "agent-sandbox-system"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class RefusedError(Exception):
    """The server said no to the test; ``code`` is its status."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


async def ask(server: RealServer, method: str, path: str, body: Json | None = None) -> Json:
    """Ask as the administrator, beside the event loop. Raises RefusedError."""
    try:
        return await anyio.to_thread.run_sync(server.ask, method, path, body)
    except urllib.error.HTTPError as error:
        with error:
            raise RefusedError(error.code) from None


def refused(made: ObservedManager) -> bool:
    """Tell whether the server did not know the controller in a request."""
    asked = made._client.transport.counted.requests
    return any(code == HTTPStatus.UNAUTHORIZED for *_, code in asked)


async def until(check: Callable[[], Awaitable[object]] | Callable[[], object]) -> None:
    """Wait until something holds."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            found = check()
            if await found if isinstance(found, Awaitable) else found:
                return
            await anyio.sleep(0.05)


async def gone(server: RealServer, path: str) -> None:
    """Wait until there is no such object."""

    async def is_gone() -> bool:
        try:
            await ask(server, "GET", path)
        except RefusedError as refused:
            return refused.code == 404
        return False

    await until(is_gone)


async def apply(server: RealServer, *names: str) -> None:
    """Serve our definitions, replacing what is there."""
    for name in names:
        # It may not be there.
        with contextlib.suppress(RefusedError):
            await ask(server, "DELETE", f"{CRDS}/{name}")
        await gone(server, f"{CRDS}/{name}")
    await anyio.to_thread.run_sync(server.define, [BY_NAME[name] for name in names])


async def defined(server: RealServer) -> None:
    """Serve our definitions; a busy server may take a minute to end one that has objects."""
    found = await ask(server, "GET", CRDS)
    there = {one["metadata"]["name"] for one in found["items"]}
    missing = [one for name, one in BY_NAME.items() if name not in there]
    await anyio.to_thread.run_sync(server.define, missing)


@asynccontextmanager
async def namespace(server: RealServer, name: str) -> AsyncIterator[str]:
    """Give a namespace, which is deleted afterwards."""
    await ask(server, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        yield name
    finally:
        with anyio.CancelScope(shield=True):
            await ask(server, "DELETE", f"/api/v1/namespaces/{name}")


async def create(server: RealServer, place: str, name: str) -> None:
    """Create a Sandbox."""
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    body = {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": name},
        "spec": {"podTemplate": template},
    }
    path = f"/apis/agents.x-k8s.io/v1beta1/namespaces/{place}/sandboxes"

    async def is_taken() -> bool:
        # Right after a definition was made the server answers 404 or 429 for a moment.
        try:
            await ask(server, "POST", path, body)
        except RefusedError as refused:
            return refused.code == 409
        return True

    await until(is_taken)


async def pods(server: RealServer, place: str) -> set[str]:
    """Return the names of the Pods."""
    found = await ask(server, "GET", f"/api/v1/namespaces/{place}/pods")
    return {pod["metadata"]["name"] for pod in found["items"]}


async def has_pod(server: RealServer, place: str, name: str) -> None:
    """Wait until a Sandbox was launched."""

    async def is_there() -> bool:
        return name in await pods(server, place)

    await until(is_there)


@asynccontextmanager
async def controller(kubeconfig: Path, settings: Settings) -> AsyncIterator[ObservedManager]:
    """Run a controller, whatever the server serves."""
    async with connected(load(str(kubeconfig))) as client, anyio.create_task_group() as group:
        made = ObservedManager(client, settings, clock=SystemClock())
        group.start_soon(made.run)
        yield made
        group.cancel_scope.cancel()


def process(kubeconfig: Path, log: Path, *flags: str) -> AbstractAsyncContextManager[Process]:
    """Run a controller as a process."""
    return controller_process(kubeconfig, "--context=real", *flags, log=log)


def account(server: RealServer, name: str) -> str:
    """Create a service account and return a token of it."""
    path = f"/api/v1/namespaces/{HOME}/serviceaccounts"
    server.ask("POST", path, {"metadata": {"name": name}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(server.ask("POST", f"{path}/{name}/token", request)["status"]["token"])


def role(server: RealServer, name: str, rules: list[Json]) -> None:
    """Bind an account to rules of its own."""
    server.ask("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    group = "rbac.authorization.k8s.io"
    server.ask(
        "POST",
        f"{RBAC}/clusterrolebindings",
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": HOME, "name": name}],
        },
    )


EVERYTHING: list[Json] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]

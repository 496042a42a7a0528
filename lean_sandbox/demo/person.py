"""The user of the demo: creates Sandboxes from a manifest, changes them, watches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import PODS, SANDBOXES
from lean_sandbox.local.follow import Follower
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find
from lean_sandbox.model.sandbox import Sandbox

NAMESPACE = "default"
_PATIENCE_S = 120.0

_MANIFEST = """\
apiVersion: agents.x-k8s.io/v1beta1
kind: Sandbox
metadata:
  name: {name}
spec:
  podTemplate:
    metadata:
      labels:
        app: code-interpreter
    spec:
      containers:
      - name: main
        image: python:3.12-slim
        command: ["sleep", "infinity"]
"""


class NotReachedError(Exception):
    """A Sandbox did not come to the awaited state in time."""


def manifest(name: str) -> str:
    """Return the manifest of a Sandbox as a user would write it."""
    return _MANIFEST.format(name=name)


def reason_of(sandbox: Sandbox | None) -> str:
    """Return the reason of the Ready condition, empty before there is one."""
    if sandbox is None:
        return ""
    ready = find(sandbox.status.conditions, names.READY)
    return ready.reason if ready is not None else ""


class Person:
    """Someone with kubectl: own credentials, own requests, an open watch."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._seen: dict[str, Sandbox] = {}
        self._names: dict[str, str] = {}
        self._news = anyio.Event()
        self._synced = anyio.Event()

    async def watch(self) -> None:
        """Follow all Sandboxes until cancelled."""
        await Follower(
            self._client,
            self._clock,
            SANDBOXES,
            Sandbox,
            on_change=self._changed,
            on_gone=self._gone,
            on_synced=self._synced.set,
        ).run()

    async def ready(self) -> None:
        """Wait until the watch is open."""
        await self._synced.wait()

    def get(self, name: str) -> Sandbox | None:
        """Return a Sandbox as the watch last showed it."""
        return self._seen.get(name)

    def count(self, is_counted: Callable[[Sandbox], bool]) -> int:
        """Count Sandboxes as the watch last showed them."""
        return sum(is_counted(sandbox) for sandbox in self._seen.values())

    async def apply(self, name: str) -> None:
        """Create the Sandbox of the manifest."""
        import yaml  # noqa: PLC0415

        body: dict[str, Any] = yaml.safe_load(manifest(name))
        await self._client.create(SANDBOXES, NAMESPACE, body, bytes)

    async def change(self, name: str, spec: dict[str, Any]) -> None:
        """Change fields of the spec."""
        await self._client.merge_patch(SANDBOXES, NAMESPACE, name, {"spec": spec}, bytes)

    async def delete(self, name: str) -> None:
        """Delete a Sandbox."""
        await self._client.delete(SANDBOXES, NAMESPACE, name)

    async def lose_pod(self, name: str) -> None:
        """Delete the Pod behind a Sandbox, as a drained node would."""
        await self._client.delete(PODS, NAMESPACE, name)

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something holds of what the watch shows.

        Raises :class:`NotReachedError` after two minutes.
        """
        with anyio.move_on_after(_PATIENCE_S):
            while not holds():
                self._news = anyio.Event()
                await self._news.wait()
            return
        raise NotReachedError(f"{what} was not reached within {_PATIENCE_S:g} s")

    async def until_reason(self, name: str, reason: str) -> None:
        """Wait until a Sandbox's Ready condition has a reason."""
        await self.until(f"{reason} of Sandbox {name}", lambda: reason_of(self.get(name)) == reason)

    def _changed(self, sandbox: Sandbox) -> None:
        self._seen[sandbox.metadata.name] = sandbox
        self._names[sandbox.metadata.uid] = sandbox.metadata.name
        self._news.set()

    def _gone(self, uid: str) -> None:
        self._seen.pop(self._names.pop(uid, ""), None)
        self._news.set()

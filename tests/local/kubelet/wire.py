"""An API server, a kubelet of it, and a clock that the test moves."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import NODES, PODS
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kubelet.kubelet import Kubelet
from lean_sandbox.local.kubelet.pods import PREFIX, KubeletSettings
from tests.local.kubelet.life import SWIFT
from tests.support.clients import connected, connection_to
from tests.support.clock import FakeClock
from tests.support.patience import PATIENCE_S
from tests.support.stored import is_ready

AGENT = "test-kubelet"
# How far the clock goes between two looks.
_LOOK_S = 0.25


class World:
    """An API server, a client of it, a clock, and what a test wants to know."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        self.plane = plane
        self.client = client
        self.clock = FakeClock()

    async def make(
        self, name: str, *, script: dict[str, str] | None = None, **spec: Any
    ) -> dict[str, Any]:
        """Create a Pod."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "annotations": {PREFIX + key: value for key, value in (script or {}).items()},
            },
            "spec": {"containers": [{"name": "main", "image": "nginx:1"}], **spec},
        }
        return await self.client.create(PODS, body, dict, namespace="default")

    async def taint(self, node: str, effect: str) -> None:
        """Give a Node a taint."""
        spec = {"taints": [{"key": "dedicated", "value": "me", "effect": effect}]}
        await self.client.patch(NODES, node, {"spec": spec}, bytes)

    async def get(self, name: str) -> dict[str, Any] | None:
        """Read a Pod; None when it is not there."""
        return await self.client.get(PODS, name, dict, namespace="default")

    async def until(
        self, name: str, holds: Callable[[dict[str, Any] | None], bool]
    ) -> dict[str, Any]:
        """Let time pass until something holds of a Pod, and return it."""
        with anyio.fail_after(PATIENCE_S):
            while not holds(found := await self.get(name)):
                await self.clock.advance(_LOOK_S)
            return found or {}

    async def until_told(self, name: str) -> str:
        """Let time pass until the scheduler says why it does not bind a Pod, and return that."""
        found = await self.until(name, lambda pod: bool(pod and pod["status"].get("conditions")))
        (said,) = found["status"]["conditions"]
        assert (said["type"], said["status"]) == ("PodScheduled", "False")
        assert said["reason"] == "Unschedulable"
        return str(said["message"])

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the Events about a Pod."""
        every = self.plane.store.list("events")
        return [one for one in every if one["involvedObject"]["name"] == name]

    async def _pass_time(self, until: anyio.Event) -> None:
        while not until.is_set():
            await self.clock.advance(_LOOK_S)

    @asynccontextmanager
    async def kubelet(self, settings: KubeletSettings = SWIFT) -> AsyncIterator[Kubelet]:
        """Run a kubelet."""
        chance = random.Random(1)  # noqa: S311
        async with (
            connected(connection_to(self.plane), user_agent=AGENT) as client,
            anyio.create_task_group() as group,
        ):
            kubelet = Kubelet(client, settings, clock=self.clock, chance=chance)
            is_up = anyio.Event()
            group.start_soon(self._pass_time, is_up)
            await group.start(kubelet.run)
            is_up.set()
            yield kubelet
            group.cancel_scope.cancel()

    async def until_ready(self, *names: str) -> list[dict[str, Any]]:
        """Wait until each of these Pods is ready."""
        return [await self.until(name, is_ready) for name in names]

    def count(self, verb: str, resource: str) -> int:
        """Return how many requests succeeded."""
        return sum(
            1
            for entry in self.plane.audit.entries
            if entry.code < 300
            and entry.what == f"{verb} {resource}"
            and entry.user_agent.startswith(AGENT)
        )


def phase_is(phase: str) -> Callable[[dict[str, Any] | None], bool]:
    """Return a test for a phase."""
    return lambda found: found is not None and found["status"].get("phase") == phase

"""The load: objects made by a few tasks over a few connections, and what a watching client sees.

One task for each connection and none for each object, so that the client stays out of the way of
what it measures. The project's own client sends them: over 20 connections to an embedded server it
creates 920 claims a second for 0.14 ms of CPU each, lightkube's 320 for 0.93 ms, so that a burst
would measure the one who makes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from lean_sandbox.bench.workers import BenchError
from lean_sandbox.clock import Clock
from lean_sandbox.kube import resources as kinds
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import Page, PartialObject, Resource
from lean_sandbox.local.follow import Follower
from lean_sandbox.model import names

Manifest = dict[str, Any]

MARK: Final = "bench.lean-sandbox/run"
"""Label of the namespaces that a run makes."""
_LIST_S: Final = 60.0
_TEMPLATE: Final = "t"
_POOL: Final = "p"
_POD_SPEC: Final = {
    "containers": [{"name": "main", "image": "busybox", "command": ["sleep", "inf"]}],
    "terminationGracePeriodSeconds": 1,
}
_SPECS: Final[Mapping[Resource, Manifest]] = {
    kinds.NAMESPACES: {},
    kinds.PODS: _POD_SPEC,
    kinds.SANDBOXES: {"podTemplate": {"spec": _POD_SPEC}},
    kinds.SANDBOXTEMPLATES: {"podTemplate": {"spec": _POD_SPEC}},
    kinds.SANDBOXCLAIMS: {"warmPoolRef": {"name": _POOL}},
}


# -- what is made ----------------------------------------------------------------------------------


def manifest(kind: Resource, name: str, spec: Manifest | None = None, **metadata: Any) -> Manifest:
    """Return an object of the bench."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, **metadata},
        "spec": _SPECS[kind] if spec is None else spec,
    }


def of_pool(uid: str) -> dict[str, Any]:
    """Return the metadata of a Sandbox that is a member of the pool with this uid."""
    owner = {
        "apiVersion": kinds.SANDBOXWARMPOOLS.api_version,
        "kind": kinds.SANDBOXWARMPOOLS.kind,
        "name": _POOL,
        "uid": uid,
        "controller": True,
    }
    return {"ownerReferences": [owner]}


async def make_template(client: Client, where: str) -> None:
    """Create the template of the pool."""
    template = manifest(kinds.SANDBOXTEMPLATES, _TEMPLATE)
    await client.create(kinds.SANDBOXTEMPLATES, where, template, bytes)


async def make_pool(client: Client, where: str, replicas: int) -> str:
    """Create the pool of a template that is there; return its uid."""
    spec = {"sandboxTemplateRef": {"name": _TEMPLATE}, "replicas": replicas}
    pool = manifest(kinds.SANDBOXWARMPOOLS, _POOL, spec)
    made = await client.create(kinds.SANDBOXWARMPOOLS, where, pool, PartialObject)
    return made.metadata.uid


# -- making and watching ---------------------------------------------------------------------------


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    conditions: list[_Condition] | None = None
    sandbox: _Meta | None = None
    readyReplicas: int = 0


class _Object(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()
    status: _Status | None = None


@dataclass
class Load:
    """Makes objects of one kind in a namespace, and sees by one watch when each is Ready.

    ``sent_at`` has the moment at which each was asked for and ``ready_at`` that at which the watch
    first showed it Ready, on the clock's monotonic time, ``answered`` how long its creation took,
    in seconds, ``bound`` the Sandbox that a claim was given. All have the same ``metadata`` but for
    the name. At most ``in_flight`` creations are under way; ``advice`` is what to do about objects
    that are not Ready within ``wait_s``.
    """

    client: Client
    clock: Clock
    resource: Resource
    where: str
    metadata: Mapping[str, Any]
    in_flight: int
    wait_s: float
    advice: str
    sent_at: dict[str, float] = field(default_factory=dict)
    answered: dict[str, float] = field(default_factory=dict)
    ready: dict[str, anyio.Event] = field(default_factory=dict)
    ready_at: dict[str, float] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the kind as long as the block lasts; what happens from its beginning on is seen.

        Raises BenchError (in a group) when the kind cannot be listed.
        """
        synced = anyio.Event()
        follower = Follower(
            self.client,
            self.clock,
            self.resource,
            _Object,
            on_change=self._see,
            on_gone=lambda _uid: None,
            on_synced=synced.set,
            namespace=self.where,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(follower.run)
            if not await self.clock.wait(synced, _LIST_S):
                raise BenchError(
                    f"{self.resource.qualified} could not be listed within {_LIST_S:g} s"
                )
            yield
            group.cancel_scope.cancel()

    async def send(self, listed: Sequence[str]) -> None:
        """Create objects as fast as the connections allow.

        Raises ControlPlaneError (in a group) when one is refused.
        """
        waiting = iter(listed)

        async def work() -> None:
            for name in waiting:
                await self.send_one(name)

        async with anyio.create_task_group() as group:
            for _ in range(min(self.in_flight, len(listed))):
                group.start_soon(work)

    async def send_one(self, name: str) -> None:
        """Create one object and note when."""
        made = manifest(self.resource, name, **self.metadata)
        self.ready[name] = anyio.Event()
        began = self.sent_at[name] = self.clock.monotonic()
        await self.client.create(self.resource, self.where, made, bytes)
        self.answered[name] = self.clock.monotonic() - began

    async def until_ready(self, what: str) -> None:
        """Wait until all that were made have been seen Ready. Raises BenchError."""
        with anyio.move_on_after(self.wait_s):
            for event in self.ready.values():
                await event.wait()
            return
        raise BenchError(
            f"waited {self.wait_s:g} s for {len(self.ready)} {what}, of which"
            f" {len(self.ready_at)} became Ready{self.advice}"
        )

    async def make(self, listed: Sequence[str], what: str) -> float:
        """Create objects at once; return the seconds until all were Ready. Raises BenchError."""
        began = self.clock.monotonic()
        await self.send(listed)
        await self.until_ready(what)
        return round(self.clock.monotonic() - began, 2)

    def latencies_s(self) -> dict[str, float]:
        """Return how long each took from its creation to Ready, in the order of creation."""
        ready = self.ready_at
        return {name: ready[name] - at for name, at in self.sent_at.items() if name in ready}

    def doubly_bound(self) -> int:
        """Return how many Sandboxes were given to more than one claim."""
        return sum(number > 1 for number in Counter(self.bound.values()).values())

    def _see(self, seen: _Object) -> None:
        name, status = seen.metadata.name, seen.status
        if name not in self.ready or name in self.ready_at or status is None:
            return
        conditions = status.conditions or ()
        if any(one.type == names.READY and one.status == names.TRUE for one in conditions):
            self.ready_at[name] = self.clock.monotonic()
            self.ready[name].set()
            if status.sandbox is not None:
                self.bound[name] = status.sandbox.name


async def ready_members(client: Client, where: str) -> int:
    """Return how many members the pool says are Ready."""
    pool = await client.get(kinds.SANDBOXWARMPOOLS, where, _POOL, _Object)
    return pool.status.readyReplicas if pool.status is not None else 0


async def count(client: Client, resource: Resource, where: str) -> int:
    """Return how many objects of a kind a namespace has."""
    listed = await client.list_page(resource, where, Page[PartialObject], limit=None)
    return len(listed.items)

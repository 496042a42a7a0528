"""The load: objects made by a few tasks over a few connections, and what a watching client sees.

There is one task for each connection, and none for each object, and the client is the project's
own, so that no burst measures its maker: over 20 connections to an embedded server it creates 920
claims a second for 0.14 ms of CPU each, lightkube's client 320 for 0.93 ms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from lean_sandbox.bench.options import BenchError, BenchOptions
from lean_sandbox.clock import Clock
from lean_sandbox.kube import resources as kinds
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import JSON_ACCEPT, Page, PartialObject, Resource
from lean_sandbox.local.follow import Follower
from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta, Reference

Manifest = dict[str, Any]

MARK: Final = "bench.lean-sandbox/run"
"""Label of the namespaces that a run makes."""
_LIST_S: Final = 60.0
TEMPLATE: Final = "t"
POOL: Final = "p"
_POD_SPEC: Final = {
    "containers": [{"name": "main", "image": "busybox", "command": ["sleep", "inf"]}],
    "terminationGracePeriodSeconds": 1,
}
_SPECS: Final[Mapping[Resource, Manifest]] = {
    kinds.NAMESPACES: {},
    kinds.PODS: _POD_SPEC,
    kinds.SANDBOXES: {"podTemplate": {"spec": _POD_SPEC}},
    kinds.SANDBOXTEMPLATES: {"podTemplate": {"spec": _POD_SPEC}},
    kinds.SANDBOXCLAIMS: {"warmPoolRef": {"name": POOL}},
}


def manifest(kind: Resource, name: str, spec: Manifest | None = None, **metadata: Any) -> Manifest:
    """Return an object of the bench."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, **metadata},
        "spec": _SPECS[kind] if spec is None else spec,
    }


async def make_template(client: Client, where: str) -> None:
    """Create the template of the pool."""
    template = manifest(kinds.SANDBOXTEMPLATES, TEMPLATE)
    await client.create(kinds.SANDBOXTEMPLATES, where, template, bytes)


async def make_pool(client: Client, where: str, replicas: int) -> str:
    """Create the pool of a template that is there; return its uid."""
    spec = {"sandboxTemplateRef": {"name": TEMPLATE}, "replicas": replicas}
    pool = manifest(kinds.SANDBOXWARMPOOLS, POOL, spec)
    made = await client.create(kinds.SANDBOXWARMPOOLS, where, pool, PartialObject)
    return made.metadata.uid


async def change(client: Client, kind: Resource, where: str, name: str, **spec: Any) -> None:
    """Merge fields into the spec of an object."""
    await client.patch(kind, where, name, {"spec": spec}, bytes)


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    conditions: list[_Condition] | None = None
    sandbox: Reference | None = None
    readyReplicas: int = 0


class Seen(msgspec.Struct, frozen=True, gc=False):
    """An object as a watching client sees it."""

    metadata: ObjectMeta = ObjectMeta()
    status: _Status | None = None


@asynccontextmanager
async def following(
    client: Client,
    clock: Clock,
    resource: Resource,
    where: str,
    see: Callable[[Seen], None],
    *,
    accept: str = JSON_ACCEPT,
) -> AsyncIterator[None]:
    """Show each object and each change of it from the beginning of the block to its end."""
    synced = anyio.Event()
    follower = Follower(
        client,
        clock,
        resource,
        Seen,
        on_change=see,
        on_gone=lambda _uid: None,
        on_synced=synced.set,
        namespace=where,
        accept=accept,
    )
    async with anyio.create_task_group() as group:
        group.start_soon(follower.run)
        if not await clock.wait(synced, _LIST_S):
            raise BenchError(f"{resource.qualified} could not be listed within {_LIST_S:g} s")
        yield
        group.cancel_scope.cancel()


@dataclass
class Load:
    """Makes objects of one kind in a namespace, and is shown by one watch when each is Ready.

    Their names are their numbers. ``sent_at`` is when each was asked for, ``ready_at`` when the
    watch first showed it Ready, ``answered_ms`` how long its creation took, ``bound`` the
    Sandbox that a claim was given. ``metadata`` is what they have beside their name.
    """

    client: Client
    clock: Clock
    options: BenchOptions
    resource: Resource
    where: str
    metadata: Mapping[str, Any]
    sent_at: dict[str, float] = field(default_factory=dict)
    answered_ms: dict[str, float] = field(default_factory=dict)
    ready: dict[str, anyio.Event] = field(default_factory=dict)
    ready_at: dict[str, float] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)

    async def send(self, numbers: Iterable[int]) -> None:
        """Create objects as fast as the connections allow."""
        waiting = iter(numbers)

        async def work() -> None:
            for number in waiting:
                await self.send_one(number)

        async with anyio.create_task_group() as group:
            for _ in range(self.options.load_in_flight):
                group.start_soon(work)

    async def send_one(self, number: int) -> str:
        """Create one object, note when, and return its name."""
        name = f"n{number}"
        made = manifest(self.resource, name, **self.metadata)
        self.ready[name] = anyio.Event()
        began = self.sent_at[name] = self.clock.monotonic()
        await self.client.create(self.resource, self.where, made, bytes)
        self.answered_ms[name] = round((self.clock.monotonic() - began) * 1000, 1)
        return name

    async def until_ready(self) -> None:
        """Wait until all that were made have been seen Ready. Raises BenchError."""
        with anyio.move_on_after(self.options.wait):
            for event in self.ready.values():
                await event.wait()
            return
        raise BenchError(
            f"waited {self.options.wait:g} s for {len(self.ready)} {self.resource.plural} in"
            f" {self.where}, of which {len(self.ready_at)} became Ready{self.options.advice}"
        )

    async def make(self, numbers: Iterable[int]) -> float:
        """Create objects at once; return the seconds until all were Ready. Raises BenchError."""
        began = self.clock.monotonic()
        await self.send(numbers)
        await self.until_ready()
        return round(self.clock.monotonic() - began, 2)

    def latencies_ms(self) -> dict[str, float]:
        """Return how long each took from its creation to Ready, in the order of creation."""
        return {
            name: round((self.ready_at[name] - at) * 1000, 1)
            for name, at in self.sent_at.items()
            if name in self.ready_at
        }

    def doubly_bound(self) -> int:
        """Return how many Sandboxes were given to more than one claim."""
        return sum(number > 1 for number in Counter(self.bound.values()).values())

    def see(self, seen: Seen) -> None:
        """Note when an object is Ready for the first time."""
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
    pool = await client.find(kinds.SANDBOXWARMPOOLS, where, POOL, Seen)
    assert pool is not None
    return pool.status.readyReplicas if pool.status is not None else 0


async def count(client: Client, resource: Resource, where: str) -> int:
    """Return how many objects of a kind a namespace has."""
    listed = await client.list_page(resource, where, Page[PartialObject], limit=None)
    return len(listed.items)

"""The load: objects made by a few tasks over a few connections, and what a watching client sees.

One task for each connection and none for each object, so that the client stays out of the way of
what it measures. The objects are those of :mod:`lean_sandbox.client`, but the project's own client
sends them: over 20 connections to an embedded server it creates 920 claims a second for 0.14 ms of
CPU each, lightkube's 320 for 0.93 ms, so that a burst would measure the one who makes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.core_v1 import Namespace, Pod

from lean_sandbox.bench.workers import BenchError
from lean_sandbox.client import (
    READY,
    PodTemplate,
    Reference,
    Sandbox,
    SandboxClaim,
    SandboxClaimSpec,
    SandboxSpec,
    SandboxTemplate,
    SandboxTemplateSpec,
    SandboxWarmPool,
    SandboxWarmPoolSpec,
)
from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import (
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
    Page,
    PartialObject,
    Resource,
)
from lean_sandbox.local.follow import Follower

MARK: Final = "bench.lean-sandbox/run"
"""Label of the namespaces that a run makes."""
_LIST_S: Final = 60.0
_TEMPLATE: Final = "t"
_POOL: Final = "p"


# -- what is made ----------------------------------------------------------------------------------


def namespace(name: str) -> Namespace:
    """Return a namespace of the bench."""
    return Namespace(metadata=ObjectMeta(name=name, labels={MARK: "bench"}))


def claim(name: str) -> SandboxClaim:
    """Return a SandboxClaim on the pool."""
    spec = SandboxClaimSpec(warmPoolRef=Reference(name=_POOL))
    return SandboxClaim(metadata=ObjectMeta(name=name), spec=spec)


def sandbox(name: str, *, pool_uid: str = "") -> Sandbox:
    """Return a Sandbox; with ``pool_uid`` a member of the pool of that uid."""
    owner = OwnerReference(
        apiVersion=SANDBOXWARMPOOLS.api_version,
        kind=SANDBOXWARMPOOLS.kind,
        name=_POOL,
        uid=pool_uid,
        controller=True,
    )
    metadata = ObjectMeta(name=name, ownerReferences=[owner] if pool_uid else None)
    return Sandbox(metadata=metadata, spec=SandboxSpec(podTemplate=PodTemplate(spec=_pod_spec())))


def pod(name: str) -> Pod:
    """Return the Pod of such a Sandbox, bare."""
    return Pod(metadata=ObjectMeta(name=name), spec=_pod_spec())


def _pod_spec() -> PodSpec:
    main = Container(name="main", image="busybox", command=["sleep", "inf"])
    return PodSpec(containers=[main], terminationGracePeriodSeconds=1)


async def make_pool(client: Client, where: str, replicas: int) -> str:
    """Create the pool and its template; return the pool's uid."""
    await make_template(client, where)
    return await make_pool_alone(client, where, replicas)


async def make_template(client: Client, where: str) -> None:
    """Create the template of the pool."""
    template = SandboxTemplate(
        metadata=ObjectMeta(name=_TEMPLATE),
        spec=SandboxTemplateSpec(podTemplate=PodTemplate(spec=_pod_spec())),
    )
    await client.create(SANDBOXTEMPLATES, where, template, bytes)


async def make_pool_alone(client: Client, where: str, replicas: int) -> str:
    """Create the pool of a template that is there; return its uid."""
    spec = SandboxWarmPoolSpec(sandboxTemplateRef=Reference(name=_TEMPLATE), replicas=replicas)
    pool = SandboxWarmPool(metadata=ObjectMeta(name=_POOL), spec=spec)
    made = await client.create(SANDBOXWARMPOOLS, where, pool, _Object)
    return made.metadata.uid


# -- what a watching client sees -------------------------------------------------------------------


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


class _Object(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()
    status: _Status | None = None


class Readiness:
    """Follows one kind in one namespace with a single watch of full objects.

    ``ready_at`` has the moment, on the clock's monotonic time, at which the watch first showed an
    object Ready; ``bound`` the Sandbox that a claim was given.
    """

    def __init__(self, client: Client, clock: Clock, resource: Resource, where: str) -> None:
        self.ready_at: dict[str, float] = {}
        self.bound: dict[str, str] = {}
        self.on_ready: Callable[[str], None] | None = None
        self._clock = clock
        self._kind = resource.qualified
        self._changed = anyio.Event()
        self._synced = anyio.Event()
        self._follower = Follower(
            client,
            clock,
            resource,
            _Object,
            on_change=self._take,
            on_gone=lambda _uid: None,
            on_synced=self._synced.set,
            namespace=where,
        )

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow as long as the block lasts; what happens from its beginning on is seen.

        Raises BenchError (in a group) when the kind cannot be listed.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._follower.run)
            with anyio.move_on_after(_LIST_S):
                await self._synced.wait()
            if not self._synced.is_set():
                raise BenchError(f"{self._kind} could not be listed within {_LIST_S:g} s")
            yield
            group.cancel_scope.cancel()

    async def until(self, count: int, limit_s: float, what: str, advice: str = "") -> None:
        """Wait until ``count`` objects were seen Ready. Raises BenchError after ``limit_s``."""
        with anyio.move_on_after(limit_s):
            while len(self.ready_at) < count:
                self._changed = anyio.Event()
                await self._changed.wait()
            return
        raise BenchError(
            f"waited {limit_s:g} s for {count} {what}, of which {len(self.ready_at)} became"
            f" Ready{advice}"
        )

    def doubly_bound(self) -> int:
        """Return how many Sandboxes were given to more than one claim."""
        return sum(number > 1 for number in Counter(self.bound.values()).values())

    def _take(self, seen: _Object) -> None:
        name, status = seen.metadata.name, seen.status
        if name in self.ready_at or status is None or not status.conditions:
            return
        if not any(one.type == READY and one.status == "True" for one in status.conditions):
            return
        self.ready_at[name] = self._clock.monotonic()
        if status.sandbox is not None:
            self.bound[name] = status.sandbox.name
        self._changed.set()
        if self.on_ready is not None:
            self.on_ready(name)


class _PoolStatus(msgspec.Struct, frozen=True):
    readyReplicas: int = 0


class _Pool(msgspec.Struct, frozen=True):
    status: _PoolStatus = _PoolStatus()


# -- making and watching ---------------------------------------------------------------------------


class Load:
    """Makes objects of one kind in a namespace and sees when each is Ready.

    ``sent_at`` has the moment at which each was asked for, ``answered`` how long its creation took,
    in seconds. At most ``in_flight`` are under way.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        resource: Resource,
        where: str,
        body: Callable[[str], msgspec.Struct],
        *,
        in_flight: int,
    ) -> None:
        self.seen = Readiness(client, clock, resource, where)
        self.sent_at: dict[str, float] = {}
        self.answered: dict[str, float] = {}
        self._client = client
        self._clock = clock
        self._resource = resource
        self._where = where
        self._body = body
        self._in_flight = in_flight

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Load]:
        """Follow the kind as long as the block lasts."""
        async with self.seen.following():
            yield self

    async def send(self, listed: list[str]) -> None:
        """Create objects as fast as the connections allow.

        Raises ControlPlaneError (in a group) when one is refused.
        """
        waiting: Iterator[str] = iter(listed)

        async def work() -> None:
            for name in waiting:
                await self.send_one(name)

        async with anyio.create_task_group() as group:
            for _ in range(min(self._in_flight, len(listed))):
                group.start_soon(work)

    async def send_one(self, name: str) -> None:
        """Create one object and note when."""
        made = self._body(name)
        began = self.sent_at[name] = self._clock.monotonic()
        await self._client.create(self._resource, self._where, made, bytes)
        self.answered[name] = self._clock.monotonic() - began

    def latencies_s(self) -> dict[str, float]:
        """Return how long each took from its creation to Ready, in the order of creation."""
        ready = self.seen.ready_at
        return {name: ready[name] - at for name, at in self.sent_at.items() if name in ready}


async def ready_members(client: Client, where: str) -> int:
    """Return how many members the pool says are Ready."""
    return (await client.get(SANDBOXWARMPOOLS, where, _POOL, _Pool)).status.readyReplicas


async def count(client: Client, resource: Resource, where: str) -> int:
    """Return how many objects of a kind a namespace has."""
    listed = await client.list_page(resource, where, Page[PartialObject], limit=None)
    return len(listed.items)

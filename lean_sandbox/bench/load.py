"""The load: objects made by a few tasks over a few connections, and what a watching client sees.

There is one task for each connection, and none for each object, and the client is the project's
own, so that no burst measures its maker: over 20 connections to an embedded server it creates 920
claims a second for 0.14 ms of CPU each, lightkube's client 320 for 0.93 ms.
"""

from __future__ import annotations

import random
from collections import defaultdict
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
from lean_sandbox.kube.resources import Page, PartialObject, Resource
from lean_sandbox.local.kubelet.follow import Followed, O, follow
from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta, Reference

Manifest = dict[str, Any]

MARK: Final = "bench.lean-sandbox/run"
"""Label of the namespaces that a run makes."""
_LIST_S: Final = 60.0
TEMPLATE: Final = "t"
POOL: Final = "p"
FREE: Final = {
    "labels": {names.WARM_POOL_LABEL: POOL},
    "annotations": {names.SAFE_TO_EVICT_ANNOTATION: "true"},
}
"""What makes a Pod look free: routers leave it out, and autoscalers may evict it."""
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
    await client.create(kinds.SANDBOXTEMPLATES, template, bytes, namespace=where)


async def make_pool(client: Client, where: str, replicas: int) -> str:
    """Create the pool of a template that is there; return its uid."""
    spec = {"sandboxTemplateRef": {"name": TEMPLATE}, "replicas": replicas}
    pool = manifest(kinds.SANDBOXWARMPOOLS, POOL, spec)
    made = await client.create(kinds.SANDBOXWARMPOOLS, pool, PartialObject, namespace=where)
    return made.metadata.uid


async def change(client: Client, kind: Resource, where: str, name: str, **spec: Any) -> None:
    """Merge fields into the spec of an object."""
    await client.patch(kind, name, {"spec": spec}, bytes, namespace=where)


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

    @property
    def is_ready(self) -> bool:
        """Whether its condition Ready is True."""
        conditions = (self.status.conditions if self.status is not None else None) or ()
        return any(one.type == names.READY and one.status == names.TRUE for one in conditions)

    @property
    def sandbox(self) -> str:
        """The name of the Sandbox that a claim was given, if any."""
        given = self.status.sandbox if self.status is not None else None
        return given.name if given is not None else ""


def looks_free(labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> bool:
    """Return whether a Pod with these labels and annotations still looks like a member's.

    A template may say itself that its Pods are safe to evict; no template of the bench does.
    """
    return (
        names.WARM_POOL_LABEL in (labels or {})
        or (annotations or {}).get(names.SAFE_TO_EVICT_ANNOTATION) == "true"
    )


@asynccontextmanager
async def following(
    client: Client,
    clock: Clock,
    resource: Resource,
    where: str | None,
    type_: type[O],
    see: Callable[[O], None],
) -> AsyncIterator[None]:
    """Show each object, and each change of it, while the block lasts; None: of all namespaces.

    Of a PartialObject only the metadata is watched.
    """
    reflector = follow(
        client, clock, resource, type_, uniform=random.random, on_change=see, namespace=where
    )
    async with anyio.create_task_group() as group:
        group.start_soon(reflector.run)
        if not await clock.wait(reflector.synced, _LIST_S):
            raise BenchError(f"{resource.qualified} could not be listed within {_LIST_S:g} s")
        yield
        group.cancel_scope.cancel()


@dataclass
class Made:
    """One object of the load: when it was asked for, and when a watching client saw what of it.

    ``sandbox`` is the one that a claim was given, ``answered_ms`` how long the creation took.
    """

    sent_at: float
    answered_ms: float | None = None
    ready_at: float | None = None
    usable_at: float | None = None
    sandbox: str = ""
    is_deleted: bool = False
    ready: anyio.Event = field(default_factory=anyio.Event)
    usable: anyio.Event = field(default_factory=anyio.Event)

    @property
    def ready_ms(self) -> float | None:
        """How long it took from the creation to Ready, None if it never was."""
        return _between_ms(self.sent_at, self.ready_at)

    @property
    def usable_ms(self) -> float | None:
        """How long it took from the creation until it was usable, None if it never was."""
        return _between_ms(self.sent_at, self.usable_at)

    @property
    def lag_ms(self) -> float | None:
        """How long it was Ready and not usable; None if it never was usable."""
        return _between_ms(self.ready_at, self.usable_at)


def _between_ms(began: float | None, ended: float | None) -> float | None:
    return None if began is None or ended is None else round((ended - began) * 1000, 1)


@dataclass
class Load:
    """Makes objects of one kind in a namespace, and is shown by watches what becomes of each.

    Their names are their numbers; ``metadata`` is what they have beside their name. A claim is
    usable when it has been seen Ready with a Sandbox, and the Pod of that Sandbox, which has its
    name, as one that does not look free.
    """

    client: Client
    clock: Clock
    options: BenchOptions
    resource: Resource
    where: str
    metadata: Mapping[str, Any]
    made: dict[str, Made] = field(default_factory=dict)
    _given: defaultdict[str, list[Made]] = field(default_factory=lambda: defaultdict(list))
    """The claims that each Sandbox was given to."""
    _taken: set[str] = field(default_factory=set)
    """The Pods that do not look free."""

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
        one = self.made[name] = Made(self.clock.monotonic())
        body = manifest(self.resource, name, **self.metadata)
        await self.client.create(self.resource, body, bytes, namespace=self.where)
        one.answered_ms = _between_ms(one.sent_at, self.clock.monotonic())
        return name

    async def delete(self, name: str) -> None:
        """Delete an object; what becomes of it from now on is of use to nobody."""
        self.made[name].is_deleted = True
        await self.client.delete(self.resource, name, namespace=self.where)

    async def until_ready(self) -> None:
        """Wait until all that were made have been seen Ready. Raises BenchError."""
        if await self._all(lambda one: one.ready, self.made.values(), self.options.wait):
            return
        ready = sum(one.ready.is_set() for one in self.made.values())
        raise BenchError(
            f"waited {self.options.wait:g} s for {len(self.made)} {self.resource.plural} in"
            f" {self.where}, of which {ready} became Ready{self.options.advice}"
        )

    async def until_usable(self) -> None:
        """Wait until all claims that are Ready are usable, but for ``usable_wait`` at most.

        One that is not usable by then is a finding: the controller may never see to its Pod.
        """
        ready = [one for one in self.made.values() if one.ready.is_set() and not one.is_deleted]
        await self._all(lambda one: one.usable, ready, self.options.usable_wait)

    async def _all(
        self, event_of: Callable[[Made], anyio.Event], made: Iterable[Made], limit_s: float
    ) -> bool:
        """Wait until something has happened to all; return whether it did within the limit."""
        deadline = self.clock.monotonic() + limit_s
        for one in made:
            left_s = max(0.0, deadline - self.clock.monotonic())
            if not await self.clock.wait(event_of(one), left_s):
                return False
        return True

    async def make(self, numbers: Iterable[int]) -> float:
        """Create objects at once; return the seconds until all were Ready. Raises BenchError."""
        began = self.clock.monotonic()
        await self.send(numbers)
        await self.until_ready()
        return round(self.clock.monotonic() - began, 2)

    def doubly_bound(self) -> int:
        """Return how many Sandboxes were given to more than one claim."""
        return sum(len(claims) > 1 for claims in self._given.values())

    def see(self, seen: Seen) -> None:
        """Note when an object is Ready for the first time, and which Sandbox a claim was given."""
        one = self.made.get(seen.metadata.name)
        if one is None or one.is_deleted or not seen.is_ready:
            return
        if one.ready_at is None:
            one.ready_at = self.clock.monotonic()
            one.ready.set()
        if not one.sandbox and seen.sandbox:
            one.sandbox = seen.sandbox
            self._given[one.sandbox].append(one)
            self._note_usable(one.sandbox)

    def see_pod(self, seen: Followed) -> None:
        """Note whether a Pod looks free."""
        pod = seen.metadata
        if looks_free(pod.labels, pod.annotations):
            self._taken.discard(pod.name)
        else:
            self._taken.add(pod.name)
            self._note_usable(pod.name)

    def _note_usable(self, sandbox: str) -> None:
        for one in self._given.get(sandbox, ()):
            if sandbox in self._taken and one.usable_at is None and not one.is_deleted:
                one.usable_at = self.clock.monotonic()
                one.usable.set()


async def ready_members(client: Client, where: str) -> int:
    """Return how many members the pool says are Ready."""
    pool = await client.get(kinds.SANDBOXWARMPOOLS, POOL, Seen, namespace=where)
    assert pool is not None
    return pool.status.readyReplicas if pool.status is not None else 0


async def count(client: Client, resource: Resource, where: str) -> int:
    """Return how many objects of a kind a namespace has."""
    listed = await client.list(resource, Page[PartialObject], namespace=where, chunk_size=None)
    return len(listed.items)

"""What a watching client sees: when each object of one kind in one namespace first was Ready."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from urllib.parse import urlencode

import anyio
import msgspec
from anyio.abc import TaskStatus

from lean_sandbox.bench.process import BenchError
from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import JSON_ACCEPT, Client
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.kube.resources import Resource, path
from lean_sandbox.kube.wire import Page
from lean_sandbox.watch.lines import LineSplitter

_CONNECT_S = 10.0
_TIMEOUT_S = 3600
_AGAIN_S = 0.2


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _Bound(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    conditions: list[_Condition] | None = None
    sandbox: _Bound | None = None


class _Object(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()
    status: _Status | None = None


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    object: _Object = _Object()


_decode = msgspec.json.Decoder(_Event).decode


class Readiness:
    """Follows one kind in one namespace with a single watch of full objects.

    ``ready_at`` has the moment, on the clock's monotonic time, at which the watch first showed an
    object Ready; ``bound`` the Sandbox that a claim was given. Watches that end are opened again,
    from a list: nothing is missed, only seen later; ``reopened`` counts them.
    """

    def __init__(self, client: Client, clock: Clock, resource: Resource, namespace: str) -> None:
        self.ready_at: dict[str, float] = {}
        self.bound: dict[str, str] = {}
        self.reopened = 0
        self.on_ready: Callable[[str], None] | None = None
        self._client = client
        self._clock = clock
        self._resource = resource
        self._namespace = namespace
        self._changed = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow until cancelled; started once everything from then on will be seen.

        Raises ControlPlaneError when the first list fails.
        """
        version = await self._list()
        task_status.started()
        while True:
            try:
                await self._watch(version)
            except ControlPlaneError:
                # The list that follows shows what this watch did not.
                await self._clock.sleep(_AGAIN_S)
            self.reopened += 1
            version = await self._list()

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

    async def _list(self) -> str:
        token = ""
        while True:
            page = await self._client.list_page(
                self._resource, self._namespace, Page[_Object], continue_=token or None
            )
            for item in page.items:
                self._take(item)
            token = page.metadata.continue_
            if not token:
                return page.metadata.resourceVersion

    async def _watch(self, version: str) -> None:
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(_TIMEOUT_S)}
        target = f"{path(self._resource, self._namespace)}?{urlencode(query)}"
        splitter = LineSplitter()
        async with self._client.transport.stream(
            target, headers={"Accept": JSON_ACCEPT}, connect_timeout_s=_CONNECT_S
        ) as stream:
            if stream.status != 200:
                with anyio.fail_after(_CONNECT_S):
                    raise await stream.refusal(self._resource.qualified)
            while True:
                try:
                    # Who waits for what is seen has the deadline; a watch may well be silent.
                    chunk = await stream.receive()
                except anyio.EndOfStream:
                    return
                for line in splitter.feed(chunk):
                    event = _decode(line)
                    if event.type == "ERROR":
                        return
                    if event.type != "DELETED":
                        self._take(event.object)

    def _take(self, seen: _Object) -> None:
        name, status = seen.metadata.name, seen.status
        if name in self.ready_at or status is None or not status.conditions:
            return
        if not any(one.type == "Ready" and one.status == "True" for one in status.conditions):
            return
        self.ready_at[name] = self._clock.monotonic()
        if status.sandbox is not None:
            self.bound[name] = status.sandbox.name
        self._changed.set()
        if self.on_ready is not None:
            self.on_ready(name)

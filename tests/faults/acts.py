"""A control plane that is acted upon step by step from outside of its event loop, and a record."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from typing import Any

import anyio.lowlevel

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.direct import StoredChange
from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.http.faults import HeldRequests, Loss
from lean_sandbox.local.kinds import Kind
from tests.faults.history import OBJECTS
from tests.faults.oracle import TEMPLATES
from tests.faults.scope import EVERYTHING, Scope
from tests.support.builders import of_image
from tests.support.clock import ClockLoop, EndlessError, FakeClock, settle
from tests.support.kubelets import Kubelets
from tests.support.names import EXTENSIONS
from tests.support.stored import owner_of
from tests.support.volumes import VOLUME
from tests.support.webhooks import Webhook, add_webhook
from tests.support.world import NS, running_status, write_pod_status

__all__ = ["NAMESPACES", "Acts"]

Json = dict[str, Any]
# Each of two shards serves one of them.
NAMESPACES = (NS, "away")
_FINISHED = ("Succeeded", "Failed")
# A moment of the clock has a few hundred turns of the loop, the end of a story some thousands.
_MOST_TURNS = 20_000


def _pod_template(image: str) -> Json:
    # On a node from the beginning: no scheduler is needed.
    container = {"name": "main", "image": image}
    return {"spec": {"containers": [container], "nodeName": "node-1"}}


class Acts(ABC):
    """What users and kubelets do, one after the other, while somebody serves them; and the end."""

    def __init__(self) -> None:
        """Start the server, and those who serve."""
        self.lines: list[str] = []
        self.clock = FakeClock()
        self.plane: ControlPlane
        self._kubelets: Kubelets
        self.requests: list[HeldRequests] = []
        # How many requests were told to fail: one object may have met all of these failures.
        self._failures = 0
        self.webhooks: list[Webhook] = []
        self._disowned: set[str] = set()
        """The uids of what others left or made without an owner."""
        self._addresses = 0
        self._runner = asyncio.Runner(loop_factory=lambda: ClockLoop(self.clock))
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._run(self._begin())

    # -- who serves ------------------------------------------------------------------------------

    @abstractmethod
    async def _serve(self) -> None:
        """Call :meth:`_furnish`, set ``_up`` once somebody serves, and end when ``_down`` is."""

    @abstractmethod
    async def _replace(self) -> None:
        """Let somebody else serve, who knows nothing but what is stored."""

    @property
    @abstractmethod
    def users(self) -> list[str]:
        """As whom those ask who have ever served."""

    @property
    def scope(self) -> Scope:
        """What is served at present."""
        return EVERYTHING

    @abstractmethod
    def explain(self) -> str:
        """Return what those who serve are at."""

    def _furnish(self, plane: ControlPlane) -> None:
        self.plane = plane
        add_webhook(plane, self._admit)
        plane.store.follow(self._note_owners, OBJECTS)
        self._kubelets = Kubelets(plane, *NAMESPACES)
        for name in NAMESPACES[1:]:
            metadata = {"name": name}
            plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def _admit(self, kind: Kind, obj: Json) -> None:
        for webhook in self.webhooks:
            webhook(kind, obj)

    def _note_owners(self, change: StoredChange) -> None:
        after = change.after
        if after is not None and change.by not in self.users and not owner_of(after):
            self._disowned.add(after["metadata"]["uid"])

    # -- the loop --------------------------------------------------------------------------------

    def _run(self, steps: Coroutine[Any, Any, Any]) -> Any:
        self._loop.turns_left = _MOST_TURNS
        try:
            return self._runner.run(steps)
        except EndlessError as error:
            raise AssertionError(f"{error}: {self.explain()}\n{self.text()}") from None

    @property
    def _loop(self) -> ClockLoop:
        loop = self._runner.get_loop()
        assert isinstance(loop, ClockLoop)
        return loop

    async def _begin(self) -> None:
        self._host = asyncio.ensure_future(self._serve())
        await self._when(self._up)

    async def _when(self, event: asyncio.Event) -> None:
        happens = asyncio.ensure_future(event.wait())
        await asyncio.wait({happens, self._host}, return_when=asyncio.FIRST_COMPLETED)
        if self._host.done():
            await self._host
        event.clear()

    def close(self) -> None:
        """Stop everything."""
        with self._runner:
            try:
                self._run(self._close())
            except AssertionError as error:
                error.add_note(self.text())
                raise

    async def _close(self) -> None:
        self.plane.faults.clear()
        self._down.set()
        await self._host

    # -- time --------------------------------------------------------------------------------------

    def moments(self, count: int) -> None:
        """Let everything run a little."""
        if count:
            self.tell(f"{count} moments pass")
            self._run(settle(count))

    def time(self, seconds: float) -> None:
        """Let time pass, timer by timer, whatever is held."""
        self.tell(f"{seconds} s pass")
        self._run(self._time(seconds))

    async def _time(self, seconds: float) -> None:
        loop = self._loop
        until_s = self.clock.monotonic() + seconds
        while (left_s := until_s - self.clock.monotonic()) > 0.0:
            await self._quiet()
            timers = [one for one in (self.clock.next_s, loop.next_s) if one is not None]
            await self.clock.advance(min(left_s, max(min(timers, default=left_s), 0.05)))
        await self._quiet()

    async def _quiet(self) -> None:
        """Let everything come to rest at this moment of the clock, for requests take no time."""
        while not self._loop.is_quiet:
            await anyio.lowlevel.checkpoint()

    def true_time(self) -> datetime:
        """Return the time of day."""
        return self.clock.now()

    # -- acts --------------------------------------------------------------------------------------

    def tell(self, line: str) -> None:
        """Note what happens."""
        self.lines.append(f"{self.clock.monotonic():8.2f}  {line}")

    def act(self, line: str, do: Callable[[], object]) -> None:
        """Do something to the stored objects; what does not apply at the moment is nothing."""

        async def doing() -> None:
            try:
                do()
            except StatusError as error:
                self.tell(f"{line}: {error.code}")
            else:
                self.tell(line)

        self._run(doing())

    def create(self, kind: str, namespace: str, name: str, spec: Json) -> None:
        """Create an object as a user."""
        group = "agents.x-k8s.io/v1beta1" if kind == "Sandbox" else EXTENSIONS
        metadata = {"name": name, "namespace": namespace, "annotations": {"user": "made this"}}
        body = {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec}
        self.act(f"create {kind} {namespace}/{name}", lambda: self.plane.store.create(body))

    def sandbox(
        self, namespace: str, name: str, *, service: bool, has_volume: bool = False
    ) -> None:
        """Create a Sandbox."""
        spec: Json = {"podTemplate": _pod_template("busybox")}
        if service:
            spec["service"] = True
        if has_volume:
            spec["volumeClaimTemplates"] = [VOLUME]
        self.create("Sandbox", namespace, name, spec)

    def template(
        self,
        namespace: str,
        image: str,
        *,
        metadata: Json | None = None,
        injection: str = "Disallowed",
        name: str = "t",
    ) -> None:
        """Create a template, with ``metadata`` for its Pods."""
        pod = {**_pod_template(image), "metadata": metadata or {}}
        policies = ("envVarsInjectionPolicy", "volumeClaimTemplatesPolicy")
        spec = {"podTemplate": pod, **dict.fromkeys(policies, injection)}
        self.create("SandboxTemplate", namespace, name, spec)

    def pool(self, namespace: str, replicas: int, strategy: str, name: str = "p") -> None:
        """Create a pool of the template ``t``."""
        spec = {
            "replicas": replicas,
            "sandboxTemplateRef": {"name": "t"},
            "updateStrategy": {"type": strategy},
        }
        self.create("SandboxWarmPool", namespace, name, spec)

    def claim(self, namespace: str, name: str) -> None:
        """Create a claim."""
        self.create("SandboxClaim", namespace, name, {"warmPoolRef": {"name": "p"}})

    def patch(
        self, resource: str, namespace: str, name: str, body: Json, subresource: str = ""
    ) -> None:
        """Change an object."""
        line = f"patch {resource.partition('.')[0]} {namespace}/{name} {subresource} {body}"
        self.act(
            line,
            lambda: self.plane.store.patch(
                resource, namespace, name, body, subresource=subresource
            ),
        )

    def edit_image(self, namespace: str, image: str) -> None:
        """Change the template ``t``."""
        self.patch(TEMPLATES, namespace, "t", of_image(image))

    def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        grace_s: int | None = None,
        policy: str | None = None,
    ) -> None:
        """Delete an object."""
        line = (
            f"delete {resource.partition('.')[0]} {namespace}/{name} grace {grace_s} {policy or ''}"
        )
        self.act(
            line,
            lambda: self.plane.store.delete(
                resource, namespace, name, grace_s=grace_s, policy=policy
            ),
        )

    def names(
        self, resource: str, namespace: str, is_wanted: Callable[[Json], bool] = lambda _: True
    ) -> list[str]:
        """Return the names of what is stored, or of some of it, in order."""
        found: list[str] = []

        async def listing() -> None:
            stored = self.plane.store.list(resource, namespace)
            found.extend(one["metadata"]["name"] for one in stored if is_wanted(one))

        self._run(listing())
        return sorted(found)

    # -- the kubelet -------------------------------------------------------------------------------

    def run_pod(
        self, namespace: str, name: str, *, ready: bool, moves: bool = True, has_ip: bool = True
    ) -> None:
        """Run a Pod; with another address each time it ``moves``, or without one so far."""
        self._addresses += moves
        address = f"10.244.{self._addresses // 250}.{self._addresses % 250 + 1}"
        ips = (address,) if has_ip else ()
        status = running_status(ready=ready, ips=ips)

        def run() -> None:
            held = self.plane.store.get("pods", namespace, name)
            if held.get("status", {}).get("phase") not in _FINISHED:
                write_pod_status(self.plane, name, status, namespace)

        self.act(f"kubelet runs {namespace}/{name}, ready {ready}, at {ips}", run)

    def bind(self, namespace: str, name: str) -> None:
        """Give a Pod a node."""
        self.act(
            f"Pod {namespace}/{name} gets a node", lambda: self._kubelets.bind(namespace, name)
        )

    def finish_pod(self, namespace: str, which: int, phase: str) -> None:
        """End the containers of a Pod."""

        def finish() -> None:
            pods = [pod["metadata"]["name"] for pod in self.plane.store.list("pods", namespace)]
            if pods:
                status = running_status(ready=False) | {"phase": phase}
                name = pods[which % len(pods)]
                write_pod_status(self.plane, name, status, namespace)

        self.act(f"a Pod ends in {namespace}: {phase}", finish)

    def run_all(self) -> None:
        """Let the kubelets bring every Pod to where it is to be, as far as that goes now."""
        self.act("kubelets run everything there is", self._kubelets.work)

    def live_on(self) -> None:
        """Let kubelets bring everything up, and let it come to rest."""
        self.tell("kubelets run everything")
        self._run(self._come_up())

    async def _come_up(self) -> None:
        for _ in range(4):
            await self._time(1.5)
            if not self._kubelets.work():
                break

    # -- faults ------------------------------------------------------------------------------------

    def fail(
        self, verb: str, resource: str, how: int | Loss, *, after: bool, times: int = 1
    ) -> None:
        """Let the next such requests fail."""
        done = ", carried out" if after else ""
        self.tell(f"the next {times} {verb} {resource} fail: {how}{done}")
        self._failures += times
        retry = 1 if how in (429, 503) else None
        self.plane.fail_next(verb, resource, how, times, after=after, retry_after=retry)

    def hold(self, verb: str, resource: str, *, answers: bool) -> None:
        """Hold the next such request, or its answer."""
        what = "answer to the next" if answers else "next"
        self.tell(f"the {what} {verb} {resource} is held")
        self.requests.append(self.plane.hold(verb, resource, answers=answers, times=1))

    def let_go(self, which: int) -> None:
        """Let a held request or answer go."""
        if self.requests:
            held = self.requests.pop(which % len(self.requests))
            line = f"{held.verb} {held.resource} may go on ({len(held.waiting)} waiting)"
            self.disturb(line, held.release)

    def disturb(self, line: str, do: Callable[[], object]) -> None:
        """Do something to the server or to the way there."""
        self.tell(line)

        async def doing() -> None:
            do()

        self._run(doing())

    def text(self) -> str:
        """Return what happened, as a reader can follow it."""
        last: list[str] = []
        with suppress(Exception):
            asked = [entry for entry in self.plane.audit.entries if entry.user in self.users]
            last = [
                f"          {entry.code} {entry.what} {entry.namespace}/{entry.name}"
                for entry in asked[-15:]
            ]
        return "\n".join(["", *self.lines, "  last requests:", *last])

"""A world that is acted upon step by step from outside of its event loop, and a record of it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.faults import HeldEvents, HeldRequests, Loss
from tests.faults.details import CANNOT_START, condition, discrepancies
from tests.faults.oracle import CLAIMS, POOLS, TEMPLATES, violations
from tests.faults.promises import History, history_of
from tests.faults.proxy import Proxy, open_proxy
from tests.support.backup import Backup
from tests.support.clock import ClockLoop, EndlessError, FakeClock, settle
from tests.support.extensions import settings
from tests.support.kubelets import Kubelets
from tests.support.names import EXTENSIONS
from tests.support.world import CONTROLLER, NS, World, open_world, running_status

__all__ = ["NAMESPACES", "Story"]

Json = dict[str, Any]
NAMESPACES = (NS, "other")
# The names of the Sandboxes that users make in stories, and so of their Pods.
_OF_USERS = ("a", "b")
_FINISHED = ("Succeeded", "Failed")
# Every window, pause and backoff that a story leads to is over by then.
_LONG_S = 130.0
# Watches come back within the first, which has the deadline of a list, the pause after it, and what
# follows; one that is mute is given up within the second: a server ends each watch after at most
# 319 s, and half a minute later its deadline is over, which is looked at every half minute.
_UP_S = 100.0
_MUTE_S = 380.0
_REST_S = 65.0
# A wall clock that was set is noticed within it.
_SEEN_S = 60.0
# A moment of the clock has a few hundred turns of the loop, the end of a story some thousands.
_MOST_TURNS = 20_000


def _pod_template(image: str) -> Json:
    # On a node from the beginning: no scheduler is needed.
    container = {"name": "main", "image": image}
    return {"spec": {"containers": [container], "nodeName": "node-1"}}


_VOLUME: Json = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


class Story:
    """One example: what was done, and the world it was done to."""

    def __init__(self) -> None:
        """Start server and controller, with nothing stored."""
        self.lines: list[str] = []
        self.clock = FakeClock()
        self.plane: ControlPlane
        self.history: History
        self.proxy: Proxy
        self._kubelets: Kubelets
        self.world: World
        self.backup: Backup | None = None
        self.restores = 0
        self._options: Json = {}
        self._ahead_s = 0.0
        self._set_at_s = -2 * _SEEN_S
        self._is_late = False
        self.requests: list[HeldRequests] = []
        self.events: list[HeldEvents] = []
        self._addresses = 0
        self._runner = asyncio.Runner(loop_factory=lambda: ClockLoop(self.clock))
        self._is_over = False
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._gone = asyncio.Event()
        self._starts = asyncio.Event()
        self._run(self._begin())

    # -- the loop --------------------------------------------------------------------------------

    def _run(self, steps: Coroutine[Any, Any, Any]) -> Any:
        self._loop.turns_left = _MOST_TURNS
        try:
            return self._runner.run(steps)
        except EndlessError as error:
            raise AssertionError(f"{error}: {self.world.explain()}\n{self.text()}") from None

    @property
    def _loop(self) -> ClockLoop:
        loop = self._runner.get_loop()
        assert isinstance(loop, ClockLoop)
        return loop

    async def _begin(self) -> None:
        self._host = asyncio.ensure_future(self._serve())
        await self._start()
        await self.world.until(self.world.controller.synced.is_set)

    async def _start(self) -> None:
        self._starts.set()
        await self._when(self._up)

    async def _kill(self) -> None:
        self._down.set()
        await self._when(self._gone)

    async def _when(self, event: asyncio.Event) -> None:
        happens = asyncio.ensure_future(event.wait())
        await asyncio.wait({happens, self._host}, return_when=asyncio.FIRST_COMPLETED)
        if self._host.done():
            await self._host
        event.clear()

    async def _serve(self) -> None:
        chance = random.Random(1)  # noqa: S311 - the same names in every run
        async with (
            ControlPlane(clock=self.clock.elsewhere(), rng=chance) as plane,
            open_proxy(plane.url) as proxy,
        ):
            self.plane, self.proxy = plane, proxy
            self.history = history_of(plane)
            self._kubelets = Kubelets(plane, *NAMESPACES)
            for name in NAMESPACES[1:]:
                made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                plane.store.create(made)
            while True:
                await self._starts.wait()
                self._starts.clear()
                if self._is_over:
                    break
                # Small pages: what a server does in the midst of a list happens here too.
                async with open_world(
                    settings(page_size=2, **self._options),
                    plane=plane,
                    clock=self.clock,
                    url=proxy.url,
                    is_served=False,
                ) as world:
                    self.world = world
                    self._up.set()
                    await self._down.wait()
                    self._down.clear()
                self._gone.set()

    def close(self) -> None:
        """Stop everything."""
        self._is_over = True
        with self._runner:
            try:
                self._run(self._close())
            except AssertionError as error:
                error.add_note(self.text())
                raise

    async def _close(self) -> None:
        self.plane.faults.clear()
        self.proxy.clear()
        self._down.set()
        self._starts.set()
        await self._host

    # -- time ------------------------------------------------------------------------------------

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
        await self.world.until(lambda: self._loop.is_quiet)

    def leap(self, seconds: float) -> None:
        """Set the controller's wall clock, unless it was set a moment ago.

        The controller looks at it once a minute: what is set there and back in between is unseen.
        """
        if self.clock.monotonic() - self._set_at_s > _SEEN_S:
            self._set_at_s = self.clock.monotonic()
            # What is due by then may be found by the safety net before that look.
            self.world.net_may_catch = True
            self.tell(f"the controller's wall clock is set by {seconds} s")
            self._ahead_s += seconds
            self.clock.set_wall(seconds)

    def true_time(self) -> datetime:
        """Return the time of day, whatever the controller's wall clock was set to."""
        return self.clock.now() - timedelta(seconds=self._ahead_s)

    # -- acts ------------------------------------------------------------------------------------

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
            spec["volumeClaimTemplates"] = [_VOLUME]
        self.create("Sandbox", namespace, name, spec)

    def template(
        self,
        namespace: str,
        image: str,
        *,
        metadata: Json | None = None,
        injection: str = "Disallowed",
    ) -> None:
        """Create the template ``t``, with ``metadata`` for its Pods."""
        pod = {**_pod_template(image), "metadata": metadata or {}}
        spec = {"podTemplate": pod, "envVarsInjectionPolicy": injection}
        self.create("SandboxTemplate", namespace, "t", spec)

    def pool(self, namespace: str, replicas: int, strategy: str) -> None:
        """Create the pool ``p``."""
        spec = {
            "replicas": replicas,
            "sandboxTemplateRef": {"name": "t"},
            "updateStrategy": {"type": strategy},
        }
        self.create("SandboxWarmPool", namespace, "p", spec)

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
        containers = [{"name": "main", "image": image}]
        body = {"spec": {"podTemplate": {"spec": {"containers": containers}}}}
        self.patch(TEMPLATES, namespace, "t", body)

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

    # -- the kubelet -----------------------------------------------------------------------------

    def run_pod(self, namespace: str, name: str, *, ready: bool, moves: bool = True) -> None:
        """Run a Pod; with another address each time it ``moves``."""
        self._addresses += moves
        ips = (f"10.244.{self._addresses // 250}.{self._addresses % 250 + 1}",)
        status = running_status(ready=ready, ips=ips)

        def run() -> None:
            held = self.plane.store.get("pods", namespace, name)
            if held.get("status", {}).get("phase") not in _FINISHED:
                self.plane.store.patch(
                    "pods", namespace, name, {"status": status}, subresource="status"
                )

        self.act(f"kubelet runs {namespace}/{name}, ready {ready}, at {ips[0]}", run)

    def finish_pod(self, namespace: str, which: int, phase: str) -> None:
        """End the containers of the Pod of a Sandbox that a user made."""

        def finish() -> None:
            pods = [
                pod["metadata"]["name"]
                for pod in self.plane.store.list("pods", namespace)
                if pod["metadata"]["name"] in _OF_USERS
            ]
            if pods:
                status = running_status(ready=False) | {"phase": phase}
                name = pods[which % len(pods)]
                self.plane.store.patch(
                    "pods", namespace, name, {"status": status}, subresource="status"
                )

        self.act(f"a Pod of a user's Sandbox in {namespace} ends: {phase}", finish)

    def live_on(self) -> None:
        """Let kubelets bring everything up, and let it come to rest."""
        self.tell("kubelets run everything")
        self._run(self._come_up())

    async def _come_up(self) -> None:
        for _ in range(4):
            await self._time(1.5)
            if not self._kubelets.work():
                break

    # -- faults ----------------------------------------------------------------------------------

    def fail(
        self, verb: str, resource: str, how: int | Loss, *, after: bool, times: int = 1
    ) -> None:
        """Let the next such requests fail."""
        done = ", carried out" if after else ""
        self.tell(f"the next {times} {verb} {resource} fail: {how}{done}")
        retry = 1 if how in (429, 503) else None
        self.plane.fail_next(verb, resource, how, times, after=after, retry_after=retry)

    def expire_pages(self, plural: str, times: int) -> None:
        """Let the next pages of lists, but for the first ones, be too old."""
        self.tell(f"the next {times} continue tokens of {plural} are too old")
        self.plane.fail_next(
            "list", plural, 410, times, match=lambda target: "continue" in target.query
        )

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

    def hold_events(self, plural: str) -> None:
        """Hold the events of a kind."""
        self.tell(f"events of {plural} are held")
        self.events = [one for one in self.events if not one.is_over]
        held = self.plane.hold_events(plural)
        if held not in self.events:
            self.events.append(held)

    def let_events_go(self, which: int, count: int | None) -> None:
        """Let events of a kind go, some or all."""
        if self.events:
            held = self.events[which % len(self.events)]
            line = f"{count or 'all'} events of {held.plural} go on"
            self.disturb(line, lambda: held.release(count))
            if count is None:
                self.events.remove(held)

    def disturb(self, line: str, do: Callable[[], object]) -> None:
        """Do something to the server or to the way there."""
        self.tell(line)

        async def doing() -> None:
            do()

        self._run(doing())

    def save(self) -> None:
        """Take a backup of the store."""
        # Less each time: what was known before the last restore is not reached either.
        since = 10 ** max(3, 12 - self.restores)

        def save() -> None:
            self.backup = Backup(self.plane, since=since)

        self.disturb("a backup is taken", save)

    def restore(self) -> None:
        """Restore the last backup, once: of what has happened since nothing is known any more."""
        backup, self.backup = self.backup, None
        if backup is not None:
            self.world.net_may_catch = True
            self.restores += 1
            self._is_late |= not self._is_up()

            def restoring() -> None:
                # Servers are stopped for it: no answer of before is still under way.
                self.proxy.go_away()
                self.proxy.is_away = False
                backup.restore(self.plane)

            self.disturb("the store is restored from the backup", restoring)

    def restart(self, options: Json | None = None) -> None:
        """Kill the controller and start another, perhaps with other options."""
        if options is not None:
            self._options = options
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kill the controller; until :meth:`start` there is none."""
        self.tell("the controller is killed")
        self._run(self._kill())

    def start(self) -> None:
        """Start a controller."""
        self.tell(f"another controller starts {self._options or ''}")
        self._run(self._start())

    # -- the end ---------------------------------------------------------------------------------

    def end(self) -> list[str]:
        """End all faults, let time pass, and return what is not as it should be."""
        self.tell("all faults end")
        found: list[str] = self._run(self._end())
        return found

    async def _end(self) -> list[str]:
        world = self.world
        self.plane.faults.clear()
        self.proxy.clear()
        if self._ahead_s:
            await self._work(self._set_at_s + _SEEN_S - self.clock.monotonic())
            self.leap(-self._ahead_s)
            await self._work(_SEEN_S)
        # Watches come back after a pause of up to half a minute, those that are mute once they are
        # given up, and bring what was missed. From then on nothing may be left to the safety net.
        began_s, longest_s = self.clock.monotonic(), _UP_S
        while not self._is_up():
            if self.proxy.mute_watches:
                longest_s = _UP_S + _MUTE_S
            if self.clock.monotonic() - began_s >= longest_s:
                return [f"the watches do not come back: {world.explain()}"]
            await self._time(5.0 if self.proxy.mute_watches else 0.5)
        # A watch that works again asks after five seconds whether the store was restored. One that
        # first begins after that, on a list from before, is silent until the server ends it.
        await self._time(_MUTE_S if self._is_late else 6.0)
        before = world.controller.activity().caught
        for _ in range(20):
            await self._time(4.0)
            if not self._kubelets.work():
                break
        await self._time(_LONG_S)
        for _ in range(5):
            if not self._kubelets.work():
                break
            await self._time(_LONG_S)
        await world.settle()
        found = violations(self.plane, NAMESPACES) + discrepancies(self.plane, NAMESPACES)
        if self.restores:
            # A Service for a spec that is no more is kept by one that asks for none either way; a
            # claim that cannot be served keeps the name of the Sandbox that it had (claims, 5.4).
            unknown = ("has Services", "which is not its own")
            found = [one for one in found if not any(text in one for text in unknown)]
        found += self.history.violations()
        for name, number in world.controller.activity().caught.items():
            if number > before[name]:
                found.append(f"the safety net caught {number - before[name]} of {name}")
        world.forget_requests()
        await self._time(_REST_S)
        waits = any("cannot start" in one or "NotFound" in one for one in self._reasons())
        asked = {what for what in world.asked() if not waits or not what.startswith("get ")}
        if asked:
            found.append(f"at rest the controller still asks: {dict(world.asked())}")
        self.plane.audit.reset()
        said = self._claims_say()
        await self._kill()
        await self._start()
        await self._time(_REST_S)
        # The end of a template or a pool wakes no claim (claims, 8.1): the next look tells of it.
        told = [one for one in self._claims_say() - said if one[2] in CANNOT_START]
        writes = Counter(self.world.writes())
        writes.subtract({"patch sandboxclaims/status": len(told)})
        if written := dict(+writes):
            found.append(f"a fresh controller writes over what is at rest: {written}")
        return found

    async def _work(self, seconds: float) -> None:
        """Let more than so much time pass, and kubelets work."""
        until_s = self.clock.monotonic() + seconds
        while self.clock.monotonic() <= until_s:
            await self._time(4.0)
            self._kubelets.work()

    def _claims_say(self) -> set[tuple[str, str, str]]:
        claims = [one for where in NAMESPACES for one in self.plane.store.list(CLAIMS, where)]
        named = [(one["metadata"], condition(one, "Ready").get("reason", "")) for one in claims]
        return {(it["namespace"], it["name"], reason) for it, reason in named}

    def _is_up(self) -> bool:
        controller = self.world.controller
        watches = sum(len(seen) for seen in controller.seen_versions().values())
        is_complete = controller.activity().streams == watches == self.plane.open_watches
        is_complete = is_complete and not self.proxy.mute_watches
        return is_complete and controller.synced.is_set()

    def _reasons(self) -> list[str]:
        return [
            condition["reason"]
            for namespace in NAMESPACES
            for resource in (CLAIMS, POOLS)
            for one in self.plane.store.list(resource, namespace)
            for condition in one.get("status", {}).get("conditions") or ()
        ]

    def text(self) -> str:
        """Return what happened, as a reader can follow it."""
        last: list[str] = []
        with suppress(Exception):
            last = [
                f"          {entry.code} {entry.what} {entry.namespace}/{entry.name}"
                for entry in self.plane.audit.select(user=CONTROLLER)[-15:]
            ]
        return "\n".join(["", *self.lines, "  last requests:", *last])

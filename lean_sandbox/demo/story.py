"""The story of the demo: a control plane, a controller, a user, and the bill.

The user is a Python program as anybody would write it: lightkube and :mod:`lean_sandbox.client`,
with credentials and requests of its own. Server, simulated nodes and controller speak HTTP with
each other but share this process.
"""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import anyio
import msgspec
import yaml
from lightkube import AsyncClient, KubeConfig
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

from lean_sandbox.bench.controller import Cost, read_metrics
from lean_sandbox.bench.load import looks_free
from lean_sandbox.client import (
    READY,
    Sandbox,
    SandboxClaim,
    SandboxTemplate,
    SandboxWarmPool,
    condition,
    is_ready,
)
from lean_sandbox.clock import SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.demo.bill import Account, Burst, Launch, Step, bill_of, burst_of, event_rows
from lean_sandbox.demo.show import Show
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.kube.transport import Transport
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.files import CLAIM, SANDBOX, TEMPLATE, WARM_POOL
from lean_sandbox.local.kubelet.kubelet import Kubelet
from lean_sandbox.local.kubelet.pods import KubeletSettings
from lean_sandbox.manager.manager import Manager
from lean_sandbox.manager.server import Scraper
from lean_sandbox.metrics.registry import render
from lean_sandbox.model import names

Kind = TypeVar("Kind", Sandbox, SandboxClaim, Pod)

NAMESPACE: Final = "default"
_CONTROLLER: Final = "system:serviceaccount:agent-sandbox-system:agent-sandbox-controller"
_KUBELET: Final = "kubelet-admin"
_POOL: Final = "python"
_PATIENCE_S: Final = 120.0
# An act is over when so many looks in a row have found the controller idle and no new request.
_QUIET_CHECKS: Final = 4
_REST_LIMIT_S: Final = 20.0
_POLL_S: Final = 0.1


class NotReachedError(Exception):
    """A Sandbox or a claim did not come to the awaited state in time."""


def run_demo(sandboxes: int, pool: int, claims: int, output: str) -> bool:
    """Run the demo and print its bill; return whether everything was reached."""
    account: Account | None = None
    try:
        account = anyio.run(_run, sandboxes, pool, claims, Show(quiet=output == "json"))
    except* NotReachedError as failures:
        for failure in failures.exceptions:
            print(f"demo: {failure}", file=sys.stderr)  # noqa: T201
    if account is not None and output == "json":
        print(msgspec.json.format(msgspec.json.encode(account), indent=2).decode())  # noqa: T201
    return account is not None


async def _run(sandboxes: int, pool: int, claims: int, show: Show) -> Account:
    with TemporaryDirectory(prefix="lean-sandbox-demo-") as folder:
        async with ControlPlane() as plane:

            def kubeconfig(number: int, user: str) -> Path:
                return plane.kubeconfig(Path(folder) / f"{number}.kubeconfig", user)

            for name in (_CONTROLLER, _KUBELET):
                plane.store.create(_cluster_admin(name))
            config = KubeConfig.from_file(kubeconfig(2, "admin"))
            clock = SystemClock()
            async with (
                _client(kubeconfig(0, _KUBELET)) as for_kubelet,
                _client(kubeconfig(1, _CONTROLLER)) as for_controller,
                AsyncClient(config=config, namespace=NAMESPACE) as client,
                # Last, so that its tasks have ended when what they use is closed.
                anyio.create_task_group() as group,
            ):
                chance = random.Random(7)  # noqa: S311
                kubelet = Kubelet(for_kubelet, KubeletSettings(), clock=clock, chance=chance)
                group.start_soon(kubelet.run)
                controller = Manager(for_controller, Settings(extensions=True), clock=clock)
                await group.start(controller.run)
                show.say()
                user = DemoUser(client)
                group.start_soon(user.follow, Sandbox, user.sandboxes)
                group.start_soon(user.follow, SandboxClaim, user.claims)
                group.start_soon(user.follow, Pod, user.pods)
                account = await Story(user, controller, show).tell(sandboxes, pool, claims)
                group.cancel_scope.cancel()
        return account


@asynccontextmanager
async def _client(kubeconfig: Path) -> AsyncIterator[Client]:
    transport = Transport(load(str(kubeconfig)))
    try:
        yield Client(transport)
    finally:
        with anyio.CancelScope(shield=True):
            await transport.aclose()


def _cluster_admin(user: str) -> dict[str, object]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"demo-{user.rpartition(':')[2]}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": user}],
    }


class DemoUser:
    """Creates and changes objects, and has open watches of Sandboxes, claims and Pods."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.sandboxes: dict[str, Sandbox] = {}
        self.claims: dict[str, SandboxClaim] = {}
        self.pods: dict[str, Pod] = {}
        self._changed = anyio.Event()

    async def follow(self, kind: type[Kind], into: dict[str, Kind]) -> None:
        """Keep what there is of a kind until cancelled."""
        async for event, seen in self.client.watch(kind):
            assert seen.metadata is not None
            name = str(seen.metadata.name)
            if event == "DELETED":
                into.pop(name, None)
            else:
                into[name] = seen
            changed = self._changed
            self._changed = anyio.Event()
            changed.set()

    async def create(self, kind: type[Any], manifest: str, name: str = "", **spec: Any) -> None:
        """Create the object of a manifest, under another name and with these fields."""
        wanted = yaml.safe_load(manifest)
        wanted["metadata"]["name"] = name or wanted["metadata"]["name"]
        wanted["spec"] |= spec
        await self.client.create(kind.from_dict(wanted))

    async def change(self, name: str, spec: dict[str, Any]) -> None:
        """Change fields of a Sandbox's spec."""
        await self.client.patch(Sandbox, name, {"spec": spec}, patch_type=PatchType.MERGE)

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something holds of what the watches show.

        Raises NotReachedError after two minutes.
        """
        with anyio.move_on_after(_PATIENCE_S):
            while not holds():
                await self._changed.wait()
            return
        raise NotReachedError(f"{what} was not reached within {_PATIENCE_S:g} s")

    def reason(self, name: str) -> str:
        """Return the reason of a Sandbox's condition Ready, empty before there is one."""
        sandbox = self.sandboxes.get(name)
        found = condition(sandbox, READY) if sandbox is not None else None
        return found.reason if found is not None else ""

    def has_address(self, name: str) -> bool:
        """Return whether a Sandbox has the address of a Pod."""
        sandbox = self.sandboxes.get(name)
        return bool(sandbox is not None and sandbox.status is not None and sandbox.status.podIPs)

    def has_ready(self, name: str) -> bool:
        """Return whether a claim is Ready."""
        return name in self.claims and is_ready(self.claims[name])

    def can_use(self, name: str) -> bool:
        """Return whether a claim is Ready, and the Pod of its Sandbox no longer looks free."""
        status = self.claims[name].status if self.has_ready(name) else None
        given = status.sandbox if status is not None else None
        pod = self.pods.get(str(given.name)) if given is not None else None
        if pod is None or pod.metadata is None:
            return False
        return not looks_free(pod.metadata.labels, pod.metadata.annotations)

    def is_cold(self, name: str) -> bool:
        """Return whether a claim has a Sandbox of its own, which then has its name."""
        status = self.claims[name].status
        return status is not None and status.sandbox is not None and status.sandbox.name == name

    def ready_members(self) -> int:
        """Return how many Sandboxes of the pool are Ready and not given to a claim."""
        return sum(is_ready(one) and _is_member(one) for one in self.sandboxes.values())


def _is_member(sandbox: Sandbox) -> bool:
    owners = (sandbox.metadata.ownerReferences if sandbox.metadata is not None else None) or ()
    kind = names.SANDBOX_WARM_POOL_KIND
    return any(one.controller and (one.kind, one.name) == (kind, _POOL) for one in owners)


class Story:
    """Plays the life of one Sandbox, a launch of many and a burst of claims; keeps the bill."""

    def __init__(self, user: DemoUser, controller: Manager, show: Show) -> None:
        self._user = user
        self._controller = controller
        self._clock = SystemClock()
        self._scraper = Scraper(controller, self._clock)
        self._show = show

    async def tell(self, sandboxes: int, pool: int, claims: int) -> Account:
        """Play everything and return the account. Raises NotReachedError."""
        self._show.before_life()
        steps = await self._live()
        self._show.life(steps)
        self._show.before_launch(sandboxes)
        launch = await self._launch(sandboxes)
        self._show.launch(launch)
        burst: Burst | None = None
        if claims > 0:
            self._show.before_burst(pool, claims)
            burst = await self._burst(pool, claims)
            self._show.burst(burst)
        account = Account(steps, launch, burst)
        self._show.close(account)
        return account

    async def _snapshot(self) -> Cost:
        found = await self._scraper.scrape()
        return read_metrics("".join(render(found)))

    def _is_busy(self) -> bool:
        controller = self._controller
        return any(one.queue.is_busy for one in controller.controllers) or any(
            one.is_busy for one in controller.recorders.values()
        )

    async def _cost_since(self, before: Cost) -> Cost:
        """Wait until the controller has nothing left to do or to say; return what it cost."""
        began = self._clock.monotonic()
        last = before
        quiet_checks = 0
        while quiet_checks < _QUIET_CHECKS and self._clock.monotonic() - began < _REST_LIMIT_S:
            await self._clock.sleep(_POLL_S)
            # Asked first: what ends before the look is counted in it.
            is_busy = self._is_busy()
            found = await self._snapshot()
            is_quiet = not is_busy and found.requests == last.requests
            last = found
            quiet_checks = quiet_checks + 1 if is_quiet else 0
        return last.since(before)

    async def _until_all(
        self, what: str, total: int, count: Callable[[], int], advance: Callable[[int], None]
    ) -> None:
        def holds() -> bool:
            advance(count())
            return count() == total

        await self._user.until(f"{total} {what}", holds)

    # -- the life of one Sandbox -------------------------------------------------------------------

    async def _live(self) -> list[Step]:
        user = self._user
        acts = {
            "create until Ready": self._create,
            "suspend until the Pod is gone": self._suspend,
            "resume until Ready": self._resume,
            "lose the Pod until Ready again": self._lose,
            "expire until torn down": self._expire,
        }
        steps: list[Step] = []
        with self._show.bar("one Sandbox", len(acts)) as advance:
            for title, act in acts.items():
                steps.append(await self._step(title, act))
                advance(len(steps))
        await user.client.delete(Sandbox, "demo")
        await user.until("the end of demo", lambda: "demo" not in user.sandboxes)
        return steps

    async def _step(self, title: str, action: Callable[[], Awaitable[None]]) -> Step:
        before = await self._snapshot()
        began = self._clock.monotonic()
        await action()
        took_s = self._clock.monotonic() - began
        return Step(title, bill_of(await self._cost_since(before), took_s))

    async def _until_reason(self, reason: str, *, has_address: bool = True) -> None:
        user = self._user
        await user.until(
            f"{reason} of demo",
            lambda: user.reason("demo") == reason and user.has_address("demo") is has_address,
        )

    async def _create(self) -> None:
        await self._user.create(Sandbox, SANDBOX, "demo")
        await self._until_reason(names.REASON_DEPENDENCIES_READY)

    async def _suspend(self) -> None:
        await self._user.change("demo", {"operatingMode": "Suspended"})
        await self._until_reason(names.REASON_SANDBOX_SUSPENDED, has_address=False)

    async def _resume(self) -> None:
        await self._user.change("demo", {"operatingMode": "Running"})
        await self._until_reason(names.REASON_DEPENDENCIES_READY)

    async def _lose(self) -> None:
        """Delete the Pod behind the Sandbox, as a drained node would."""
        user = self._user
        ready = names.REASON_DEPENDENCIES_READY
        await user.client.delete(Pod, "demo")
        await user.until("the loss of the Pod of demo", lambda: user.reason("demo") != ready)
        await self._until_reason(ready)

    async def _expire(self) -> None:
        at = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1)
        await self._user.change("demo", {"shutdownTime": at.isoformat()})
        await self._until_reason(names.REASON_SANDBOX_EXPIRED, has_address=False)

    # -- many at once ------------------------------------------------------------------------------

    async def _launch(self, count: int) -> Launch:
        user = self._user
        before = await self._snapshot()
        began = self._clock.monotonic()
        names = [f"launch-{number}" for number in range(count)]
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(user.create, Sandbox, SANDBOX, name)

        def ready() -> int:
            known = user.sandboxes
            return sum(name in known and is_ready(known[name]) for name in names)

        with self._show.bar("cold Sandboxes", count) as advance:
            await self._until_all("cold Sandboxes", count, ready, advance)
            took_s = self._clock.monotonic() - began
            cost = await self._cost_since(before)
        return Launch(count, bill_of(cost, took_s), event_rows(cost))

    async def _burst(self, pool: int, claims: int) -> Burst:
        user = self._user
        before = await self._snapshot()
        began = self._clock.monotonic()
        await user.create(SandboxTemplate, TEMPLATE)
        await user.create(SandboxWarmPool, WARM_POOL, replicas=pool)
        with self._show.bar("members of the warm pool", pool) as advance:
            await self._until_all("members of the pool", pool, user.ready_members, advance)
            filled_s = self._clock.monotonic() - began
            await self._cost_since(before)
            alone: list[tuple[float, float]] = []
            await self._claim("alone", alone)
            await self._until_all("members of the pool", pool, user.ready_members, advance)
            await self._cost_since(before)
        before = await self._snapshot()
        began = self._clock.monotonic()
        seen: list[tuple[float, float]] = []
        async with anyio.create_task_group() as group:
            for number in range(claims):
                group.start_soon(self._claim, f"burst-{number}", seen)
        took_s = self._clock.monotonic() - began
        with self._show.bar("all claims are usable; members", pool) as advance:
            await self._until_all("members of the pool", pool, user.ready_members, advance)
            refilled_s = self._clock.monotonic() - began
            bill = bill_of(await self._cost_since(before), took_s)
        cold = sum(user.is_cold(f"burst-{number}") for number in range(claims))
        return burst_of(
            pool,
            seen,
            bill,
            cold=cold,
            alone_s=alone[0][1],
            filled_s=filled_s,
            refilled_s=refilled_s,
        )

    async def _claim(self, name: str, seen: list[tuple[float, float]]) -> None:
        user = self._user
        began = self._clock.monotonic()
        await user.create(SandboxClaim, CLAIM, name)
        await user.until(f"a Sandbox for {name}", lambda: user.has_ready(name))
        ready_s = self._clock.monotonic() - began
        await user.until(f"a Pod of its own for {name}", lambda: user.can_use(name))
        seen.append((ready_s, self._clock.monotonic() - began))

"""The story of the demo: a control plane, a controller, a user, and the bill."""

from __future__ import annotations

import random
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.demo.bill import EventRow, LaunchBill, StepRow, print_bill
from lean_sandbox.demo.burst import Burst, Claimant
from lean_sandbox.demo.ledger import Cost, Ledger
from lean_sandbox.demo.person import NotReachedError, Person, manifest, reason_of
from lean_sandbox.demo.tables import Screen
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.config import load
from lean_sandbox.kube.telemetry import Observer
from lean_sandbox.kube.transport import Transport
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kubelet import Kubelet
from lean_sandbox.local.kubelet_settings import KubeletSettings
from lean_sandbox.manager.manager import Manager
from lean_sandbox.model import names
from lean_sandbox.model.times import format_rfc3339

_CONTROLLER = "system:serviceaccount:agent-sandbox-system:agent-sandbox-controller"
_SETTLE_S = 0.4


def run_demo(sandboxes: int, pool: int, claims: int, output: str) -> bool:
    """Run the demo and print its bill; return whether everything was reached."""
    screen = Screen(quiet=output == "json")
    bill: LaunchBill | None = None
    try:
        bill = anyio.run(_run, sandboxes, pool, claims, screen)
    except* NotReachedError as failures:
        for failure in failures.exceptions:
            print(f"demo: {failure}", file=sys.stderr)  # noqa: T201
    if bill is None:
        return False
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(bill), indent=2).decode())  # noqa: T201
    else:
        print_bill(bill, screen)
    return True


async def _run(sandboxes: int, pool: int, claims: int, screen: Screen) -> LaunchBill:
    clock = SystemClock()
    screen.step("Starting an embedded control plane, simulated nodes and the controller")
    with TemporaryDirectory(prefix="lean-sandbox-demo-") as folder:
        async with ControlPlane() as plane, anyio.create_task_group() as group:
            ledger = Ledger()
            transports: list[Transport] = []

            def client(user: str, observer: Observer | None = None) -> Client:
                path = plane.kubeconfig(Path(folder) / f"{len(user)}.kubeconfig", user)
                transports.append(Transport(load(str(path)), clock=clock, observer=observer))
                return Client(transports[-1])

            plane.store.create(_cluster_admin(_CONTROLLER))
            kubelet = Kubelet(
                client("kubelet-admin"),
                KubeletSettings(),
                clock=clock,
                chance=random.Random(7),  # noqa: S311
            )
            plane.store.create(_cluster_admin("kubelet-admin"))
            person = Person(client("admin"), clock)
            claimant = Claimant(client("admin"), clock)
            controller = Manager(
                client(_CONTROLLER, ledger.observe), Settings(extensions=True), clock=clock
            )
            ledger.controller = controller
            group.start_soon(kubelet.run)
            group.start_soon(person.watch)
            group.start_soon(claimant.watch)
            await person.ready()
            await group.start(controller.run)
            screen.progress(f"listening on {plane.url}")
            story = Story(person, controller, ledger, screen, clock)
            bill = await story.tell(sandboxes)
            if claims > 0:
                burst = Burst(person, claimant, ledger, screen, clock)
                bill = msgspec.structs.replace(bill, burst=await burst.tell(pool, claims))
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                for transport in transports:
                    await transport.aclose()
        return bill


def _cluster_admin(user: str) -> dict[str, object]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"demo-{user.rpartition(':')[2]}"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
    }


class Story:
    """Plays the life of one Sandbox, then a launch of many, and keeps the bill."""

    def __init__(
        self, person: Person, controller: Manager, ledger: Ledger, screen: Screen, clock: Clock
    ) -> None:
        self._person = person
        self._controller = controller
        self._ledger = ledger
        self._screen = screen
        self._clock = clock
        self._steps: list[StepRow] = []

    async def tell(self, sandboxes: int) -> LaunchBill:
        """Play everything and return the bill."""
        person, screen = self._person, self._screen
        screen.step("One Sandbox, from the manifest a user would write")
        for line in manifest("demo").splitlines():
            screen.progress(line)
        await self._step("create until Ready", self._create)
        await self._step("suspend until the Pod is gone", self._suspend)
        await self._step("resume until Ready", self._resume)
        await self._step("lose the Pod until Ready again", self._lose)
        await self._step("expire until torn down", self._expire)
        await person.delete("demo")
        await person.until("the end of demo", lambda: person.get("demo") is None)
        return await self._launch(sandboxes)

    async def _step(self, title: str, action: Callable[[], Awaitable[None]]) -> None:
        before = self._ledger.snapshot()
        began = self._clock.monotonic()
        await action()
        took_s = self._clock.monotonic() - began
        # Events follow off the path: let them come in before the bill of the step is drawn up.
        await self._clock.sleep(_SETTLE_S)
        cost = self._ledger.snapshot().since(before)
        self._steps.append(StepRow.of(title, took_s, cost))
        self._screen.progress(
            f"{title}: {took_s:.2f} s, {cost.writes} writes, {cost.reads} reads,"
            f" {cost.passes} passes"
        )

    async def _create(self) -> None:
        await self._person.apply("demo")
        await self._person.until_reason("demo", names.REASON_DEPENDENCIES_READY)

    async def _suspend(self) -> None:
        await self._person.change("demo", {"operatingMode": names.OPERATING_MODE_SUSPENDED})
        await self._person.until(
            "suspension of demo",
            lambda: (
                reason_of(self._person.get("demo")) == names.REASON_SANDBOX_SUSPENDED
                and not self._addresses()
            ),
        )

    def _addresses(self) -> tuple[str, ...]:
        sandbox = self._person.get("demo")
        return sandbox.status.podIPs if sandbox is not None else ()

    async def _resume(self) -> None:
        await self._person.change("demo", {"operatingMode": names.OPERATING_MODE_RUNNING})
        await self._person.until_reason("demo", names.REASON_DEPENDENCIES_READY)

    async def _lose(self) -> None:
        await self._person.lose_pod("demo")
        await self._person.until(
            "loss of the Pod of demo",
            lambda: reason_of(self._person.get("demo")) != names.REASON_DEPENDENCIES_READY,
        )
        await self._person.until_reason("demo", names.REASON_DEPENDENCIES_READY)

    async def _expire(self) -> None:
        at = format_rfc3339(self._clock.now() - timedelta(seconds=1))
        await self._person.change("demo", {"shutdownTime": at})
        await self._person.until(
            "expiry of demo",
            lambda: (
                reason_of(self._person.get("demo")) == names.REASON_SANDBOX_EXPIRED
                and not self._addresses()
            ),
        )

    async def _launch(self, sandboxes: int) -> LaunchBill:
        person, screen = self._person, self._screen
        screen.step(f"A launch of {sandboxes} cold Sandboxes at once")
        before = self._ledger.snapshot()
        began = self._clock.monotonic()
        listed = [f"launch-{number}" for number in range(sandboxes)]
        async with anyio.create_task_group() as group:
            for name in listed:
                group.start_soon(person.apply, name)
        for reached, name in enumerate(listed, 1):
            await person.until_reason(name, names.REASON_DEPENDENCIES_READY)
            if reached in (1, sandboxes // 2, sandboxes):
                screen.progress(f"{reached} of {sandboxes} Ready")
        took_s = self._clock.monotonic() - began
        await self._clock.sleep(_SETTLE_S)
        cost = self._ledger.snapshot().since(before)
        return _bill(sandboxes, took_s, cost, self._steps)


def _bill(sandboxes: int, took_s: float, cost: Cost, steps: list[StepRow]) -> LaunchBill:
    return LaunchBill(
        sandboxes=sandboxes,
        took_s=round(took_s, 3),
        requests=cost.requests_by_name(),
        writes=cost.writes,
        reads=cost.reads,
        event_posts=cost.event_posts,
        conflicts=cost.conflicts,
        passes=cost.passes,
        sent_bytes=cost.sent_bytes,
        received_bytes=cost.received_bytes,
        watch_events={kind: EventRow.of(count) for kind, count in cost.events.items()},
        steps=steps,
    )

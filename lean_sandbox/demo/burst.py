"""The second act of the demo: a pool fills, a burst of claims is bound, the pool refills."""

from __future__ import annotations

from typing import Any

import anyio

from lean_sandbox.clock import Clock
from lean_sandbox.demo.burst_bill import BurstBill
from lean_sandbox.demo.ledger import Ledger
from lean_sandbox.demo.person import NAMESPACE, NotReachedError, Person
from lean_sandbox.demo.tables import Screen
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import (
    SANDBOXCLAIMS,
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
    Resource,
)
from lean_sandbox.local.follow import Follower
from lean_sandbox.model import names
from lean_sandbox.model.claim import SandboxClaim
from lean_sandbox.model.conditions import find
from lean_sandbox.model.meta import controller_of
from lean_sandbox.model.sandbox import Sandbox

_POOL = "python"
_PATIENCE_S = 120.0
_SETTLE_S = 1.5

_TEMPLATE = """\
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata:
  name: python
spec:
  podTemplate:
    spec:
      containers:
      - name: main
        image: python:3.12-slim
        command: ["sleep", "infinity"]
"""
_POOL_MANIFEST = """\
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxWarmPool
metadata:
  name: python
spec:
  replicas: {replicas}
  sandboxTemplateRef:
    name: python
"""
_CLAIM = """\
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxClaim
metadata:
  name: {name}
spec:
  warmPoolRef:
    name: python
"""


class Claimant:
    """Someone who claims Sandboxes and watches the claims: own requests, an open watch."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._asked_at: dict[str, float] = {}
        self._synced = anyio.Event()
        self._all_bound = anyio.Event()
        self.latencies_s: dict[str, float] = {}

    async def watch(self) -> None:
        """Follow all claims until cancelled."""
        await Follower(
            self._client,
            self._clock,
            SANDBOXCLAIMS,
            SandboxClaim,
            on_change=self._changed,
            on_gone=lambda _uid: None,
            on_synced=self._synced.set,
        ).run()

    async def ready(self) -> None:
        """Wait until the watch is open."""
        await self._synced.wait()

    async def make(self, resource: Resource, manifest: str) -> None:
        """Create the object of a manifest."""
        import yaml  # noqa: PLC0415

        body: dict[str, Any] = yaml.safe_load(manifest)
        await self._client.create(resource, NAMESPACE, body, bytes)

    async def claim_at_once(self, count: int) -> None:
        """Make so many claims at the same time and wait until each is bound and Ready.

        Raises NotReachedError after two minutes.
        """
        listed = [f"burst-{number}" for number in range(count)]
        with anyio.move_on_after(_PATIENCE_S):
            self._asked_at = dict.fromkeys(listed, self._clock.monotonic())
            async with anyio.create_task_group() as group:
                for name in listed:
                    group.start_soon(self._claim, name)
            await self._all_bound.wait()
            return
        missing = count - len(self.latencies_s)
        raise NotReachedError(f"{missing} claims were not bound within {_PATIENCE_S:g} s")

    async def _claim(self, name: str) -> None:
        self._asked_at[name] = self._clock.monotonic()
        await self.make(SANDBOXCLAIMS, _CLAIM.format(name=name))

    def _changed(self, claim: SandboxClaim) -> None:
        name = claim.metadata.name
        ready = find(claim.status.conditions, names.READY)
        if (
            name not in self._asked_at
            or name in self.latencies_s
            or not claim.status.bound.name
            or ready is None
            or ready.status != names.TRUE
        ):
            return
        self.latencies_s[name] = self._clock.monotonic() - self._asked_at[name]
        if len(self.latencies_s) == len(self._asked_at):
            self._all_bound.set()


class Burst:
    """Plays the second act and draws up its bill."""

    def __init__(
        self, person: Person, claimant: Claimant, ledger: Ledger, screen: Screen, clock: Clock
    ) -> None:
        self._person = person
        self._claimant = claimant
        self._ledger = ledger
        self._screen = screen
        self._clock = clock

    async def tell(self, pool: int, claims: int) -> BurstBill:
        """Fill a pool of ``pool`` members, bind ``claims`` claims at once, await the refill."""
        claimant, screen = self._claimant, self._screen
        screen.step(f"A template, and a warm pool of {pool} Sandboxes")
        await claimant.ready()
        began = self._clock.monotonic()
        await claimant.make(SANDBOXTEMPLATES, _TEMPLATE)
        await claimant.make(SANDBOXWARMPOOLS, _POOL_MANIFEST.format(replicas=pool))
        await self._until_full(pool)
        filled_s = self._clock.monotonic() - began
        screen.progress(f"{pool} of {pool} Ready after {filled_s:.2f} s")
        await self._clock.sleep(_SETTLE_S)
        screen.step(f"A burst of {claims} claims at once")
        for line in _CLAIM.format(name="burst-0").splitlines():
            screen.progress(line)
        before = self._ledger.snapshot()
        began = self._clock.monotonic()
        await claimant.claim_at_once(claims)
        screen.progress(f"{claims} bound and Ready after {self._clock.monotonic() - began:.2f} s")
        await self._until_full(pool)
        refilled_s = self._clock.monotonic() - began
        screen.progress(f"the pool is full again after {refilled_s:.2f} s")
        # The pool's own status and the Events come a moment later and belong to the bill.
        await self._clock.sleep(_SETTLE_S)
        cost = self._ledger.snapshot().since(before)
        latencies_s = list(claimant.latencies_s.values())
        return BurstBill.of(pool, filled_s, latencies_s, refilled_s, cost)

    async def _until_full(self, pool: int) -> None:
        await self._person.until(
            f"a full pool of {pool}", lambda: self._person.count(_is_ready_member) == pool
        )


def _is_ready_member(sandbox: Sandbox) -> bool:
    owner = controller_of(sandbox.metadata)
    ready = find(sandbox.status.conditions, names.READY)
    return (
        owner is not None
        and owner.kind == names.SANDBOX_WARM_POOL_KIND
        and owner.name == _POOL
        and ready is not None
        and ready.status == names.TRUE
    )

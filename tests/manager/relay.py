"""A story of replicas of which one works at a time, and is followed by the next."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import anyio.lowlevel

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.http.faults import HeldRequests
from lean_sandbox.local.request import Target
from tests.faults.acts import NAMESPACES
from tests.faults.details import CANNOT_START
from tests.faults.ending import Ending
from tests.faults.history import History
from tests.faults.oracle import CLAIMS, POOLS, SANDBOXES
from tests.manager.ends import End
from tests.manager.replicas import Replica, Replicas, replicas_of
from tests.support.extensions import settings
from tests.support.stored import condition_of

__all__ = ["Handover", "Relay"]

Json = dict[str, Any]
# The longest that nobody leads for, and a try more.
_VACANT_S = 20.0
_READS = ("get", "list", "watch")
_BESIDE = ("leases", "events")


@dataclass(frozen=True)
class Handover:
    """How a leader ends."""

    end: End
    are_done: bool
    """Whether the writes that are under way have been carried out."""
    moments: int
    """How far it gets with what it is asked for meanwhile."""
    page_size: int
    """That of the lists of the next replica: whoever takes over lists anew what is more."""

    def __repr__(self) -> str:
        return f"Handover({self.end.__name__}, {self.are_done}, {self.moments}, {self.page_size})"


class Relay(Ending):
    """Two replicas, and another one for each that ends."""

    def __init__(self) -> None:
        """Start the server and two replicas, with nothing stored."""
        self._replicas: Replicas
        self._histories: list[History] = []
        self._held: HeldRequests
        self._found: list[str] = []
        super().__init__()

    # -- who serves ------------------------------------------------------------------------------

    async def _serve(self) -> None:
        chance = random.Random(1)  # noqa: S311 - the same names in every run
        async with (
            ControlPlane(clock=self.clock.elsewhere(), rng=chance) as plane,
            replicas_of(plane, self.clock) as replicas,
        ):
            self._furnish(plane)
            self._replicas = replicas
            for _ in range(2):
                await self._join(page_size=2)
                await self._quiet()
            self._up.set()
            await self._down.wait()

    async def _join(self, page_size: int) -> None:
        """Start one more replica."""
        name = f"replica-{len(self._replicas.all)}"
        one = await self._replicas.build(name, settings(page_size=page_size))
        self._histories.append(History(self.plane, user=one.user, now=self.clock.monotonic))
        self._replicas.start(one)

    @property
    def _leader(self) -> Replica | None:
        return next((one for one in self._replicas.alive if one.elector.is_leader), None)

    async def _replace(self) -> None:
        leader = self._leader
        assert leader is not None
        leader.scope.cancel()
        await self._time(_VACANT_S)

    @property
    def users(self) -> list[str]:
        """As whom the replicas ask."""
        return [one.user for one in self._replicas.all]

    def explain(self) -> str:
        """Return what the replicas are at."""
        return "\n".join(one.world.explain() for one in self._replicas.alive)

    def _written(self) -> Counter[str]:
        # The counts of a pool are told once more: what counts is that they are the same.
        written = super()._written()
        del written["patch sandboxwarmpools/status"]
        return written

    def _statuses(self) -> dict[str, Json]:
        """Return what all objects say, but for claims that cannot be served."""
        return {
            f"{kind.partition('.')[0]} {where}/{one['metadata']['name']}": one.get("status", {})
            for kind in (SANDBOXES, CLAIMS, POOLS)
            for where in NAMESPACES
            for one in self.plane.store.list(kind, where)
            if condition_of(one, "Ready").get("reason") not in CANNOT_START
        }

    # -- hand-overs ------------------------------------------------------------------------------

    def hand_over(self, how: Handover, acts: Callable[[], None]) -> None:
        """End the leader while it does what ``acts`` ask for, and start one more replica."""
        self._run(self._await_leader())
        leader = self._leader
        assert leader is not None, self.explain()
        self.tell(f"every other write waits{', carried out' if how.are_done else ''}")
        self._run(self._hold(how))
        acts()
        self.moments(how.moments)
        self.tell(f"{leader.elector.identity} {how.end.__name__}")
        self._run(self._end_of(leader, how))

    async def _await_leader(self) -> None:
        if self._leader is None:
            await self._time(_VACANT_S)

    async def _hold(self, how: Handover) -> None:
        numbers = count(1)

        def is_held(target: Target) -> bool:
            is_work = target.verb not in _READS and target.resource not in _BESIDE
            return is_work and next(numbers) % 2 == 0

        self._held = self.plane.hold("*", "*", answers=how.are_done, match=is_held)

    async def _end_of(self, leader: Replica, how: Handover) -> None:
        await how.end(self._replicas, leader, self._held)
        while not leader.has_ended:
            await self._time(1.0)
        while any(entry.user == leader.user for entry in self.plane.pending):
            await anyio.lowlevel.checkpoint()
        self._held.release()
        self._found += self._caught(leader)
        await self._join(how.page_size)

    def _caught(self, one: Replica) -> list[str]:
        caught = {what: n for what, n in one.controller.activity().caught.items() if n}
        return [f"the safety net of {one.elector.identity} caught {caught}"] if caught else []

    # -- the end ---------------------------------------------------------------------------------

    async def _end(self) -> list[str]:
        self.plane.faults.clear()
        await self._time(_VACANT_S)
        found = await self._come_to_rest()
        found += [text for history in self._histories for text in history.violations()]
        if self._leader is None:
            return [*found, f"nobody leads: {self.explain()}"]
        before = self._statuses()
        found += await self._stay_at_rest()
        for what, after in self._statuses().items():
            if after != before.get(what):
                found.append(f"{what} says {after} by the next leader, and said {before.get(what)}")
        for one in self._replicas.alive:
            found += self._caught(one)
        return found + self._found

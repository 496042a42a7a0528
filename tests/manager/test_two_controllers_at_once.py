"""Two controllers that work at once by mistake, with an election in none of them or in one only.

``SANDBOX_TESTS_MUDDLES`` says how many random orders of their requests and answers are tried.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from tests.faults.history import History
from tests.faults.oracle import violations
from tests.faults.telling import SEED
from tests.manager.replicas import Replicas, open_replicas
from tests.support.builders import claim, of_image, placed, pool
from tests.support.extensions import settings
from tests.support.kubelets import Kubelets
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.world import NS

MEMBERS = 5
CLAIMS_MADE = 8
SEEDS = range(SEED, SEED + int(os.environ.get("SANDBOX_TESTS_MUDDLES", "4")))
# Which of the two processes take part in the election.
ELECTED: list[tuple[str, ...]] = [(), ("one",)]


class Mess:
    """Two controllers, each of whose requests may be late, and a user who goes on."""

    def __init__(self, replicas: Replicas, seed: int) -> None:
        """Follow everything that is stored."""
        self.plane = replicas.plane
        self.chance = random.Random(seed)  # noqa: S311 - the same in every run
        self._replicas = replicas
        self._kubelets = Kubelets(self.plane, NS)
        self._histories = [
            History(self.plane, user=one.user, now=replicas.clock.monotonic) for one in replicas.all
        ]

    async def rest(self, seconds: float) -> None:
        """Let everything come to rest."""
        await self._replicas.advance(seconds)
        while self._kubelets.work():
            await self._replicas.advance(seconds)

    async def muddle(self) -> None:
        """Let requests and answers of both wait, and others overtake them."""
        for _ in range(self.chance.randint(1, 6)):
            held = self.plane.hold(
                "*", "*", answers=self.chance.random() < 0.5, match=lambda _: self._is_late()
            )
            await self._replicas.all[0].world.moments(self.chance.randint(10, 200))
            await self._replicas.clock.advance(self.chance.choice((0.0, 0.0, 0.3)))
            held.release()
        self._kubelets.work()

    def _is_late(self) -> bool:
        return self.chance.random() < 0.4

    def violations(self) -> list[str]:
        """Return what was broken on the way, and is not as specified now."""
        broken = [found for history in self._histories for found in history.violations()]
        return [*broken, *violations(self.plane, (NS,))]


@pytest.mark.parametrize("elected", ELECTED, ids=["none elects", "one elects"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_claims_pools_and_rollouts_end_as_with_one(
    seed: int, elected: tuple[str, ...]
) -> None:
    """Promises: BOUND_ONCE, READY_IS_OWNED, OWNED, CHILDREN_GO, SAME_END, and they come to rest.

    Members that both have made are too many, and go again.
    """
    unelected = tuple(name for name in ("one", "two") if name not in elected)
    async with open_replicas(*elected, unelected=unelected, settings=settings()) as replicas:
        plane = replicas.plane
        mess = Mess(replicas, seed)
        plane.store.create(placed())
        plane.store.create(pool(replicas=MEMBERS, strategy="Recreate"))
        await mess.muddle()
        await mess.rest(3.0)
        for number in range(CLAIMS_MADE):
            plane.store.create(claim(f"c-{number}"))
            if mess.chance.random() < 0.5:
                await mess.muddle()
        plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": MEMBERS + 2}})
        await mess.muddle()
        plane.store.patch(TEMPLATES, NS, "tpl", of_image("alpine"))
        await mess.muddle()
        plane.store.delete(CLAIMS, NS, "c-0")
        plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": MEMBERS - 1}})
        await mess.muddle()
        await mess.rest(20.0)
        await mess.rest(120.0)
        assert mess.violations() == []
        bound = [one["status"]["sandbox"]["name"] for one in plane.store.list(CLAIMS, NS)]
        assert len(set(bound)) == CLAIMS_MADE - 1
        assert len(plane.store.list(SANDBOXES, NS)) == CLAIMS_MADE - 1 + MEMBERS - 1
        plane.audit.reset()
        await mess.rest(600.0)
        assert Counter(entry.what for one in replicas.all for entry in one.writes()) == {}
        for one in replicas.all:
            assert not any(one.controller.activity().caught.values())

"""A hand-over in the middle of a burst: each claim is bound once, and no Sandbox too many is made.

Half of the requests of one kind are on their way when the leader ends, carried out by then or not.
"""

from __future__ import annotations

from itertools import count

import pytest

from tests.faults.history import History
from tests.faults.oracle import violations
from tests.manager.ends import ENDS, End
from tests.manager.replicas import open_replicas
from tests.support.builders import claim, placed, pool
from tests.support.extensions import settings
from tests.support.kubelets import Kubelets
from tests.support.names import CLAIMS, SANDBOXES
from tests.support.world import NS

MEMBERS = 6
BURST = 10
_PASS = 3
"""So many requests pass before the others are held."""
_REST_S = 60.0


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("carried_out", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "what", ["patch sandboxes", "patch sandboxclaims/status", "create sandboxes"]
)
async def test_a_burst_is_bound_once_whoever_ends_it(
    what: str, *, carried_out: bool, end: End
) -> None:
    """Promises: BOUND_ONCE, OWNED, NEVER_UNDONE; no write of one comes after one of the other."""
    async with open_replicas("one", "two", settings=settings()) as replicas:
        one, two = replicas.all
        plane = replicas.plane
        kubelets = Kubelets(replicas.plane, NS)

        async def rest(seconds: float) -> None:
            await replicas.advance(seconds)
            while kubelets.work():
                await replicas.advance(seconds)

        for body in (placed(), pool(replicas=MEMBERS)):
            await one.world.create(body)
        await rest(3.0)
        histories = [
            History(plane, user=each.user, now=replicas.clock.monotonic) for each in (one, two)
        ]
        verb, resource = what.split()
        numbers = count(1)
        held = plane.hold(
            verb, resource, answers=carried_out, match=lambda _: next(numbers) > _PASS
        )
        for number in range(BURST):
            plane.store.create(claim(f"c-{number}"))
        while not held.waiting:
            await one.world.moments(500)
            await replicas.clock.advance(0.5)
        await end(replicas, one, held)
        await two.world.until(lambda: one.has_ended)
        await one.world.until(lambda: not any(entry.user == one.user for entry in plane.pending))
        held.release()
        await rest(20.0)
        await rest(_REST_S)
        assert replicas.leader is two
        assert [*violations(plane, (NS,)), *(v for h in histories for v in h.violations())] == []
        bound = [each["status"]["sandbox"]["name"] for each in plane.store.list(CLAIMS, NS)]
        assert len(set(bound)) == BURST
        assert len(plane.store.list(SANDBOXES, NS)) == BURST + MEMBERS
        assert not any(two.controller.activity().caught.values())
        writers = [
            entry.user
            for entry in plane.audit.entries
            if entry.user in (one.user, two.user)
            and entry.verb not in ("get", "list", "watch")
            and entry.resource not in ("leases", "events")
        ]
        assert one.user not in writers[writers.index(two.user) :]

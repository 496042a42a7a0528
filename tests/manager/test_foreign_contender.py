"""Ours and a contender by client-go's rules share one Lease."""

from __future__ import annotations

import random
from datetime import datetime

import pytest

from tests.manager.foreign import GoContender, moment
from tests.manager.rig import Contender, Rig, open_rig
from tests.support.clock import FakeClock

_USER = "system:serviceaccount:election:foreign"


def foreign(rig: Rig, identity: str = "go", *, ahead_s: float = 0.0) -> GoContender:
    """Return a contender of the other kind; its wall clock may be wrong."""
    clock = _Following(rig.clock)
    clock.set_wall(ahead_s)
    return GoContender(rig.client(_USER), identity, clock)


class _Following(FakeClock):
    """Passes as another clock does, with a wall time of its own."""

    def __init__(self, other: FakeClock) -> None:
        super().__init__()
        self._other = other

    def monotonic(self) -> float:
        return self._other.monotonic()

    def now(self) -> datetime:
        self._elapsed = self._other.monotonic()
        return super().now()


async def hold(rig: Rig, one: GoContender, seconds: float) -> None:
    """Let it renew for some time, every two seconds."""
    for _ in range(int(seconds / 2)):
        assert await one.tick()
        await rig.advance(2.0)


@pytest.mark.parametrize("ahead_s", [-3600.0, 0.0, 3600.0])
async def test_a_foreign_holder_that_renews_is_respected(ahead_s: float) -> None:
    """For as long as it does, and whatever time it believes it to be."""
    async with open_rig() as rig:
        go = foreign(rig, ahead_s=ahead_s)
        await go.tick()
        ours = rig.contend("ours")
        await hold(rig, go, 120.0)
        assert not ours.leads
        assert ours.elector.holder == "go"
        assert rig.spec["leaseTransitions"] == 0


async def test_a_foreign_holder_that_dies_is_succeeded_after_its_duration() -> None:
    """Not before it has ceased to lead by its own clock."""
    async with open_rig() as rig:
        go = foreign(rig)
        await go.tick()
        ours = rig.contend("ours")
        await hold(rig, go, 20.0)
        await go.tick()
        took_s = await rig.until(lambda: ours.leads, within_s=17.1)
        assert took_s >= 15.0
        assert not go.leads
        assert rig.spec["leaseTransitions"] == 1


async def test_a_foreign_holder_that_releases_is_succeeded_within_two_seconds() -> None:
    """By the record that client-go leaves behind."""
    async with open_rig() as rig:
        go = foreign(rig)
        await go.tick()
        ours = rig.contend("ours")
        await hold(rig, go, 20.0)
        await go.release()
        assert await rig.until(lambda: ours.leads, within_s=2.0)
        assert rig.spec["leaseTransitions"] == 1
        assert rig.spec["leaseDurationSeconds"] == 15


async def test_our_holder_is_respected_by_a_foreign_one_until_it_dies() -> None:
    """It reads our record as one of its own kind."""
    async with open_rig() as rig:
        ours = rig.contend("ours")
        go = foreign(rig)
        for _ in range(30):
            await rig.advance(2.0)
            assert not await go.tick()
        ours.kill()
        refused_s = 0.0
        while not await go.tick():
            await rig.advance(0.5)
            refused_s += 0.5
        assert 13.0 <= refused_s <= 15.0
        assert not ours.leads
        assert rig.spec["holderIdentity"] == "go"
        assert rig.spec["leaseTransitions"] == 1


async def test_our_release_is_understood_by_a_foreign_one() -> None:
    """It takes over at its next attempt, and we respect it again."""
    async with open_rig() as rig:
        ours = rig.contend("ours")
        go = foreign(rig)
        await rig.advance(5.0)
        assert not await go.tick()
        await ours.elector.release()
        assert await go.tick()
        assert rig.spec["leaseTransitions"] == 1
        again = rig.contend("again")
        await hold(rig, go, 30.0)
        assert not again.leads


async def test_a_foreign_takeover_between_two_of_our_renewals_is_lost_to() -> None:
    """It was stopped for so long that the other was right to take the Lease."""
    async with open_rig() as rig:
        ours = rig.contend("ours")
        go = foreign(rig)
        await rig.settle()
        assert not await go.tick()
        rig.clock.leap(15.0)
        assert not ours.leads
        assert await go.tick()
        await rig.advance(2.0)
        assert ours.is_done
        assert rig.spec["holderIdentity"] == "go"


async def test_times_of_acquisition_and_transitions_are_carried_on() -> None:
    """Each keeps those of its own term, whichever kind was before it."""
    async with open_rig() as rig:
        go = foreign(rig)
        await go.tick()
        first = rig.spec["acquireTime"]
        await rig.advance(4.0)
        await go.tick()
        assert rig.spec["acquireTime"] == first
        await go.release()
        ours = rig.contend("ours")
        await rig.settle()
        second = rig.spec["acquireTime"]
        assert moment(second) > moment(first)
        await rig.advance(4.0)
        assert rig.spec["acquireTime"] == second
        await ours.elector.release()
        assert await go.tick()
        assert rig.spec["leaseTransitions"] == 2


@pytest.mark.parametrize("seed", range(3))
async def test_contending_for_long_the_two_never_lead_at_once(seed: int) -> None:
    """Both die, come back, release and miss renewals at random; somebody mostly leads."""
    chance = random.Random(seed)  # noqa: S311 -- a reproducible story
    async with open_rig() as rig:
        go = foreign(rig)
        ours = rig.contend("ours-0")
        led = 0
        for turn in range(1, 120):
            if chance.random() < 0.8:
                await go.tick()
            if chance.random() < 0.05 and go.leads:
                await go.release()
            ours = await _fate_of_ours(rig, ours, chance.random(), turn)
            await rig.advance(chance.choice((0.5, 2.0, 2.0, 7.0)))
            assert not (go.leads and ours.leads), rig.spec
            led += go.leads or ours.leads
        assert led > 60


async def _fate_of_ours(rig: Rig, ours: Contender, draw: float, turn: int) -> Contender:
    if draw < 0.05:
        ours.kill()
    elif draw < 0.1:
        await ours.elector.release()
    if draw < 0.1 or ours.is_done:
        await rig.settle()
        rig.contenders.remove(ours)
        return rig.contend(f"ours-{turn}")
    return ours

"""Slots: bounds, ranks, fairness and the token bucket, on a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import TaskGroup
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.config.options import Settings
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.limits import Limiter, Limits
from lean_sandbox.manager.manager import build_client
from lean_sandbox.turns import Rank
from tests.support.clock import FakeClock, settle


class Crowd:
    """Requests that hold their slots until they are told to end."""

    def __init__(self, limiter: Limiter, group: TaskGroup) -> None:
        self.limiter = limiter
        self.group = group
        self.order: list[str] = []
        self.leave: dict[str, anyio.Event] = {}

    async def arrive(self, name: str) -> None:
        """Let ``c...`` come with the rank CLIENT, others with SPARE; the group is after ``@``."""
        self.leave[name] = anyio.Event()
        self.group.start_soon(self._hold, name)
        await settle()

    async def end(self, name: str) -> None:
        """Let that request end."""
        self.leave[name].set()
        await settle()

    async def _hold(self, name: str) -> None:
        rank = Rank.CLIENT if name.startswith("c") else Rank.SPARE
        await self.limiter.acquire(rank, name.partition("@")[2])
        try:
            self.order.append(name)
            await self.leave[name].wait()
        finally:
            self.limiter.release(rank, name.partition("@")[2])


@asynccontextmanager
async def crowd(limits: Limits, clock: FakeClock | None = None) -> AsyncIterator[Crowd]:
    """Give a crowd in front of a limiter, and send it home at the end."""
    async with anyio.create_task_group() as group:
        yield Crowd(Limiter(clock or FakeClock(), limits), group)
        group.cancel_scope.cancel()


async def test_no_more_than_the_limit_are_in_flight() -> None:
    """The next one starts when one ends, first come, first served."""
    async with crowd(Limits(max_in_flight=2)) as people:
        for name in ("c1", "c2", "c3", "c4"):
            await people.arrive(name)
        assert people.order == ["c1", "c2"]
        await people.end("c2")
        assert people.order == ["c1", "c2", "c3"]


async def test_client_waiters_go_ahead_of_spare() -> None:
    """Somebody waits for a CLIENT request: it overtakes SPARE that came earlier."""
    async with crowd(Limits(max_in_flight=3)) as people:
        for name in ("b1", "b2", "b3", "c1", "c2"):
            await people.arrive(name)
        assert people.order == ["b1", "b2", "c1"]
        for name in ("b2", "c1", "c2"):
            await people.end(name)
        assert people.order == ["b1", "b2", "c1", "c2", "b3"]


async def test_the_last_of_several_slots_is_for_clients() -> None:
    """What hangs of the rest keeps nobody waiting who is waited for, with few slots as well."""
    async with crowd(Limits(max_in_flight=2)) as people:
        for name in ("b1", "b2", "c1"):
            await people.arrive(name)
        assert people.order == ["b1", "c1"]


async def test_spare_leaves_the_slots_above_its_share_free() -> None:
    """However much refill there is, a client finds a slot at once."""
    async with crowd(Limits(max_in_flight=3, max_spare=2)) as people:
        for name in ("b1", "b2", "b3"):
            await people.arrive(name)
        assert people.order == ["b1", "b2"]
        await people.arrive("c1")
        assert people.order == ["b1", "b2", "c1"]
        await people.end("c1")
        assert people.order == ["b1", "b2", "c1"]
        await people.end("b1")
        assert people.order[-1] == "b3"


@asynccontextmanager
async def crowd_of(settings: Settings, clock: FakeClock) -> AsyncIterator[Crowd]:
    """Give a crowd in front of the client that a controller with these settings has."""
    client = build_client(settings, clock, Connection("http://127.0.0.1:9"))
    (limiter,) = client.transport.counted.limiters
    async with anyio.create_task_group() as group:
        yield Crowd(limiter, group)
        group.cancel_scope.cancel()


@pytest.mark.parametrize(("in_flight", "spare"), [(1, 1), (8, 1), (32, 4), (100, 12)])
async def test_an_eighth_of_the_requests_may_be_what_nobody_waits_for(
    in_flight: int, spare: int
) -> None:
    """Of as many as the operator lets be in flight; one at least."""
    async with crowd_of(Settings(max_requests_in_flight=in_flight), FakeClock()) as people:
        for number in range(in_flight):
            await people.arrive(f"b{number}")
        assert len(people.order) == spare
        for number in range(in_flight):
            await people.arrive(f"c{number}@{number}")
        assert len(people.order) == in_flight


@pytest.mark.parametrize(("qps", "later"), [(0.5, 3), (2.0, 6), (0.0, 10), (-1.0, 10)])
async def test_the_operator_bounds_the_requests_a_second(qps: float, later: int) -> None:
    """Two at once, then so many a second, here for two seconds; without a rate all at once."""
    clock = FakeClock()
    async with crowd_of(Settings(kube_api_qps=qps, kube_api_burst=2), clock) as people:
        for number in range(10):
            await people.arrive(f"c{number}")
        assert len(people.order) == (2 if qps > 0 else 10)
        await clock.advance(2.0)
        assert len(people.order) == later


async def test_while_a_client_waits_spare_holds_one_slot() -> None:
    """What nobody waits for delays a crowd by one request at most; without a crowd it has four."""
    async with crowd(Limits(max_in_flight=5)) as people:
        await people.arrive("c0")
        for number in range(20):
            await people.arrive(f"b{number}")
        assert people.order == ["c0", "b0", "b1", "b2", "b3"]
        for number in range(1, 9):
            await people.arrive(f"c{number}")
        for number in range(4):
            await people.end(f"b{number}")
        assert people.order[5:] == ["c1", "c2", "c3", "b4"]
        for number in range(4):
            await people.end(f"c{number}")
        assert people.order[9:] == ["c4", "c5", "c6", "c7"]
        await people.end("c4")
        assert people.order[13:] == ["c8"], "and now no client waits"
        await people.end("c5")
        assert people.order[14:] == ["b5"]


@pytest.mark.parametrize("slots", [1, 2, 32])
async def test_spare_is_never_starved(slots: int) -> None:
    """Under an endless queue of clients it has one slot, of a single one every other turn."""
    async with crowd(Limits(max_in_flight=slots)) as people:
        for number in range(99):
            await people.arrive(f"c{number}@{number}")
        for number in range(3):
            await people.arrive(f"b{number}@s{number}")
        for number in range(3):
            assert f"b{number}@s{number}" not in people.order
            await people.end(people.order[-1])
            if f"b{number}@s{number}" not in people.order:
                await people.end(people.order[-1])
            assert people.order[-1] == f"b{number}@s{number}"


async def test_groups_take_turns_in_a_rank() -> None:
    """However many requests of one namespace wait, another one's is the next but one."""
    async with crowd(Limits(max_in_flight=1)) as people:
        for number in range(20):
            await people.arrive(f"c{number}@burst")
        await people.arrive("c@single")
        await people.arrive("c@other")
        await people.arrive("c2@single")
        for _ in range(7):
            await people.end(people.order[-1])
        assert people.order == [
            *("c0@burst", "c1@burst", "c@single", "c@other", "c2@burst", "c2@single"),
            *("c3@burst", "c4@burst"),
        ]


async def test_the_last_eighth_of_the_slots_is_for_groups_that_hold_none() -> None:
    """Were all requests about one namespace to hang, those about another would still be sent."""
    async with crowd(Limits(max_in_flight=16)) as people:
        for number in range(40):
            await people.arrive(f"c{number}@stuck")
            await people.arrive(f"b{number}@stuck")
        assert len(people.order) == 14
        await people.arrive("c@single")
        await people.arrive("c2@single")
        assert people.order[14:] == ["c@single"]
        await people.end("c@single")
        assert people.order[15:] == ["c2@single"]
        await people.end("c2@single")
        await people.end(people.order[0])
        assert len(people.order) == 17


async def test_a_cancelled_waiter_leaves_no_trace() -> None:
    """Neither its place in the queue nor a slot it was just given is lost."""
    limits = Limits(max_in_flight=1)
    limiter = Limiter(FakeClock(), limits)
    for granted_meanwhile in (False, True):
        await limiter.acquire(Rank.CLIENT)
        async with crowd(limits) as people:
            people.limiter = limiter
            await people.arrive("b1")
            assert limiter.slots.waiting(Rank.SPARE) == 1
            if granted_meanwhile:
                limiter.release(Rank.CLIENT)
        if not granted_meanwhile:
            limiter.release(Rank.CLIENT)
        assert limiter.slots.waiting(Rank.SPARE) == 0
        assert limiter.slots.in_use == 0


async def test_the_bucket_lets_a_burst_through_and_then_the_rate() -> None:
    """With qps 2 and burst 3: three at once, then one every half second, clients first."""
    clock = FakeClock()
    async with crowd(Limits(max_in_flight=16, qps=2.0, burst=3), clock) as people:
        for name in ("b1", "b2", "b3", "b4", "c5", "c6"):
            await people.arrive(name)
        assert people.order == ["b1", "b2", "b3"]
        await clock.advance(0.4)
        assert len(people.order) == 3
        await clock.advance(0.1)
        assert people.order[3:] == ["c5"]
        await clock.advance(0.5)
        assert people.order[3:] == ["c5", "c6"]
        for name in ("c5", "c6"):
            await people.end(name)
        await clock.advance(0.5)
        assert people.order[3:] == ["c5", "c6", "b4"]


async def test_of_all_who_wait_for_the_rate_one_looks_at_the_clock() -> None:
    """A crowd costs no more than the grants do, also once the one that looks has gone."""
    clock = FakeClock()
    async with crowd(Limits(max_in_flight=500, qps=10.0, burst=1), clock) as people:
        for number in range(200):
            await people.arrive(f"c{number}")
        assert clock.sleepers == 1
        for granted in (2, 3, 4):
            await clock.advance(0.1)
            assert len(people.order) == granted
            assert clock.sleepers == 1


async def test_a_bucket_and_full_slots_together_still_let_everybody_through() -> None:
    """A slot that comes free while no token is there is found again when one is."""
    clock = FakeClock()
    async with crowd(Limits(max_in_flight=1, qps=1.0, burst=1), clock) as people:
        await people.arrive("c1")
        await people.arrive("c2")
        await people.end("c1")
        assert people.order == ["c1"]
        await clock.advance(1.0)
        assert people.order == ["c1", "c2"]


@given(
    st.sampled_from([1, 2, 3, 5, 8, 9]),
    st.integers(1, 9),
    st.lists(st.tuples(st.sampled_from("cb"), st.integers(0, 30)), max_size=40),
)
async def test_bounds_hold_for_any_arrivals(
    slots: int, behind: int, steps: list[tuple[str, int]]
) -> None:
    """Whoever comes and goes: never above the bounds, and a free slot never waits for a waiter."""
    limiter = Limiter(FakeClock(), Limits(max_in_flight=slots, max_spare=behind))
    behind = min(behind, max(1, slots - 1))
    async with anyio.create_task_group() as group:
        people = Crowd(limiter, group)
        for number, (kind, who) in enumerate(steps):
            inside = [name for name in people.order if not people.leave[name].is_set()]
            if who % 3 == 0 and inside:
                await people.end(inside[who % len(inside)])
            else:
                await people.arrive(f"{kind}{number}@{who % 2}")
            total = limiter.slots.in_use
            spare = limiter.slots.held[Rank.SPARE]
            assert total <= slots
            assert spare <= behind
            holders = [one for one in people.order if not people.leave[one].is_set()]
            for one in people.leave.keys() - people.order:
                clients = limiter.slots.waiting(Rank.CLIENT)
                is_shut = one.startswith("b") and spare >= (1 if clients else behind)
                has_some = any(one[-1] == other[-1] for other in holders)
                is_spare = total >= slots - slots // 8 and has_some
                assert total == slots or is_shut or is_spare
        group.cancel_scope.cancel()

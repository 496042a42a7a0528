"""The tasks that wait in get: when they are woken, and by what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import anyio

from lean_sandbox.runtime.queue import WorkQueue
from lean_sandbox.turns import Rank
from tests.support.clock import FakeClock, settle


class Taker:
    """A task that takes items and keeps them, unless it ``ends`` each at once."""

    def __init__(self, queue: WorkQueue[str], *, limit: int = 1, ends: bool = False) -> None:
        self.queue = queue
        self.ends = ends
        self.limit = limit
        self.got: list[str] = []
        self.closed = False
        self.scope = anyio.CancelScope()
        self.task: asyncio.Task[None]

    async def run(self) -> None:
        """Take until the limit, the end of the queue, or a cancellation."""
        self.task = cast("asyncio.Task[None]", asyncio.current_task())
        with self.scope:
            while len(self.got) < self.limit:
                item = await self.queue.get()
                if item is None:
                    self.closed = True
                    return
                self.got.append(item.key)
                if self.ends:
                    self.queue.done(item.key)


@asynccontextmanager
async def at_work(*takers: Taker) -> AsyncIterator[None]:
    """Let takers of one queue wait for keys whose time is kept; close the queue in the end."""
    queue = takers[0].queue
    async with anyio.create_task_group() as group:
        group.start_soon(queue.keep_time)
        for taker in takers:
            group.start_soon(taker.run)
        await settle()
        yield
        queue.close()


async def test_get_returns_at_once_when_something_is_ready() -> None:
    """Nobody waits for what is there."""
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    queue.add("a")
    item = await queue.get()
    assert item is not None
    assert item.key == "a"


async def test_an_earlier_delay_shortens_the_wait_under_way() -> None:
    """The timer follows the earliest key, also when a key is pulled forward."""
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    taker = Taker(queue, limit=2)
    async with at_work(taker):
        queue.add("a", after_s=100)
        await clock.advance(1)
        queue.add("b", after_s=9)
        queue.add("a", after_s=19)
        await clock.advance(9)
        assert taker.got == ["b"]
        await clock.advance(10)
        assert taker.got == ["b", "a"]


async def test_a_delay_pulled_forward_shortens_the_wait_under_way() -> None:
    """A delayed key that is asked for earlier, but not yet, comes up at its new time."""
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    taker = Taker(queue)
    async with at_work(taker):
        queue.add("a", after_s=100)
        await clock.advance(1)
        queue.add("a", after_s=9)
        await clock.advance(9)
        assert taker.got == ["a"]


async def test_a_task_that_was_cancelled_leaves_the_key_to_the_next() -> None:
    """A key is not left lying because the task it woke was cancelled."""
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    first = Taker(queue)
    second = Taker(queue)
    async with anyio.create_task_group() as group:
        group.start_soon(first.run)
        await settle()
        queue.add("a")
        first.scope.cancel()
        await settle()
        group.start_soon(second.run)
        await settle()
        queue.close()
    assert first.got + second.got == ["a"]


async def test_a_task_that_was_cancelled_hands_its_call_to_another_that_waits() -> None:
    """Nor is it left lying where the others have been waiting for long."""
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    takers = [Taker(queue) for _ in range(3)]
    async with at_work(*takers):
        queue.add("a")
        # The last to come was called. A scope would let it take the key first.
        takers[2].task.cancel()
        takers[0].scope.cancel()
        await settle()
        assert [taker.got for taker in takers] == [[], ["a"], []]


async def test_each_add_calls_one_of_the_tasks_that_wait() -> None:
    """Keys that come at once are taken at once; who is not needed goes on waiting."""
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    takers = [Taker(queue) for _ in range(5)]
    async with at_work(*takers):
        for key in "abc":
            queue.add(key)
        await settle()
        assert sorted(key for taker in takers for key in taker.got) == ["a", "b", "c"]
        assert [len(taker.got) for taker in takers] == [0, 0, 1, 1, 1]
        queue.add("d")
        await settle()
        assert takers[1].got == ["d"]


async def test_a_time_that_comes_calls_one_of_the_tasks_that_wait() -> None:
    """A hundred idle tasks are not woken for one key."""
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    takers = [Taker(queue) for _ in range(3)]
    async with at_work(*takers):
        queue.add("a", after_s=5)
        await clock.advance(4)
        assert clock.sleepers == 1
        await clock.advance(1)
        assert [taker.got for taker in takers] == [[], [], ["a"]]


async def test_close_wakes_the_waiting_tasks() -> None:
    """Nobody waits for a queue that is closed."""
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    takers = [Taker(queue), Taker(queue)]
    async with at_work(*takers):
        pass
    assert all(taker.closed for taker in takers)


async def test_every_key_is_handed_out_once_as_time_passes() -> None:
    """Nothing is lost or handed out twice, whatever is due when."""
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    taker = Taker(queue, limit=1000, ends=True)
    async with at_work(taker):
        for n in range(200):
            queue.add(f"{n}", after_s=n % 5, rank=Rank(n % 2))
            if n % 11 == 0:
                await clock.advance(0.7)
        await clock.advance(5)
    assert sorted(taker.got, key=int) == [str(n) for n in range(200)]


async def test_the_last_client_in_line_wakes_a_task_for_each_key_that_may_run_with_it() -> None:
    """While a client's key waits one other is in hand; then as many as their share allows."""
    queue: WorkQueue[str] = WorkQueue(FakeClock(), most_running=8)
    takers = [Taker(queue) for _ in range(15)]
    for n in range(9):
        queue.add(f"client{n}")
    assert taken(queue, most=9) == [f"client{n}" for n in range(8)]
    for n in range(15):
        queue.add(f"{n}", rank=Rank.SPARE)
    async with at_work(*takers):
        assert not any(taker.got for taker in takers)
        for n in range(5):
            queue.done(f"client{n}")
        assert taken(queue, most=2) == ["0", "client8"]
        await settle()
        assert sorted(key for taker in takers for key in taker.got) == ["1", "2", "3"]


def taken(queue: WorkQueue[str], most: int = 1) -> list[str]:
    """Take keys as a task that does not wait."""
    items = [queue.get_nowait() for _ in range(most)]
    return [item.key for item in items if item is not None]

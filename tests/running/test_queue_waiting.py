"""Tasks that wait in get: who is woken, when, and by what."""

from __future__ import annotations

import anyio
import pytest

from lean_sandbox.runtime.queue import Item, QueueClosedError, WorkQueue
from tests.support.clock import FakeClock, settle


class Taker:
    """A task that takes items and keeps them, counting how often it was scheduled to look."""

    def __init__(self, queue: WorkQueue[str], *, limit: int = 1) -> None:
        self.queue = queue
        self.limit = limit
        self.got: list[str] = []
        self.closed = False
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        """Take until the limit, the end of the queue, or a cancellation."""
        with self.scope:
            try:
                while len(self.got) < self.limit:
                    self.got.append((await self.queue.get()).key)
            except QueueClosedError:
                self.closed = True


class CountingQueue(WorkQueue[str]):
    """Counts the looks for an item."""

    looks = 0

    def get_nowait(self) -> Item[str] | None:
        """Count, and look."""
        self.looks += 1
        return super().get_nowait()


async def test_get_returns_at_once_when_something_is_ready() -> None:
    """Nobody waits for what is there."""
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    queue.add("a")
    assert (await queue.get()).key == "a"


async def test_a_waiting_task_is_woken_by_an_add() -> None:
    """An add ends the wait."""
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    taker = Taker(queue)
    async with anyio.create_task_group() as group:
        group.start_soon(taker.run)
        await settle()
        queue.add("a")
    assert taker.got == ["a"]


async def test_a_waiting_task_is_woken_when_a_delay_ends() -> None:
    """Time alone brings a delayed key up."""
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("a", after_s=30)
    taker = Taker(queue)
    async with anyio.create_task_group() as group:
        group.start_soon(taker.run)
        await clock.advance(29)
        assert taker.got == []
        await clock.advance(1)
        assert taker.got == ["a"]


async def test_an_earlier_delay_shortens_the_wait_under_way() -> None:
    """The timer follows the earliest key, also when a key is pulled forward."""
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    taker = Taker(queue, limit=2)
    async with anyio.create_task_group() as group:
        group.start_soon(taker.run)
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
    async with anyio.create_task_group() as group:
        group.start_soon(taker.run)
        queue.add("a", after_s=100)
        await clock.advance(1)
        queue.add("a", after_s=9)
        await clock.advance(9)
        assert taker.got == ["a"]


async def test_the_end_of_a_delay_wakes_one_task() -> None:
    """The task that watches the clock takes the item; one other takes over the clock."""
    clock = FakeClock()
    queue = CountingQueue(clock)
    queue.add("a", after_s=10)
    takers = [Taker(queue) for _ in range(50)]
    async with anyio.create_task_group() as group:
        for taker in takers:
            group.start_soon(taker.run)
        await settle()
        before = queue.looks
        await clock.advance(10)
        assert sum(len(taker.got) for taker in takers) == 1
        assert queue.looks - before == 2
        queue.close()


async def test_one_item_wakes_one_task() -> None:
    """No thundering herd: of fifty waiting tasks only one looks for a new item."""
    clock = FakeClock()
    queue = CountingQueue(clock)
    takers = [Taker(queue) for _ in range(50)]
    async with anyio.create_task_group() as group:
        for taker in takers:
            group.start_soon(taker.run)
        await settle()
        before = queue.looks
        queue.add("a")
        await settle()
        assert sum(len(taker.got) for taker in takers) == 1
        assert queue.looks - before == 1
        queue.close()


async def test_many_waiting_tasks_need_one_timer() -> None:
    """Only one task watches the clock; the delayed keys still reach all of them."""
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    for n in range(10):
        queue.add(f"{n}", after_s=10 + n)
    takers = [Taker(queue) for _ in range(10)]
    async with anyio.create_task_group() as group:
        for taker in takers:
            group.start_soon(taker.run)
        await settle()
        assert clock.sleepers == 1
        await clock.advance(25)
    assert sorted(key for taker in takers for key in taker.got) == [str(n) for n in range(10)]


@pytest.mark.parametrize("victim", [0, 1, 2])
async def test_a_task_cancelled_while_being_woken_passes_the_item_on(victim: int) -> None:
    """An item is not left lying because the task called for it was cancelled."""
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    takers = [Taker(queue) for _ in range(3)]
    async with anyio.create_task_group() as group:
        for taker in takers:
            group.start_soon(taker.run)
        await settle()
        queue.add("a")
        takers[victim].scope.cancel()
        await settle()
        assert [key for taker in takers for key in taker.got] == ["a"]
        queue.close()


async def test_the_timer_is_taken_over_when_its_watcher_is_cancelled() -> None:
    """Delayed keys come up for the remaining tasks."""
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("a", after_s=10)
    first, second = Taker(queue), Taker(queue)
    async with anyio.create_task_group() as group:
        group.start_soon(first.run)
        await settle()
        group.start_soon(second.run)
        await settle()
        first.scope.cancel()
        await clock.advance(10)
        assert second.got == ["a"]


async def test_close_wakes_every_waiting_task() -> None:
    """Nobody waits for a queue that is closed."""
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    takers = [Taker(queue) for _ in range(5)]
    async with anyio.create_task_group() as group:
        for taker in takers:
            group.start_soon(taker.run)
        group.start_soon(queue.wait_closed)
        await settle()
        queue.close()
    assert all(taker.closed for taker in takers)


async def test_every_key_reaches_someone_under_concurrent_takers() -> None:
    """Nothing is lost or handed out twice when many take at once."""
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    takers = [Taker(queue, limit=1000) for _ in range(7)]
    async with anyio.create_task_group() as group:
        for taker in takers:
            group.start_soon(taker.run)
        for n in range(200):
            queue.add(f"{n}", after_s=n % 5, priority=n % 3)
            if n % 11 == 0:
                await clock.advance(0.7)
        await clock.advance(5)
        queue.close()
    taken = [key for taker in takers for key in taker.got]
    assert sorted(taken, key=int) == [str(n) for n in range(200)]

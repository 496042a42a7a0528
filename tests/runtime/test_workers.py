"""What happens to a key after its reconcile, and to the reconciles when one goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from structlog.testing import capture_logs

from lean_sandbox.runtime.queue import Item, WorkQueue
from lean_sandbox.runtime.workers import (
    DEADLINE_S,
    GRACE_S,
    ReconcileOutcome,
    ReconcileResult,
    Result,
    Workers,
)
from lean_sandbox.turns import Rank
from tests.support.clock import FakeClock, settle

Reconcile = Callable[[Item[str]], Awaitable[Result]]


class ExpectedError(Exception):
    """What an error of the API looks like from here."""

    def __init__(self, *, retryable: bool, retry_after_s: float | None = None) -> None:
        super().__init__("refused")
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class Bench:
    """Workers on a clock moved by hand."""

    def __init__(self, reconcile: Reconcile, *, count: int = 4, **options: object) -> None:
        self.clock = FakeClock()
        self.queue: WorkQueue[str] = WorkQueue(self.clock, most_running=count)
        self.reports: list[ReconcileResult[str]] = []
        self.workers: Workers[str] = Workers(
            self.queue,
            reconcile,
            clock=self.clock,
            **options,  # type: ignore[arg-type]
        )
        self.workers.on_end.append(self.reports.append)

    @property
    def outcomes(self) -> list[tuple[str, ReconcileOutcome]]:
        """Return which reconciles ended, and how."""
        return [(report.item.key, report.outcome) for report in self.reports]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let the workers run, and shut them down in the end."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.workers.run)
            yield
            await settle()
            self.queue.close()


def requeueing(*after_s: float) -> Reconcile:
    """Return a reconcile that asks for another one after each of these times, then for none."""
    left = list(after_s)

    async def reconcile(_: Item[str]) -> Result:
        await anyio.lowlevel.checkpoint()
        return Result(requeue_after_s=left.pop(0)) if left else Result()

    return reconcile


def failing(*errors: Exception) -> Reconcile:
    """Return a reconcile that fails with each of the errors in turn, then succeeds."""
    left = list(errors)

    async def reconcile(_: Item[str]) -> Result:
        await anyio.lowlevel.checkpoint()
        if left:
            raise left.pop(0)
        return Result()

    return reconcile


class Gate:
    """Reconciles that stay until they are let go, counting how many there are."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.most_at_once = 0
        self.cleaned_up: list[str] = []
        self.opened = anyio.Event()
        self._inside = 0

    async def reconcile(self, item: Item[str]) -> Result:
        """Stay until the gate is opened."""
        self.entered.append(item.key)
        self._inside += 1
        self.most_at_once = max(self.most_at_once, self._inside)
        try:
            await self.opened.wait()
        finally:
            self._inside -= 1
            self.cleaned_up.append(item.key)
        return Result()


# -- success --------------------------------------------------------------------------------------


async def test_a_successful_reconcile_forgets_the_failures_of_its_key() -> None:
    """After a success the backoff starts anew."""
    bench = Bench(failing(*[ExpectedError(retryable=True) for _ in range(3)]))
    async with bench.running():
        bench.queue.add("a")
        await bench.clock.advance(1)
        assert [report.next_s for report in bench.reports] == [0.005, 0.01, 0.02, None]
    assert bench.queue.counts()["failing"] == 0
    assert bench.workers.outcomes[ReconcileOutcome.SUCCESS] == 1
    assert bench.workers.errors == 3


async def test_requeue_after_asks_for_one_more_reconcile_at_its_time() -> None:
    """A result names the time of the next reconcile, which keeps the priority of this one."""
    bench = Bench(requeueing(30, 30))
    async with bench.running():
        bench.queue.add("a", rank=Rank.SPARE)
        await bench.clock.advance(29)
        assert len(bench.reports) == 1
        await bench.clock.advance(31)
    assert [report.item.rank for report in bench.reports] == [Rank.SPARE] * 3
    assert bench.workers.outcomes[ReconcileOutcome.REQUEUE_AFTER] == 2


async def test_requeue_without_a_time_follows_the_backoff() -> None:
    """Zero means: look again soon, but ever less often."""
    bench = Bench(requeueing(0, 0))
    async with bench.running():
        bench.queue.add("a")
        await bench.clock.advance(1)
    assert [report.next_s for report in bench.reports] == [0.005, 0.01, None]
    assert bench.workers.outcomes[ReconcileOutcome.REQUEUE] == 2
    assert bench.workers.errors == 0


# -- failure --------------------------------------------------------------------------------------


async def test_a_terminal_failure_is_logged_once_and_not_retried() -> None:
    """Trying again cannot help: one log line, and rest until something changes."""
    bench = Bench(failing(ExpectedError(retryable=False)))
    with capture_logs() as logs:
        async with bench.running():
            bench.queue.add("a")
            await bench.clock.advance(5000)
    assert bench.outcomes == [("a", ReconcileOutcome.TERMINAL)]
    assert [line["event"] for line in logs] == ["reconcile_failed_for_good"]
    seen = bench.workers
    assert (seen.errors, seen.outcomes[ReconcileOutcome.TERMINAL]) == (1, 1)


async def test_what_fails_again_at_once_is_told_once() -> None:
    """A server that is away for a moment fails everything many times: a warning for each key.

    One that goes on to fail is told each time once its pauses have a second.
    """
    bench = Bench(failing(*(ExpectedError(retryable=True) for _ in range(11))))
    with capture_logs() as logs:
        async with bench.running():
            bench.queue.add("a")
            await bench.clock.advance(6)
    told = [line["attempts"] for line in logs if line["log_level"] == "warning"]
    assert told == [1, 9, 10, 11]
    assert len(bench.reports) == 11


async def test_retry_after_is_honoured() -> None:
    """Retry-After is honoured when it is longer than the backoff."""
    bench = Bench(failing(ExpectedError(retryable=True, retry_after_s=7)))
    async with bench.running():
        bench.queue.add("a")
        await bench.clock.advance(6.9)
        assert len(bench.reports) == 1
        await bench.clock.advance(0.2)
        assert bench.outcomes[1:] == [("a", ReconcileOutcome.SUCCESS)]


async def test_a_backoff_does_not_outlast_what_falls_due_for_the_key() -> None:
    """While reconciles keep failing, an expiry is still noticed in time."""
    errors = [ExpectedError(retryable=True) for _ in range(14)]
    bench = Bench(failing(*errors), retry_no_later_than_s=lambda _: 2.0)
    async with bench.running():
        bench.queue.add("a")
        await bench.clock.advance(60)
    assert max(report.next_s or 0 for report in bench.reports) == 2.0
    assert bench.outcomes[-1] == ("a", ReconcileOutcome.SUCCESS)


async def test_a_crash_of_one_reconcile_never_ends_the_others() -> None:
    """A bug is logged with its traceback, counted, and retried; other keys go on."""

    async def reconcile(item: Item[str]) -> Result:
        await anyio.lowlevel.checkpoint()
        if item.key == "bad" and not item.attempts:
            raise ZeroDivisionError
        return Result()

    bench = Bench(reconcile)
    with capture_logs() as logs:
        async with bench.running():
            for key in ("bad", "good", "fine"):
                bench.queue.add(key)
            await bench.clock.advance(1)
    assert sorted(
        key for key, outcome in bench.outcomes if outcome is ReconcileOutcome.SUCCESS
    ) == ["bad", "fine", "good"]
    panics = [line for line in logs if line["event"] == "reconcile_panicked"]
    assert [type(line["exc_info"]) for line in panics] == [ZeroDivisionError]
    assert bench.workers.outcomes[ReconcileOutcome.PANIC] == 1


async def test_a_group_of_errors_is_a_bug() -> None:
    """A reconcile judges what its own tasks meet; a group that leaves it is logged, and retried."""
    bench = Bench(failing(ExceptionGroup("", [ExpectedError(retryable=False)])))
    with capture_logs() as logs:
        async with bench.running():
            bench.queue.add("a")
            await bench.clock.advance(1)
    assert bench.outcomes == [("a", ReconcileOutcome.PANIC), ("a", ReconcileOutcome.SUCCESS)]
    assert [line["event"] for line in logs] == ["reconcile_panicked"]


async def test_a_failing_observer_never_ends_the_reconciles() -> None:
    """Errors of the callbacks are counted, the work goes on."""

    def hint(_: str) -> float:
        raise LookupError

    def broken(_: ReconcileResult[str]) -> None:
        raise LookupError

    bench = Bench(failing(ExpectedError(retryable=True)), retry_no_later_than_s=hint)
    bench.workers.on_end.append(broken)
    with capture_logs():
        async with bench.running():
            bench.queue.add("a")
            await bench.clock.advance(1)
    assert bench.workers.outcomes[ReconcileOutcome.SUCCESS] == 1
    assert bench.workers.callback_errors == 3


# -- deadline -------------------------------------------------------------------------------------


async def test_a_reconcile_that_overruns_is_cancelled_and_retried() -> None:
    """A deadline frees the key and the place; the reconcile can clean up."""
    gate = Gate()
    bench = Bench(gate.reconcile)
    async with bench.running():
        bench.queue.add("a")
        await bench.clock.advance(DEADLINE_S - 1)
        bench.queue.add("b")
        assert bench.reports == []
        await bench.clock.advance(1)
        assert bench.outcomes == [("a", ReconcileOutcome.TIMEOUT)]
        assert gate.cleaned_up == ["a"]
        await bench.clock.advance(1)
        assert gate.entered == ["a", "b", "a"]
        gate.opened.set()
    assert bench.workers.outcomes[ReconcileOutcome.TIMEOUT] == 1
    assert bench.workers.outcomes[ReconcileOutcome.SUCCESS] == 2


async def test_each_reconcile_has_its_own_deadline() -> None:
    """Reconciles started at different times are cut off at different times."""
    gate = Gate()
    bench = Bench(gate.reconcile)
    async with bench.running():
        for key in ("a", "b", "c"):
            bench.queue.add(key)
            await bench.clock.advance(DEADLINE_S / 10)
        await bench.clock.advance(DEADLINE_S * 0.7)
        assert gate.cleaned_up == ["a"]
        await bench.clock.advance(DEADLINE_S / 10)
        assert gate.cleaned_up == ["a", "b"]
        gate.opened.set()


async def test_an_error_while_being_cut_off_counts_as_the_timeout() -> None:
    """What a reconcile raises while it unwinds does not hide that it overran."""

    async def reconcile(_: Item[str]) -> Result:
        try:
            await anyio.sleep_forever()
        finally:
            raise ExpectedError(retryable=False)
        return Result()

    bench = Bench(reconcile)
    async with bench.running():
        bench.queue.add("a")
        await bench.clock.advance(DEADLINE_S)
        assert bench.outcomes == [("a", ReconcileOutcome.TIMEOUT)]


# -- concurrency and shutdown ---------------------------------------------------------------------


async def test_no_more_reconciles_run_at_once_than_allowed() -> None:
    """The limit holds; a key that waits for room can still be overtaken by a more urgent one."""
    gate = Gate()
    bench = Bench(gate.reconcile, count=3)
    async with bench.running():
        for n in range(5):
            bench.queue.add(f"{n}", rank=Rank.SPARE)
        await settle()
        assert bench.queue.counts()["running"] == 3
        bench.queue.add("urgent")
        gate.opened.set()
        await settle()
    assert gate.most_at_once == 3
    assert gate.entered == ["0", "1", "2", "urgent", "3", "4"]


async def test_there_are_as_many_tasks_as_there_was_ever_work_for_at_once_and_one_more() -> None:
    """A task for each key would cost more than its reconcile, one for each that may come memory."""
    gate = Gate()
    bench = Bench(gate.reconcile, count=20)
    async with bench.running():
        await settle()
        idle = len(asyncio.all_tasks())
        for n in range(5):
            bench.queue.add(f"{n}")
        await settle()
        assert len(asyncio.all_tasks()) == idle + 5
        gate.opened.set()
        await settle()
        for n in range(100):
            bench.queue.add(f"{n}")
            if n % 5 == 4:
                await settle()
        assert len(asyncio.all_tasks()) == idle + 5
    assert bench.workers.outcomes[ReconcileOutcome.SUCCESS] == 105


async def test_a_key_never_has_two_reconciles_at_once() -> None:
    """Events during a reconcile lead to one reconcile after it."""
    gate = Gate()
    bench = Bench(gate.reconcile)
    async with bench.running():
        for _ in range(5):
            bench.queue.add("a")
            await settle()
        assert gate.entered == ["a"]
        gate.opened.set()
        await settle()
        assert gate.entered == ["a", "a"]
    assert gate.most_at_once == 1


async def test_shutdown_lets_running_reconciles_finish() -> None:
    """After close nothing begins, what runs may end, then the workers end."""
    gate = Gate()
    bench = Bench(gate.reconcile, count=1)
    async with anyio.create_task_group() as group:
        group.start_soon(bench.workers.run)
        bench.queue.add("a")
        bench.queue.add("b")
        await settle()
        bench.queue.close()
        await bench.clock.advance(GRACE_S - 1)
        gate.opened.set()
    assert bench.outcomes == [("a", ReconcileOutcome.SUCCESS)]
    assert bench.queue.counts()["running"] == 0


async def test_shutdown_cancels_reconciles_that_outlast_the_grace() -> None:
    """The grace is an upper bound; the cut reconciles clean up and are counted."""
    gate = Gate()
    bench = Bench(gate.reconcile, count=2)
    async with anyio.create_task_group() as group:
        group.start_soon(bench.workers.run)
        for key in ("a", "b", "c"):
            bench.queue.add(key)
        await settle()
        bench.queue.close()
        await bench.clock.advance(GRACE_S)
    assert sorted(gate.cleaned_up) == ["a", "b"]
    assert bench.workers.outcomes[ReconcileOutcome.CANCELLED] == 2
    assert bench.workers.errors == 0
    assert bench.queue.counts()["running"] == 0


async def test_cancellation_reaches_the_reconciles_at_once() -> None:
    """Whoever cancels the workers does not wait for a grace."""
    gate = Gate()
    bench = Bench(gate.reconcile)
    async with anyio.create_task_group() as group:
        group.start_soon(bench.workers.run)
        bench.queue.add("a")
        await settle()
        group.cancel_scope.cancel()
    assert gate.cleaned_up == ["a"]
    assert bench.outcomes == [("a", ReconcileOutcome.CANCELLED)]


async def test_the_time_of_each_reconcile_is_counted() -> None:
    """Times of reconciles are summed and sorted into the buckets of Kubernetes' dashboards."""
    gate = Gate()
    bench = Bench(gate.reconcile)
    async with bench.running():
        bench.queue.add("a")
        await bench.clock.advance(0.3)
        gate.opened.set()
    pass_time = bench.workers.reconcile_time
    assert sum(pass_time.counts) == 1
    assert pass_time.total == pytest.approx(0.3)
    assert pass_time.counts[pass_time.bounds.index(0.3)] == 1
    assert len(pass_time.bounds) == 40


async def test_a_crowd_that_waits_for_nothing_leaves_turns_to_others() -> None:
    """Whatever else the process has to do comes between the reconciles, not after the last."""

    async def reconcile(_: Item[str]) -> Result:
        return Result()

    bench = Bench(reconcile)
    seen: list[int] = []
    for number in range(50):
        bench.queue.add(f"key-{number}")
    async with bench.running():
        while len(bench.reports) < 50:
            seen.append(len(bench.reports))
            await anyio.lowlevel.checkpoint()
    assert len(set(seen)) > 10

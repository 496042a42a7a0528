"""How long reconciles may take, how many run at once, and how they end at a shutdown."""

from __future__ import annotations

import asyncio

import anyio

from lean_sandbox.runtime.queue import Item
from lean_sandbox.runtime.workers import DEADLINE_S, GRACE_S, ReconcileOutcome, Result
from lean_sandbox.turns import Rank
from tests.runtime.reconciles import ExpectedError, Gate, WorkerRig
from tests.support.clock import settle

# -- deadline -------------------------------------------------------------------------------------


async def test_a_reconcile_that_overruns_is_cancelled_and_retried() -> None:
    """A deadline frees the key and the place; the reconcile can clean up."""
    gate = Gate()
    rig = WorkerRig(gate.reconcile)
    async with rig.running():
        rig.queue.add("a")
        await rig.clock.advance(DEADLINE_S - 1)
        rig.queue.add("b")
        assert rig.reports == []
        await rig.clock.advance(1)
        assert rig.outcomes == [("a", ReconcileOutcome.TIMEOUT)]
        assert gate.cleaned_up == ["a"]
        await rig.clock.advance(1)
        assert gate.entered == ["a", "b", "a"]
        gate.opened.set()
    assert rig.workers.outcomes[ReconcileOutcome.TIMEOUT] == 1
    assert rig.workers.outcomes[ReconcileOutcome.SUCCESS] == 2


async def test_each_reconcile_has_its_own_deadline() -> None:
    """Reconciles started at different times are cut off at different times."""
    gate = Gate()
    rig = WorkerRig(gate.reconcile)
    async with rig.running():
        for key in ("a", "b", "c"):
            rig.queue.add(key)
            await rig.clock.advance(DEADLINE_S / 10)
        await rig.clock.advance(DEADLINE_S * 0.7)
        assert gate.cleaned_up == ["a"]
        await rig.clock.advance(DEADLINE_S / 10)
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

    rig = WorkerRig(reconcile)
    async with rig.running():
        rig.queue.add("a")
        await rig.clock.advance(DEADLINE_S)
        assert rig.outcomes == [("a", ReconcileOutcome.TIMEOUT)]


# -- concurrency and shutdown ---------------------------------------------------------------------


async def test_no_more_reconciles_run_at_once_than_allowed() -> None:
    """The limit holds; a key that waits for room can still be overtaken by a more urgent one."""
    gate = Gate()
    rig = WorkerRig(gate.reconcile, count=3)
    async with rig.running():
        for n in range(5):
            rig.queue.add(f"{n}", rank=Rank.SPARE)
        await settle()
        assert rig.queue.counts()["running"] == 3
        rig.queue.add("urgent")
        gate.opened.set()
        await settle()
    assert gate.most_at_once == 3
    assert gate.entered == ["0", "1", "2", "urgent", "3", "4"]


async def test_there_are_as_many_tasks_as_there_was_ever_work_for_at_once_and_one_more() -> None:
    """A task for each key would cost more than its reconcile, one for each that may come memory."""
    gate = Gate()
    rig = WorkerRig(gate.reconcile, count=20)
    async with rig.running():
        await settle()
        idle = len(asyncio.all_tasks())
        for n in range(5):
            rig.queue.add(f"{n}")
        await settle()
        assert len(asyncio.all_tasks()) == idle + 5
        gate.opened.set()
        await settle()
        for n in range(100):
            rig.queue.add(f"{n}")
            if n % 5 == 4:
                await settle()
        assert len(asyncio.all_tasks()) == idle + 5
    assert rig.workers.outcomes[ReconcileOutcome.SUCCESS] == 105


async def test_a_key_never_has_two_reconciles_at_once() -> None:
    """Events during a reconcile lead to one reconcile after it."""
    gate = Gate()
    rig = WorkerRig(gate.reconcile)
    async with rig.running():
        for _ in range(5):
            rig.queue.add("a")
            await settle()
        assert gate.entered == ["a"]
        gate.opened.set()
        await settle()
        assert gate.entered == ["a", "a"]
    assert gate.most_at_once == 1


async def test_shutdown_lets_running_reconciles_finish() -> None:
    """After close nothing begins, what runs may end, then the workers end."""
    gate = Gate()
    rig = WorkerRig(gate.reconcile, count=1)
    async with anyio.create_task_group() as group:
        group.start_soon(rig.workers.run)
        rig.queue.add("a")
        rig.queue.add("b")
        await settle()
        rig.queue.close()
        await rig.clock.advance(GRACE_S - 1)
        gate.opened.set()
    assert rig.outcomes == [("a", ReconcileOutcome.SUCCESS)]
    assert rig.queue.counts()["running"] == 0


async def test_shutdown_cancels_reconciles_that_outlast_the_grace() -> None:
    """The grace is an upper bound; the cut reconciles clean up and are counted."""
    gate = Gate()
    rig = WorkerRig(gate.reconcile, count=2)
    async with anyio.create_task_group() as group:
        group.start_soon(rig.workers.run)
        for key in ("a", "b", "c"):
            rig.queue.add(key)
        await settle()
        rig.queue.close()
        await rig.clock.advance(GRACE_S)
    assert sorted(gate.cleaned_up) == ["a", "b"]
    assert rig.workers.outcomes[ReconcileOutcome.CANCELLED] == 2
    assert rig.workers.errors == 0
    assert rig.queue.counts()["running"] == 0


async def test_cancellation_reaches_the_reconciles_at_once() -> None:
    """Whoever cancels the workers does not wait for a grace."""
    gate = Gate()
    rig = WorkerRig(gate.reconcile)
    async with anyio.create_task_group() as group:
        group.start_soon(rig.workers.run)
        rig.queue.add("a")
        await settle()
        group.cancel_scope.cancel()
    assert gate.cleaned_up == ["a"]
    assert rig.outcomes == [("a", ReconcileOutcome.CANCELLED)]


async def test_a_crowd_that_waits_for_nothing_leaves_turns_to_others() -> None:
    """Whatever else the process has to do comes between the reconciles, not after the last."""

    async def reconcile(_: Item[str]) -> Result:
        return Result()

    rig = WorkerRig(reconcile)
    seen: list[int] = []
    for number in range(50):
        rig.queue.add(f"key-{number}")
    async with rig.running():
        while len(rig.reports) < 50:
            seen.append(len(rig.reports))
            await anyio.lowlevel.checkpoint()
    assert len(set(seen)) > 10

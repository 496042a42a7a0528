"""Workers on a clock moved by hand, and reconciles that do as a test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from lean_sandbox.runtime.queue import Item, WorkQueue
from lean_sandbox.runtime.workers import ReconcileOutcome, ReconcileResult, Result, Workers
from tests.support.clock import FakeClock, settle

Reconcile = Callable[[Item[str]], Awaitable[Result]]


class ExpectedError(Exception):
    """What an error of the API looks like from here."""

    def __init__(self, *, retryable: bool, retry_after_s: float | None = None) -> None:
        super().__init__("refused")
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class WorkerRig:
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

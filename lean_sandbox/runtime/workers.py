"""Reconciles the keys of a queue, several at a time, each under a deadline.

A worker is a task that takes one key after the other. When all of them are busy, another is started
to wait for the next key: there is one more than were ever busy at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final, Generic, TypeVar

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup

from lean_sandbox.clock import Clock
from lean_sandbox.kube.errors import ControlPlaneError, message_of
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition, Histogram
from lean_sandbox.runtime.queue import Cause, Item, WorkQueue
from lean_sandbox.turns import RANK

# No reconcile takes this long unless a bug holds it up; checked every tenth of it. Each request has
# a deadline of its own, but may wait minutes for its slot at a slow server. A reconcile that is
# cancelled is retried and goes on from there: the caches know what it has done.
DEADLINE_S: Final = 600.0
# How long reconciles may go on after the queue is closed: less than the 30 s that a kubelet gives
# a Pod to end.
GRACE_S: Final = 20.0
#: How soon a key is reconciled again if its next step needs no event.
AT_ONCE_S: Final = 0.001
#: How soon a key is reconciled again that waits for what a watch is yet to show.
UNSEEN_S: Final = 1.0

K = TypeVar("K", bound=Hashable)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ReconcileError(Exception):
    """A reconcile that could not bring its object to the desired state; retried with backoff.

    The text is what a condition shows. ``retry_after_s`` is how long the server asked to wait, and
    ``is_refusal`` whether all causes are refusals.
    """

    retryable = True

    def __init__(self, text: str, *causes: BaseException | None) -> None:
        super().__init__(text)
        self.is_refusal = bool(causes) and all(
            getattr(cause, "is_refusal", False) for cause in causes
        )
        waits = [getattr(cause, "retry_after_s", None) for cause in causes]
        self.retry_after_s = max((wait for wait in waits if wait is not None), default=None)


@contextmanager
def failing_as(step: str) -> Iterator[None]:
    """Turn an API error raised in the ``with`` block into a ReconcileError that names the step."""
    try:
        yield
    except ControlPlaneError as error:
        raise ReconcileError(f"{step}: {message_of(error)}", error) from error


class Result(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a successful reconcile: whether and when to reconcile again.

    ``requeue_after_s``: None for not again, above zero for after that time, zero for after the
    key's backoff (something is on its way and no event will announce it).
    """

    requeue_after_s: float | None = None


class Requeue:
    """Collects when a key is to be reconciled again; the earliest time counts.

    ``after_s`` is that of a :class:`Result`.
    """

    def __init__(self) -> None:
        self.after_s: float | None = None

    def within(self, seconds: float | None) -> None:
        """Ask for another reconcile in ``seconds`` at the latest; ``None`` asks for nothing."""
        if seconds is not None:
            self.after_s = seconds if self.after_s is None else min(seconds, self.after_s)

    @property
    def result(self) -> Result:
        """The result of a reconcile that has succeeded."""
        return Result(self.after_s)


class ReconcileOutcome(Enum):
    """How a reconcile ended."""

    SUCCESS = "success"
    REQUEUE = "requeue"
    REQUEUE_AFTER = "requeue_after"
    ERROR = "error"
    # An error that no retry can cure until something changes.
    TERMINAL = "terminal"
    # An unexpected exception: a bug.
    PANIC = "panic"
    TIMEOUT = "timeout"
    # Cancelled by a shutdown, after the grace period.
    CANCELLED = "cancelled"


FAILED: Final = (
    ReconcileOutcome.ERROR,
    ReconcileOutcome.TERMINAL,
    ReconcileOutcome.PANIC,
    ReconcileOutcome.TIMEOUT,
)


class ReconcileResult(msgspec.Struct, Generic[K], frozen=True):
    """A reconcile that has ended; ``next_s`` is the delay of the next one it asked for, if any."""

    item: Item[K]
    outcome: ReconcileOutcome
    took_s: float
    next_s: float | None = None
    error: Exception | None = None


class Workers(Generic[K]):
    """Takes keys from a queue and reconciles them, as many at once as the queue hands out.

    A reconcile that overruns its deadline is cancelled and retried. ``due_in_s`` is called after a
    failure: the seconds until something falls due for the key, such as its expiry, which no backoff
    may delay; zero or less once it is due. What was due when the reconcile began does not count, as
    that reconcile was to see to it.
    """

    def __init__(
        self,
        queue: WorkQueue[K],
        reconcile: Callable[[Item[K]], Awaitable[Result]],
        *,
        clock: Clock,
        due_in_s: Callable[[K], float | None] = lambda _key: None,
        name: str = "",
    ) -> None:
        self._queue = queue
        self._reconcile = reconcile
        self._clock = clock
        #: Called in the task of each reconcile when it begins, and after it; must not block.
        self.on_begin: list[Callable[[Item[K]], None]] = []
        self.on_end: list[Callable[[ReconcileResult[K]], None]] = []
        self._due_in_s = due_in_s
        self._log = _log.bind(controller=name)
        # How many tasks take keys.
        self._tasks = 1
        # Start of each reconcile, and the scope of its task.
        self._running: dict[K, tuple[float, anyio.CancelScope]] = {}
        self.outcomes = dict.fromkeys(ReconcileOutcome, 0)
        #: Calls of on_end or due_in_s that raised an error.
        self.callback_errors = 0
        self.reconcile_time = Histogram(families.RECONCILE_TIME.buckets)

    async def run(self) -> None:
        """Run until the queue is closed and the last reconcile, or its grace period, has ended."""
        async with anyio.create_task_group() as attendants:
            attendants.start_soon(self._cut_off)
            attendants.start_soon(self._queue.keep_time)
            async with anyio.create_task_group() as workers:
                attendants.start_soon(self._end_grace, workers.cancel_scope)
                await self._work(workers)
            attendants.cancel_scope.cancel()

    @property
    def errors(self) -> int:
        """How many reconciles failed in any way, as Kubernetes' controllers count them."""
        return sum(self.outcomes[outcome] for outcome in FAILED)

    def collect(self, into: Exposition, controller: str) -> None:
        """Add the series of these workers, under the name of their controller."""
        results = {
            "success": self.outcomes[ReconcileOutcome.SUCCESS],
            "error": self.errors,
            "requeue": self.outcomes[ReconcileOutcome.REQUEUE],
            "requeue_after": self.outcomes[ReconcileOutcome.REQUEUE_AFTER],
        }
        into.add(families.RECONCILES, [((controller, name), n) for name, n in results.items()])
        into.one(families.RECONCILE_ERRORS, self.errors, controller)
        into.one(families.TERMINAL_ERRORS, self.outcomes[ReconcileOutcome.TERMINAL], controller)
        into.one(families.PANICS, self.outcomes[ReconcileOutcome.PANIC], controller)
        into.one(families.TIMEOUTS, self.outcomes[ReconcileOutcome.TIMEOUT], controller)
        into.add(families.RECONCILE_TIME, [((controller,), self.reconcile_time)])
        into.one(families.MAX_RECONCILES, self._queue.most_running, controller)
        into.one(families.ACTIVE_WORKERS, len(self._running), controller)
        into.one(families.CALLBACK_ERRORS, self.callback_errors, controller)

    async def _end_grace(self, workers: anyio.CancelScope) -> None:
        await self._queue.closed.wait()
        await self._clock.sleep(GRACE_S)
        workers.cancel()

    async def _cut_off(self) -> None:
        while True:
            await self._clock.sleep(DEADLINE_S / 10)
            overdue = self._clock.monotonic() - DEADLINE_S
            for began, scope in self._running.values():
                if began <= overdue:
                    scope.cancel()

    async def _work(self, workers: TaskGroup) -> None:
        while not self._queue.closed.is_set():
            # Cancelled when its reconcile overruns the deadline.
            with anyio.CancelScope() as scope:
                while (item := await self._queue.get()) is not None:
                    self._running[item.key] = (item.started_at, scope)
                    if len(self._running) == self._tasks:
                        self._tasks += 1
                        workers.start_soon(self._work, workers)
                    await self._run_reconcile(item, scope)

    async def _run_reconcile(self, item: Item[K], scope: anyio.CancelScope) -> None:
        outcome = ReconcileOutcome.CANCELLED
        next_s = None
        error: Exception | None = None
        # What the reconcile asks of the server has its rank.
        RANK.set(item.rank)
        try:
            for listener in self.on_begin:
                listener(item)
            outcome, next_s = self._after_success(item, await self._reconcile(item))
        except BaseException as failure:
            # A reconcile cancelled at its deadline may raise any error while it unwinds.
            if scope.cancel_called:
                outcome = ReconcileOutcome.TIMEOUT
                next_s = self._retry(item)
                self._log.warning("reconcile_timed_out", key=str(item.key), next_s=next_s)
            elif isinstance(failure, Exception):
                error = failure
                outcome, next_s = self._after_failure(item, error)
            if not isinstance(failure, Exception):
                raise
        finally:
            took_s = self._clock.monotonic() - item.started_at
            self._finish(ReconcileResult(item, outcome, took_s, next_s, error))

    def _after_success(
        self, item: Item[K], result: Result
    ) -> tuple[ReconcileOutcome, float | None]:
        key = item.key
        after_s = result.requeue_after_s
        if after_s is None:
            self._queue.forget(key)
            return ReconcileOutcome.SUCCESS, None
        if after_s > 0.0:
            self._queue.forget(key)
            self._queue.add(
                key,
                rank=item.rank,
                after_s=after_s,
                cause=Cause.REQUEUE,
                reason="requeue",
            )
            return ReconcileOutcome.REQUEUE_AFTER, after_s
        return ReconcileOutcome.REQUEUE, self._retry(item)

    def _after_failure(
        self, item: Item[K], error: Exception
    ) -> tuple[ReconcileOutcome, float | None]:
        # An expected error has "retryable" and perhaps "retry_after_s".
        key = str(item.key)
        retryable = getattr(error, "retryable", None)
        if retryable is False:
            self._queue.forget(item.key)
            self._log.error("reconcile_failed_for_good", key=key, error=str(error))
            return ReconcileOutcome.TERMINAL, None
        next_s = self._retry(item, getattr(error, "retry_after_s", None) or 0.0)
        if retryable is None:
            self._log.error("reconcile_panicked", key=key, next_s=next_s, exc_info=error)
            return ReconcileOutcome.PANIC, next_s
        tries = item.attempts + 1
        # While the server is away for a moment, one warning for each key is enough.
        log = self._log.warning if tries == 1 or next_s >= 1.0 else self._log.debug
        log("reconcile_failed", key=key, error=str(error), attempts=tries, next_s=next_s)
        return ReconcileOutcome.ERROR, next_s

    def _retry(self, item: Item[K], retry_after_s: float = 0.0) -> float:
        due_in_s = None
        try:
            due_in_s = self._due_in_s(item.key)
        except Exception as error:  # noqa: BLE001 -- a wrong hint must never end the reconciles
            self._callback_failed("due_in_s", item.key, error)
        if due_in_s is not None and due_in_s <= item.started_at - self._clock.monotonic():
            # It was due when the reconcile began.
            due_in_s = None
        return self._queue.retry(item.key, no_later_than_s=due_in_s, not_before_s=retry_after_s)

    def _finish(self, report: ReconcileResult[K]) -> None:
        key = report.item.key
        self.outcomes[report.outcome] += 1
        self.reconcile_time.observe(report.took_s)
        # Counted and unlocked first, so that the callbacks see the state after the reconcile.
        del self._running[key]
        self._queue.done(key)
        for listener in self.on_end:
            try:
                listener(report)
            except Exception as error:  # noqa: BLE001 -- an observer must never end the reconciles
                self._callback_failed("on_end", key, error)

    def _callback_failed(self, callback: str, key: K, error: Exception) -> None:
        self.callback_errors += 1
        self._log.error("callback_failed", callback=callback, key=str(key), exc_info=error)

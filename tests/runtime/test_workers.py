"""What happens to a key after its reconcile, and to the reconciles when one goes wrong."""

from __future__ import annotations

import anyio
import pytest
from structlog.testing import capture_logs

from lean_sandbox.kube.errors import ApiError
from lean_sandbox.runtime.queue import Item
from lean_sandbox.runtime.workers import ReconcileError, ReconcileOutcome, ReconcileResult, Result
from lean_sandbox.turns import Rank
from tests.runtime.reconciles import ExpectedError, Gate, WorkerRig, failing, requeueing

# -- success --------------------------------------------------------------------------------------


async def test_a_successful_reconcile_forgets_the_failures_of_its_key() -> None:
    """After a success the backoff starts anew."""
    rig = WorkerRig(failing(*[ExpectedError(retryable=True) for _ in range(3)]))
    async with rig.running():
        rig.queue.add("a")
        await rig.clock.advance(1)
        assert [report.next_s for report in rig.reports] == [0.005, 0.01, 0.02, None]
    assert rig.queue.counts()["failing"] == 0
    assert rig.workers.outcomes[ReconcileOutcome.SUCCESS] == 1
    assert rig.workers.errors == 3


async def test_requeue_after_asks_for_one_more_reconcile_at_its_time() -> None:
    """A result names the time of the next reconcile, which keeps the priority of this one."""
    rig = WorkerRig(requeueing(30, 30))
    async with rig.running():
        rig.queue.add("a", rank=Rank.SPARE)
        await rig.clock.advance(29)
        assert len(rig.reports) == 1
        await rig.clock.advance(31)
    assert [report.item.rank for report in rig.reports] == [Rank.SPARE] * 3
    assert rig.workers.outcomes[ReconcileOutcome.REQUEUE_AFTER] == 2


async def test_requeue_without_a_time_follows_the_backoff() -> None:
    """Zero means: look again soon, but ever less often."""
    rig = WorkerRig(requeueing(0, 0))
    async with rig.running():
        rig.queue.add("a")
        await rig.clock.advance(1)
    assert [report.next_s for report in rig.reports] == [0.005, 0.01, None]
    assert rig.workers.outcomes[ReconcileOutcome.REQUEUE] == 2
    assert rig.workers.errors == 0


# -- failure --------------------------------------------------------------------------------------


async def test_a_terminal_failure_is_logged_once_and_not_retried() -> None:
    """Trying again cannot help: one log line, and rest until something changes."""
    rig = WorkerRig(failing(ExpectedError(retryable=False)))
    with capture_logs() as logs:
        async with rig.running():
            rig.queue.add("a")
            await rig.clock.advance(5000)
    assert rig.outcomes == [("a", ReconcileOutcome.TERMINAL)]
    assert [line["event"] for line in logs] == ["reconcile_failed_for_good"]
    seen = rig.workers
    assert (seen.errors, seen.outcomes[ReconcileOutcome.TERMINAL]) == (1, 1)


async def test_what_fails_again_at_once_is_told_once() -> None:
    """A server that is away for a moment fails everything many times: a warning for each key.

    One that goes on to fail is told each time once its pauses have a second.
    """
    errors = [ExpectedError(retryable=True) for _ in range(11)]
    errors[3].retry_after_s = 1.0
    rig = WorkerRig(failing(*errors))
    with capture_logs() as logs:
        async with rig.running():
            rig.queue.add("a")
            await rig.clock.advance(7)
    told = [line["attempts"] for line in logs if line["log_level"] == "warning"]
    assert told == [1, 4, 9, 10, 11]
    assert len(rig.reports) == 11


async def test_a_backoff_does_not_outlast_what_falls_due_for_the_key() -> None:
    """While reconciles keep failing, an expiry is still noticed in time."""
    errors = [ReconcileError("") for _ in range(14)]
    rig = WorkerRig(failing(*errors), due_in_s=lambda _: 2.0)
    async with rig.running():
        rig.queue.add("a")
        await rig.clock.advance(60)
    assert max(report.next_s or 0 for report in rig.reports) == 2.0
    assert rig.outcomes[-1] == ("a", ReconcileOutcome.SUCCESS)


async def test_what_falls_due_during_a_reconcile_that_fails_is_seen_to_at_once() -> None:
    """The next one begins when it is due already, so after that the backoff counts."""

    async def reconcile(item: Item[str]) -> Result:
        await rig.clock.sleep(0.0 if item.attempts == 2 else 1.0)
        if item.attempts < 2:
            raise ReconcileError("")
        return Result()

    rig: WorkerRig = WorkerRig(reconcile, due_in_s=lambda _: 10.5 - rig.clock.monotonic())
    async with rig.running():
        rig.queue.add("a", after_s=10.0)
        await rig.clock.advance(13.0)
    assert [report.next_s for report in rig.reports] == [0.0, 0.01, None]


async def test_a_crash_of_one_reconcile_never_ends_the_others() -> None:
    """A bug is logged with its traceback, counted, and retried; other keys go on."""

    async def reconcile(item: Item[str]) -> Result:
        await anyio.lowlevel.checkpoint()
        if item.key == "bad" and not item.attempts:
            raise ZeroDivisionError
        return Result()

    rig = WorkerRig(reconcile)
    with capture_logs() as logs:
        async with rig.running():
            for key in ("bad", "good", "fine"):
                rig.queue.add(key)
            await rig.clock.advance(1)
    assert sorted(key for key, outcome in rig.outcomes if outcome is ReconcileOutcome.SUCCESS) == [
        "bad",
        "fine",
        "good",
    ]
    panics = [line for line in logs if line["event"] == "reconcile_panicked"]
    assert [type(line["exc_info"]) for line in panics] == [ZeroDivisionError]
    assert rig.workers.outcomes[ReconcileOutcome.PANIC] == 1


async def test_a_group_of_errors_is_a_bug() -> None:
    """A reconcile judges what its own tasks meet; a group that leaves it is logged, and retried."""
    rig = WorkerRig(failing(ExceptionGroup("", [ExpectedError(retryable=False)])))
    with capture_logs() as logs:
        async with rig.running():
            rig.queue.add("a")
            await rig.clock.advance(1)
    assert rig.outcomes == [("a", ReconcileOutcome.PANIC), ("a", ReconcileOutcome.SUCCESS)]
    assert [line["event"] for line in logs] == ["reconcile_panicked"]


async def test_a_failing_observer_never_ends_the_reconciles() -> None:
    """Errors of the callbacks are counted, the work goes on."""

    def hint(_: str) -> float:
        raise LookupError

    def broken(_: ReconcileResult[str]) -> None:
        raise LookupError

    rig = WorkerRig(failing(ExpectedError(retryable=True)), due_in_s=hint)
    rig.workers.on_end.append(broken)
    with capture_logs():
        async with rig.running():
            rig.queue.add("a")
            await rig.clock.advance(1)
    assert rig.workers.outcomes[ReconcileOutcome.SUCCESS] == 1
    assert rig.workers.callback_errors == 3


async def test_the_time_of_each_reconcile_is_counted() -> None:
    """Times of reconciles are summed and sorted into the buckets of Kubernetes' dashboards."""
    gate = Gate()
    rig = WorkerRig(gate.reconcile)
    async with rig.running():
        rig.queue.add("a")
        await rig.clock.advance(0.3)
        gate.opened.set()
    pass_time = rig.workers.reconcile_time
    assert sum(pass_time.counts) == 1
    assert pass_time.total == pytest.approx(0.3)
    assert pass_time.counts[pass_time.bounds.index(0.3)] == 1
    assert len(pass_time.bounds) == 40


REFUSED = ApiError(422, retry_after_s=2.0)
BUSY = ApiError(429, retry_after_s=5.0)


@pytest.mark.parametrize(
    ("causes", "is_refusal", "retry_after_s"),
    [
        ((), False, None),
        ((None,), False, None),
        ((ValueError(),), False, None),
        ((REFUSED,), True, 2.0),
        ((REFUSED, REFUSED), True, 2.0),
        ((REFUSED, BUSY), False, 5.0),
        ((BUSY, REFUSED), False, 5.0),
        ((REFUSED, ValueError()), False, 2.0),
    ],
)
def test_a_reconcile_fails_as_its_causes_do(
    causes: tuple[BaseException | None, ...], retry_after_s: float | None, *, is_refusal: bool
) -> None:
    """It is refused if all of them are, and waits for the one that asks for the longest wait."""
    error = ReconcileError("text", *causes)
    assert (error.is_refusal, error.retry_after_s) == (is_refusal, retry_after_s)

"""Members are acted on in groups that grow, and an error ends it with the group it is in."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import anyio.lowlevel
import pytest

from lean_sandbox.controllers.warmpool.refill import take_refusals
from lean_sandbox.controllers.warmpool.requests import Tries, for_each, in_groups
from lean_sandbox.controllers.warmpool.state import Backoff
from lean_sandbox.kube.errors import ApiError, ServerFault, Status
from lean_sandbox.runtime.workers import Requeue


class Acts:
    """What is done to members, one after the other: how often, how many at a time, with errors."""

    def __init__(self, *, fails: Collection[int] = (), over_after: int = 10**9) -> None:
        """``fails``: which of them, counted from 1; ``over_after``: when it is in vain."""
        self.run: Any = SimpleNamespace(errors=[ServerFault(500)])
        self.errors: list[Exception] = self.run.errors
        self.done = self.at_once = self.most_at_once = 0
        self.fails = fails
        self.over_after = over_after

    async def act(self, *_: object) -> None:
        """Act once."""
        self.done += 1
        number = self.done
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await anyio.lowlevel.checkpoint()
        self.at_once -= 1
        if number in self.fails:
            raise ServerFault(500)

    async def in_groups(self, total: int, first: int = 1) -> Tries:
        """Act in groups."""
        return await in_groups(
            self.run, total, self.act, first=first, is_over=lambda: self.done >= self.over_after
        )


@pytest.mark.parametrize(
    ("total", "first", "most_at_once", "next_size"),
    [
        (0, 1, 0, 0),
        (1, 1, 1, 2),
        (7, 1, 4, 8),
        (14, 1, 7, 14),
        (6, 2, 4, 8),
        (31, 1, 16, 32),
        (63, 1, 32, 32),
        (200, 8, 32, 32),
    ],
)
async def test_groups_grow_to_32_at_a_time(
    total: int, first: int, most_at_once: int, next_size: int
) -> None:
    """Errors of before do not count; what follows goes on where this ended."""
    acts = Acts()
    assert await acts.in_groups(total, first) == Tries(total, total, next_size)
    assert (acts.done, acts.most_at_once) == (total, most_at_once)


@pytest.mark.parametrize(
    ("fails", "tried", "failed"),
    [
        ({1}, 1, 1),
        ({2}, 3, 1),
        ({2, 3}, 3, 2),
        ({4}, 7, 1),
        ({7}, 7, 1),
    ],
)
async def test_after_an_error_no_group_begins(fails: set[int], tried: int, failed: int) -> None:
    """The rest of its own group is on its way; the next try is a single one."""
    acts = Acts(fails=fails)
    assert await acts.in_groups(100) == Tries(tried, tried - failed, 1)
    assert len(acts.errors) == 1 + failed


async def test_a_group_of_more_than_32_ends_at_an_error() -> None:
    """What is on its way is answered, the rest is not sent: nor where the error is of another."""
    acts = Acts(fails={64})
    assert await acts.in_groups(127) == Tries(95, 94, 1)
    acts = Acts(over_after=70)
    assert await acts.in_groups(127) == Tries(95, 95, 32)


async def test_once_it_is_in_vain_no_group_begins() -> None:
    """Without an error the next try is as large as if there had been none."""
    acts = Acts(over_after=2)
    assert await acts.in_groups(100) == Tries(3, 3, 4)


@pytest.mark.parametrize("count", [0, 1, 2, 9, 30])
async def test_each_member_is_acted_on_first_one_then_eight_at_a_time(count: int) -> None:
    """An error stops no other."""
    acts = Acts(fails={1, 5})
    members: list[Any] = list(range(count))
    await for_each(acts.run, members, acts.act)
    assert acts.done == count
    assert acts.most_at_once == min(max(count - 1, min(count, 1)), 8)
    assert len(acts.errors) == 1 + (count >= 1) + (count >= 5)


class Deferred:
    """Refused creates, put off for a second each; and who was let in."""

    def __init__(self) -> None:
        """Nobody yet."""
        self.let = 0

    def put_off(self, *_: object) -> float:
        """Put a pool off."""
        return 1.0

    def let_in(self, *_: object) -> None:
        """Let others try."""
        self.let += 1


REFUSED = ApiError(422, Status(message="no"))
FAULT = ServerFault(503)


@pytest.mark.parametrize(
    ("known", "new", "made", "left", "refusal", "let"),
    [
        ([], [], 1, [], "", 1),
        ([], [FAULT], 0, [FAULT], "before", 0),
        ([], [FAULT], 1, [FAULT], "", 1),
        ([], [REFUSED], 1, [], "no", 0),
        ([FAULT], [REFUSED, FAULT], 0, [FAULT, FAULT], "no", 0),
        ([REFUSED], [REFUSED], 0, [REFUSED], "no", 0),
        ([REFUSED], [], 1, [REFUSED], "", 1),
    ],
)
def test_refused_creates_are_no_errors_of_the_reconcile(
    known: list[Exception],
    new: list[Exception],
    made: int,
    left: list[Exception],
    refusal: str,
    let: int,
) -> None:
    """What failed before them stays one; once a member is made, others may try."""
    deferred = Deferred()
    state = SimpleNamespace(refusal="before", creates=Backoff())
    requeue = Requeue()
    run: Any = SimpleNamespace(
        state=state,
        errors=[*known, *new],
        entry=SimpleNamespace(key=None),
        requeue=requeue,
        now=0.0,
        context=SimpleNamespace(refusals=deferred),
    )
    take_refusals(run, len(known), made=made)
    assert run.errors == left
    assert (state.refusal, deferred.let) == (refusal, let)
    assert requeue.result.requeue_after_s == (1.0 if refusal == "no" else None)

"""Claims that wait for a member of their pool: whom a member wakes that can be taken.

One member wakes one claim, the oldest first. As many claims of a pool are awake as it has members
to take, so nothing is lost when a claim that was woken takes none (it ended, was refused, or
another was faster): the next one is woken then. A claim that left a member untaken is not woken
again for that one, and comes after all others for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from lean_sandbox.watch.kind import Key

# What a claim is ordered by: the latest arrival of which it left a member untaken, when it was
# created, its name.
_Turn = tuple[int, str, Key]
_NEVER = -1
_OUTDATED_TOLERATED = 16


class _Line:
    """The claims of one pool."""

    __slots__ = ("arrival", "awake", "heap", "turns")

    def __init__(self, arrival: int) -> None:
        # No member that can be taken has come later.
        self.arrival = arrival
        self.turns: dict[Key, _Turn] = {}
        # May hold turns that are out of date: those in `turns` count.
        self.heap: list[_Turn] = []
        # Claims that were woken and whose reconcile has not ended yet.
        self.awake: set[Key] = set()

    def line_up(self, turn: _Turn) -> None:
        """Give a claim its turn, in place of the one that it had."""
        claim = turn[2]
        if self.turns.get(claim) == turn:
            return
        self.turns[claim] = turn
        heappush(self.heap, turn)
        if len(self.heap) > 2 * len(self.turns) + _OUTDATED_TOLERATED:
            self.heap = list(self.turns.values())
            heapify(self.heap)


class WaitingClaims:
    """Wakes one waiting claim for each member that can be taken."""

    def __init__(self, wake: Callable[[Key], None], to_take: Callable[[Key], int]) -> None:
        """``to_take`` tells how many members of a pool can be taken; both must not call back."""
        self._wake = wake
        self._to_take = to_take
        self._lines: dict[Key, _Line] = {}
        self._pools: dict[Key, Key] = {}
        #: Counts the times that a member came to be taken, of whatever pool.
        self.arrivals = 0

    def __len__(self) -> int:
        """Return how many claims wait or are awake."""
        return len(self._pools)

    def waits_for(self, pool: Key) -> bool:
        """Tell whether claims wait for members of a pool."""
        return pool in self._lines

    def available(self, pool: Key) -> None:
        """Take note that one more member of a pool can be taken."""
        self.arrivals += 1
        line = self._lines.get(pool)
        if line is not None:
            line.arrival = self.arrivals
            self._level(pool, line)

    def given_back(self, pool: Key) -> None:
        """Take note that a claim has left a member of a pool to others."""
        line = self._lines.get(pool)
        if line is not None:
            self._level(pool, line)

    def wait(self, claim: Key, pool: Key, created_at: str, *, tried: int) -> None:
        """Take note that a reconcile has left a claim without a Sandbox.

        ``tried`` is what :attr:`arrivals` was when the reconcile began.
        """
        if self._pools.get(claim, pool) != pool:
            self.forget(claim)
        line = self._lines.get(pool)
        if line is None:
            line = self._lines[pool] = _Line(self.arrivals)
        self._pools[claim] = pool
        line.awake.discard(claim)
        has_left_one = self._to_take(pool) > len(line.awake)
        left = tried if has_left_one else line.turns.get(claim, (_NEVER,))[0]
        line.line_up((left, created_at, claim))
        self._level(pool, line)

    def forget(self, claim: Key) -> None:
        """Drop a claim that does not wait any more; the unknown is no error."""
        pool = self._pools.pop(claim, None)
        if pool is None:
            return
        line = self._lines[pool]
        line.turns.pop(claim, None)
        line.awake.discard(claim)
        if not line.turns and not line.awake:
            del self._lines[pool]
        else:
            self._level(pool, line)

    def _level(self, pool: Key, line: _Line) -> None:
        """Wake claims until as many are awake as members can be taken."""
        lacking = self._to_take(pool) - len(line.awake)
        while lacking > 0 and line.heap:
            turn = line.heap[0]
            claim = turn[2]
            if line.turns.get(claim) != turn:
                heappop(line.heap)
                continue
            if turn[0] >= line.arrival:
                # This one has seen all members that there are, and so have those behind it.
                return
            heappop(line.heap)
            del line.turns[claim]
            line.awake.add(claim)
            self._wake(claim)
            lacking -= 1

"""The claims that wait for members of their pools, and which of them a member wakes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from lean_sandbox.watch.kind import Key

# Sort key of a waiting claim: the number of the last arrival that it declined, or -1; when it was
# created; its key.
_Turn: TypeAlias = tuple[int, str, Key]


class _Line(msgspec.Struct):
    """The waiting claims of one pool."""

    # The number of the last arrival of a member that can be taken.
    arrival: int
    turns: dict[Key, _Turn] = {}
    order: list[_Turn] = []
    # Claims that were woken and whose reconcile has not ended yet.
    awake: set[Key] = set()

    def leave(self, claim: Key) -> int:
        """Take a claim out of the line; return the last arrival that it declined, or -1."""
        turn = self.turns.pop(claim, None)
        if turn is None:
            return -1
        del self.order[bisect_left(self.order, turn)]
        return turn[0]


class WaitingClaims:
    """Wakes one waiting claim, the oldest first, for each member that can be taken.

    As many claims of a pool are awake as it has members to take, so nothing is lost when a claim
    that was woken takes none (it ended, was refused, or another was faster): the next one is woken
    then. A claim that declined a member is not woken again for that one, and comes after all
    others for the next.
    """

    def __init__(self, wake: Callable[[Key], None], to_take: Callable[[Key], int]) -> None:
        """``to_take`` returns how many members a pool has to take; neither may call back."""
        self._wake = wake
        self._to_take = to_take
        self._lines: dict[Key, _Line] = {}
        self._pools: dict[Key, Key] = {}
        #: How many times a member has become available, in any pool.
        self.arrivals = 0

    def waits_for(self, pool: Key) -> bool:
        """Return whether claims wait for members of a pool."""
        return pool in self._lines

    def available(self, pool: Key) -> None:
        """Note that one more member of a pool can be taken."""
        self.arrivals += 1
        line = self._lines.get(pool)
        if line is not None:
            line.arrival = self.arrivals
            self.level(pool)

    def wait(self, claim: Key, pool: Key, created_at: str, *, tried: int) -> None:
        """Note that a reconcile has left a claim without a Sandbox.

        ``tried`` is :attr:`arrivals` when it began: a later arrival still wakes the claim.
        """
        if self._pools.get(claim, pool) != pool:
            self.forget(claim)
        self._pools[claim] = pool
        line = self._lines.get(pool)
        if line is None:
            line = self._lines[pool] = _Line(self.arrivals)
        line.awake.discard(claim)
        has_left_one = self._to_take(pool) > len(line.awake)
        before = line.leave(claim)
        turn = line.turns[claim] = (tried if has_left_one else before, created_at, claim)
        insort(line.order, turn)
        self.level(pool)

    def forget(self, claim: Key) -> None:
        """Drop a claim that does not wait any more."""
        pool = self._pools.pop(claim, None)
        if pool is None:
            return
        line = self._lines[pool]
        line.leave(claim)
        line.awake.discard(claim)
        if not line.turns and not line.awake:
            del self._lines[pool]
        else:
            self.level(pool)

    def level(self, pool: Key) -> None:
        """Wake claims of a pool until as many are awake as members can be taken."""
        line = self._lines.get(pool)
        while line is not None and line.turns and self._to_take(pool) > len(line.awake):
            left, _, claim = line.order[0]
            if left >= line.arrival:
                # This claim has declined all members there are, and so have those behind it.
                return
            line.leave(claim)
            line.awake.add(claim)
            self._wake(claim)

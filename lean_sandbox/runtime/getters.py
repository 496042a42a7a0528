"""Tasks waiting for the next item: one watches the clock, the others only wait to be called."""

from __future__ import annotations

from collections import deque

import anyio

from lean_sandbox.clock import Clock


class Getters:
    """Wakes one task per item, never all of them.

    The first task to wait leads: it alone waits with a time limit, so a hundred waiting tasks cost
    one timer. Followers are called before the leader is, because calling the leader means that
    another one has to take over the timer.
    """

    __slots__ = ("_clock", "_followers", "_leader")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._leader: anyio.Event | None = None
        self._followers: deque[anyio.Event] = deque()

    def __len__(self) -> int:
        """Return how many tasks wait and have not been called."""
        leading = self._leader is not None and not self._leader.is_set()
        return len(self._followers) + leading

    def wake_one(self) -> None:
        """Call one task, because there is one more item."""
        if self._followers:
            self._followers.popleft().set()
        else:
            self.wake_leader()

    def wake_leader(self) -> None:
        """Call the task that watches the clock, because its time limit has changed."""
        if self._leader is not None:
            self._leader.set()

    def wake_all(self) -> None:
        """Call every task, because there will be no more items."""
        self.wake_leader()
        while self._followers:
            self._followers.popleft().set()

    async def wait(self, timeout_s: float | None) -> None:
        """Wait to be called; a leader also returns after ``timeout_s`` (None: no limit).

        The caller looks for an item afterwards in any case. A task that is cancelled after it was
        called passes the call on, so no item is left lying while others wait.
        """
        event = anyio.Event()
        leads = self._leader is None
        if leads:
            self._leader = event
        else:
            self._followers.append(event)
            timeout_s = None
        finished = False
        try:
            await self._clock.wait(event, timeout_s)
            finished = True
        finally:
            was_called = event.is_set()
            if leads:
                self._leader = None
            elif not was_called:
                self._followers.remove(event)
            if (leads or was_called) and not finished:
                self.wake_one()

    def appoint(self) -> None:
        """Call a follower to lead when the leader has left with an item."""
        if self._leader is None and self._followers:
            self._followers.popleft().set()

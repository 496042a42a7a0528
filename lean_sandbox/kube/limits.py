"""How many requests may be in flight, and who goes first.

Two lanes. CLIENT is work somebody waits for (a claim being bound); BACKGROUND is everything behind
it (refill, pool status, events). The rules:

1. At most ``max_in_flight`` requests at once. Above about 16 a single process gains nothing.
2. A free slot goes to the oldest CLIENT waiter; BACKGROUND gets it only when no CLIENT waits.
3. BACKGROUND holds at most ``max_in_flight - reserved_for_client`` slots, so that a CLIENT request
   arriving in a burst of refills finds a slot free.
4. Nobody starves: while BACKGROUND waits (and is below its share), at most 15 grants in a row go to
   CLIENT, the next one goes to BACKGROUND.
5. With ``qps`` set, each grant also takes a token: a bucket of ``burst`` tokens, refilled at
   ``qps`` a second. Both lanes draw from it in the order above.

First come, first served inside a lane. Streams (watches) are outside these limits.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Final

import anyio
import msgspec

from lean_sandbox.clock import Clock

_CLIENT_STREAK: Final = 15


class Lane(IntEnum):
    """Who waits for the answer."""

    CLIENT = 0
    BACKGROUND = 1


class Limits(msgspec.Struct, frozen=True, gc=False):
    """The settings of a :class:`Limiter`; the module docstring gives the rules."""

    max_in_flight: int = 16
    #: Must leave BACKGROUND at least one slot.
    reserved_for_client: int = 4
    #: None is no limit (the server's priority and fairness decides).
    qps: float | None = None
    burst: int = 100


class Limiter:
    """Slots for requests, by the rules of this module."""

    def __init__(self, clock: Clock, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._clock = clock
        self._interval_s = 1.0 / limits.qps if limits.qps else 0.0
        # How far ahead of the clock the time at which the bucket is full may lie with a token left.
        self._slack_s = (limits.burst - 1) * self._interval_s + 1e-9
        self._full_at = clock.monotonic()
        self._caps = (limits.max_in_flight, limits.max_in_flight - limits.reserved_for_client)
        #: Slots that are held, by lane.
        self.running = [0, 0]
        self._waiting: tuple[deque[anyio.Event], deque[anyio.Event]] = (deque(), deque())
        self._streak = 0

    async def acquire(self, lane: Lane) -> None:
        """Wait for a slot. Cancelling the wait leaves the limiter as it was."""
        if not self._waiting[0] and not self._waiting[1] and self._free(lane) and not self._pause():
            self._take(lane)
            return
        granted = anyio.Event()
        self._waiting[lane].append(granted)
        try:
            self._grant()
            while not granted.is_set():
                # A slot that comes free calls its next holder; a token that falls due calls nobody.
                pause_s = (self._pause() or self._interval_s) if self._interval_s else None
                await self._clock.wait(granted, pause_s)
                self._grant()
        except BaseException:
            if granted.is_set():
                self.release(lane)
            else:
                self._waiting[lane].remove(granted)
                self._grant()
            raise

    def release(self, lane: Lane) -> None:
        """Give a slot back and pass it on."""
        self.running[lane] -= 1
        self._grant()

    def waiting(self, lane: Lane) -> int:
        """Return how many requests wait for a slot."""
        return len(self._waiting[lane])

    def _free(self, lane: Lane) -> bool:
        total = self.running[0] + self.running[1]
        return total < self._caps[0] and self.running[lane] < self._caps[lane]

    def _pause(self) -> float:
        """Return the seconds until a token is there; 0.0 when there is one now."""
        if not self._interval_s:
            return 0.0
        return max(0.0, self._full_at - self._slack_s - self._clock.monotonic())

    def _take(self, lane: Lane) -> None:
        self.running[lane] += 1
        if self._interval_s:
            self._full_at = max(self._full_at, self._clock.monotonic()) + self._interval_s

    def _grant(self) -> None:
        while (self._waiting[0] or self._waiting[1]) and not self._pause():
            client = bool(self._waiting[0]) and self._free(Lane.CLIENT)
            background = bool(self._waiting[1]) and self._free(Lane.BACKGROUND)
            if not client and not background:
                return
            overdue = background and self._streak >= _CLIENT_STREAK
            lane = Lane.CLIENT if client and not overdue else Lane.BACKGROUND
            self._streak = self._streak + 1 if lane is Lane.CLIENT and background else 0
            self._take(lane)
            self._waiting[lane].popleft().set()

"""How many requests may be in flight, and who goes first.

Two lanes. CLIENT is work somebody waits for (a claim being bound); BACKGROUND is everything behind
it (refill, pool status, events). The rules:

1. At most ``max_in_flight`` requests at once. Above about 16 a single process gains nothing.
2. A free slot goes to the oldest CLIENT waiter; BACKGROUND gets it only when no CLIENT waits.
3. BACKGROUND holds at most ``max_in_flight - reserved_for_client`` slots, so that a CLIENT request
   arriving in a burst of refills finds a slot free.
4. Nobody starves: while BACKGROUND waits (and is below its share), at most 15 grants in a row
   go to CLIENT, the next one goes to BACKGROUND. A permanent
   CLIENT overload leaves BACKGROUND one grant in sixteen. This is the only exception to rule 2.
5. With ``qps`` set, each grant also takes a token: a bucket of ``burst`` tokens, refilled at
   ``qps`` a second. Both lanes draw from it in the order above.

First come, first served inside a lane. Streams (watches) are outside these limits.
"""

from __future__ import annotations

import math
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

    #: Requests in flight at once, and so connections in the pool.
    max_in_flight: int = 16
    #: Slots BACKGROUND never takes. Must leave it at least one.
    reserved_for_client: int = 4
    #: Requests a second over time; None is no limit (the server's priority and fairness decides).
    qps: float | None = None
    #: Requests at once before ``qps`` is felt.
    burst: int = 100


class _Bucket:
    """Tokens at ``rate`` a second, at most ``burst`` of them; starts full."""

    def __init__(self, clock: Clock, rate: float, burst: int) -> None:
        self._clock = clock
        self._rate = rate
        self.interval_s = 1.0 / rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at = clock.monotonic()

    def wait_s(self) -> float:
        """Return the seconds until a token is there; 0.0 when there is one now."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        # Refilling in steps loses fractions; without the slack a waiter could wake a hair too early
        # and then sleep for an interval that rounds to nothing.
        missing = 1.0 - self._tokens
        return 0.0 if missing <= 1e-9 else missing / self._rate

    def take(self) -> None:
        self._tokens -= 1.0


class Limiter:
    """Slots for requests, by the rules of this module."""

    def __init__(self, clock: Clock, limits: Limits | None = None) -> None:
        """Raise ValueError for limits that would let nothing through."""
        limits = limits or Limits()
        if limits.max_in_flight < 1 or limits.burst < 1:
            raise ValueError("max_in_flight and burst must be at least 1")
        if not 0 <= limits.reserved_for_client < limits.max_in_flight:
            raise ValueError("reserved_for_client must be at least 0 and below max_in_flight")
        if limits.qps is not None and not (limits.qps > 0 and math.isfinite(limits.qps)):
            raise ValueError("qps must be above 0, or None for no limit")
        self.limits = limits
        self._clock = clock
        self._bucket = _Bucket(clock, limits.qps, limits.burst) if limits.qps else None
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
                await self._clock.wait(granted, self._look_again_s())
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
        return 0.0 if self._bucket is None else self._bucket.wait_s()

    def _look_again_s(self) -> float | None:
        # A slot that comes free calls its next holder; a token that falls due calls nobody, so with
        # a bucket each waiter looks again by itself.
        if self._bucket is None:
            return None
        return self._bucket.wait_s() or self._bucket.interval_s

    def _take(self, lane: Lane) -> None:
        self.running[lane] += 1
        if self._bucket is not None:
            self._bucket.take()

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

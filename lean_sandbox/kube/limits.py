"""How many requests may be in flight; :mod:`lean_sandbox.turns` says who goes first.

At most ``max_in_flight`` at once. The server divides its time among all clients, so fewer slow a
burst down beside its own clients: 16 take 1.4 to 1.5 times as long as 32. With ``qps`` set, each
request also takes a token: a bucket of ``burst`` tokens, refilled at ``qps`` a second, from which
both ranks draw in their order. Streams (watches) are outside these limits.
"""

from __future__ import annotations

from collections.abc import Hashable

import anyio
import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.rates import TokenBucket
from lean_sandbox.turns import SPARE_SHARE, Rank, Slots


class Limits(msgspec.Struct, frozen=True, gc=False):
    """The settings of a :class:`Limiter`; the module docstring gives the rules."""

    max_in_flight: int = 32
    #: How many of them may be of rank SPARE.
    max_spare: int = SPARE_SHARE
    #: 0 is no limit (the server's priority and fairness decides).
    qps: float = 0.0
    burst: int = 100


class _Waiter(msgspec.Struct, eq=False):
    #: Set when it has been given a slot, or is to wait for the next token.
    called: anyio.Event
    #: Whether it is in line.
    waits: bool = True


class Limiter:
    """Slots for requests, by the rules of this module."""

    def __init__(self, clock: Clock, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._clock = clock
        self._tokens = TokenBucket(limits.qps, limits.burst)
        most = limits.max_in_flight
        #: Who holds and who waits for a slot.
        self.slots: Slots[_Waiter] = Slots(most - most // 8, most, spare=limits.max_spare)
        # The one waiter that sleeps until the next token; the others wait to be called.
        self._token_waiter: _Waiter | None = None

    async def acquire(self, rank: Rank, group: Hashable = None) -> None:
        """Wait for a slot. Cancelling the wait leaves the limiter as it was."""
        if self.slots.is_open(rank, group) and not self._pause():
            self.slots.hold(rank, group)
            self._take_token()
            return
        waiter = _Waiter(anyio.Event())
        self.slots.join(rank, group, waiter)
        try:
            self._grant()
            while waiter.waits:
                # A slot that comes free calls its next holder; a token that falls due calls nobody.
                is_token_waiter = self._token_waiter is waiter
                pause_s = (self._pause() or self._tokens.interval_s) if is_token_waiter else None
                await self._clock.wait(waiter.called, pause_s)
                if waiter.waits:
                    waiter.called = anyio.Event()
                    self._grant()
        except BaseException:
            if waiter.waits:
                waiter.waits = False
                self.slots.leave(rank, group, waiter)
                self._grant()
            else:
                self.release(rank, group)
            raise

    def release(self, rank: Rank, group: Hashable = None) -> None:
        """Give a slot back and pass it on."""
        self.slots.give_back(rank, group)
        self._grant()

    def _pause(self) -> float:
        """Return the seconds until the next token; 0.0 when there is one now."""
        return self._tokens.wait_s(self._clock.monotonic())

    def _take_token(self) -> None:
        self._tokens.take(1, self._clock.monotonic())

    def _grant(self) -> None:
        while not self._pause() and (chosen := self.slots.next()) is not None:
            rank, group, waiter = chosen
            self.slots.take(rank, group, waiter)
            self._take_token()
            waiter.waits = False
            waiter.called.set()
        if self._tokens.interval_s and not (self._token_waiter and self._token_waiter.waits):
            chosen = self.slots.next()
            self._token_waiter = chosen[2] if chosen is not None else None
            if self._token_waiter is not None:
                self._token_waiter.called.set()

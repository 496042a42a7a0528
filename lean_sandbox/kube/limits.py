"""How many requests may be in flight, and who goes first.

Two lanes. CLIENT is work that is waited for (a claim being bound, a kind being listed); BACKGROUND
is everything else (refill, pool status, events). The rules:

1. At most ``max_in_flight`` requests at once. The server divides its time among all clients, so
   fewer slow a burst down beside its own clients: 16 take 1.4 to 1.5 times as long as 32.
2. A free slot goes to the oldest CLIENT waiter; BACKGROUND gets it only when no CLIENT waits.
3. BACKGROUND holds at most ``max_background`` slots: a CLIENT request that arrives in a burst of
   refills finds a slot free, and a server that has time for it.
4. No lane starves: while BACKGROUND waits (and is below its share), at most 15 grants in a row go
   to CLIENT, the next one goes to BACKGROUND.
5. With ``qps`` set, each grant also takes a token: a bucket of ``burst`` tokens, refilled at
   ``qps`` a second. Both lanes draw from it in the order above.
6. Inside a lane the groups (namespaces) take turns, and inside a group the first in is the first
   out. The last eighth of the slots is for groups that hold none: even if every request of one
   tenant hangs, slots are left for the others.

Streams (watches) are outside these limits.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Container, Hashable
from enum import IntEnum
from typing import Final, Generic, TypeVar

import anyio
import msgspec

from lean_sandbox.clock import Clock

_CLIENT_STREAK: Final = 15

K = TypeVar("K", bound=Hashable)


def count_down(counted: Counter[K], key: K) -> None:
    """Count one less of a key; one of which none is left is no key any more."""
    counted[key] -= 1
    if not counted[key]:
        del counted[key]


class Turns(Generic[K]):
    """A line in which groups take turns; inside a group the first in is the first out."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Hashable, OrderedDict[K, None]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def __bool__(self) -> bool:
        return bool(self._groups)

    def join(self, group: Hashable, key: K) -> None:
        """Add a key at the end of its group, a group that was empty after all others."""
        self._groups.setdefault(group, OrderedDict())[key] = None

    def leave(self, group: Hashable, key: K) -> None:
        """Take a key out, whoever's turn it is."""
        line = self._groups[group]
        del line[key]
        if not line:
            del self._groups[group]

    def waiting(self, group: Hashable) -> int:
        """Return how many keys of a group are in line."""
        return len(self._groups.get(group, ()))

    def first(self, skipped: Container[Hashable] = ()) -> tuple[Hashable, K] | None:
        """Return the next group that is not ``skipped``, and its first key."""
        for group, line in self._groups.items():
            if group not in skipped:
                return group, next(iter(line))
        return None

    def first_of_most(self) -> tuple[Hashable, K]:
        """Return the group with the most keys, and its first."""
        group = max(self._groups, key=lambda one: len(self._groups[one]))
        return group, next(iter(self._groups[group]))

    def take(self, group: Hashable, key: K) -> None:
        """Take out a key whose turn it is, and put its group behind all others."""
        self._groups.move_to_end(group)
        self.leave(group, key)


class Lane(IntEnum):
    """Whether a client waits for the answer."""

    CLIENT = 0
    BACKGROUND = 1


class Limits(msgspec.Struct, frozen=True, gc=False):
    """The settings of a :class:`Limiter`; the module docstring gives the rules."""

    max_in_flight: int = 32
    max_background: int = 12
    #: None is no limit (the server's priority and fairness decides).
    qps: float | None = None
    burst: int = 100


class _Waiter(msgspec.Struct, eq=False):
    #: Set when it has been given a slot, or has become the lookout.
    called: anyio.Event
    #: Whether it is in line.
    waits: bool = True


class Limiter:
    """Slots for requests, by the rules of this module."""

    def __init__(self, clock: Clock, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._clock = clock
        self._interval_s = 1.0 / limits.qps if limits.qps else 0.0
        # How far ahead of the clock the time at which the bucket is full may lie with a token left.
        self._slack_s = (limits.burst - 1) * self._interval_s + 1e-9
        self._full_at = clock.monotonic()
        self._caps = (limits.max_in_flight, limits.max_background)
        self._shared = limits.max_in_flight - limits.max_in_flight // 8
        #: Slots that are held, by lane.
        self.running = [0, 0]
        # And by group.
        self._holders: Counter[Hashable] = Counter()
        self._waiting: tuple[Turns[_Waiter], Turns[_Waiter]] = (Turns(), Turns())
        # The one waiter that sleeps until the next token; the others wait to be called.
        self._lookout: _Waiter | None = None
        self._streak = 0

    async def acquire(self, lane: Lane, group: Hashable = None) -> None:
        """Wait for a slot. Cancelling the wait leaves the limiter as it was."""
        nobody_waits = not self._waiting[0] and not self._waiting[1]
        is_free = not self._is_full() and self.running[lane] < self._caps[lane]
        if nobody_waits and is_free and group not in self._skipped() and not self._pause():
            self._take(lane, group)
            return
        waiter = _Waiter(anyio.Event())
        self._waiting[lane].join(group, waiter)
        try:
            self._grant()
            while waiter.waits:
                # A slot that comes free calls its next holder; a token that falls due calls nobody.
                is_lookout = self._lookout is waiter
                pause_s = (self._pause() or self._interval_s) if is_lookout else None
                await self._clock.wait(waiter.called, pause_s)
                if waiter.waits:
                    waiter.called = anyio.Event()
                    self._grant()
        except BaseException:
            if waiter.waits:
                waiter.waits = False
                self._waiting[lane].leave(group, waiter)
                self._grant()
            else:
                self.release(lane, group)
            raise

    def release(self, lane: Lane, group: Hashable = None) -> None:
        """Give a slot back and pass it on."""
        self.running[lane] -= 1
        count_down(self._holders, group)
        self._grant()

    def waiting(self, lane: Lane) -> int:
        """Return how many requests wait for a slot."""
        return len(self._waiting[lane])

    def _pause(self) -> float:
        """Return the seconds until the next token; 0.0 when there is one now."""
        if not self._interval_s:
            return 0.0
        return max(0.0, self._full_at - self._slack_s - self._clock.monotonic())

    def _take(self, lane: Lane, group: Hashable) -> None:
        self.running[lane] += 1
        self._holders[group] += 1
        if self._interval_s:
            self._full_at = max(self._full_at, self._clock.monotonic()) + self._interval_s

    def _grant(self) -> None:
        while not self._is_full() and (self._waiting[0] or self._waiting[1]) and not self._pause():
            client, background = self._first(Lane.CLIENT), self._first(Lane.BACKGROUND)
            is_overdue = background is not None and self._streak >= _CLIENT_STREAK
            if client is not None and not is_overdue:
                lane, (group, waiter) = Lane.CLIENT, client
            elif background is not None:
                lane, (group, waiter) = Lane.BACKGROUND, background
            else:
                break
            is_passed_over = lane is Lane.CLIENT and background is not None
            self._streak = self._streak + 1 if is_passed_over else 0
            self._take(lane, group)
            self._waiting[lane].take(group, waiter)
            waiter.waits = False
            waiter.called.set()
        if self._interval_s and not (self._lookout and self._lookout.waits):
            _, self._lookout = self._waiting[0].first() or self._waiting[1].first() or (None, None)
            if self._lookout is not None:
                self._lookout.called.set()

    def _first(self, lane: Lane) -> tuple[Hashable, _Waiter] | None:
        if self.running[lane] >= self._caps[lane]:
            return None
        return self._waiting[lane].first(self._skipped())

    def _is_full(self) -> bool:
        return sum(self.running) >= self._caps[0]

    def _skipped(self) -> Container[Hashable]:
        return self._holders if sum(self.running) >= self._shared else ()

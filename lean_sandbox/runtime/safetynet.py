"""The safety net: keys that are not in their final state are reconciled again without any event.

Every change that matters is announced, so a key is reconciled because of an event or of something
it asked for itself. If that ever fails, a lost wake-up would last for good. So whatever is not
final is looked at after 10 s, then after twice as long each time, at most every 5 minutes, unless
it has asked to be reconciled sooner than that. A look that had to write something is counted: it
shows a bug elsewhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from itertools import count
from typing import Final, Generic, TypeVar

import anyio
import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.runtime.queue import LOW, SAFETY_NET, Item, WorkQueue

K = TypeVar("K", bound=Hashable)

_FIRST_S: Final = 10.0
_LONGEST_S: Final = 300.0
# However many objects are not final, looking at them stays cheap; the rest takes its turn later.
_LOOKS_PER_S: Final = 10.0


class _Watched(msgspec.Struct, gc=False):
    """When a key that is not final is looked at next, and how long after the look before."""

    due: float
    interval_s: float


class SafetyNet(Generic[K]):
    """Looks again at the keys of one queue.

    ``is_final`` says of a key whether anything is still to be expected of it. ``doubt`` is called
    before a look at a key that has not been final for minutes: the cache may be wrong about it, so
    the look is to ask the server.
    """

    def __init__(
        self,
        queue: WorkQueue[K],
        clock: Clock,
        *,
        is_final: Callable[[K], bool],
        doubt: Callable[[K], None] = lambda _key: None,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._is_final = is_final
        self._doubt = doubt
        self._watched: dict[K, _Watched] = {}
        # One entry for each watched key, due at the latest when its look is.
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()
        self._begun = anyio.Event()
        self.caught = 0

    def __len__(self) -> int:
        """Return the number of keys that are not final."""
        return len(self._watched)

    def passed(self, item: Item[K], *, writes: int) -> None:
        """Take note of a pass that went well and of how many writes it made."""
        key, now = item.key, self._clock.monotonic()
        is_look = item.is_safety_net
        if is_look and writes:
            self.caught += 1
        watched = self._watched.get(key)
        if self._is_final(key):
            if watched is not None:
                del self._watched[key]
            return
        interval_s = _FIRST_S
        if is_look and not writes and watched is not None:
            interval_s = min(2.0 * watched.interval_s, _LONGEST_S)
        if watched is None:
            watched = self._watched[key] = _Watched(now + interval_s, interval_s)
            self._push(key, watched.due)
            self._begun.set()
        watched.due, watched.interval_s = now + interval_s, interval_s

    async def run(self) -> None:
        """Look at what is due, until cancelled."""
        while True:
            if not self._heap:
                self._begun = anyio.Event()
                await self._begun.wait()
            now = self._clock.monotonic()
            due = self._heap[0][0]
            if due > now:
                await self._clock.sleep(due - now)
                continue
            key = heapq.heappop(self._heap)[2]
            watched = self._watched.get(key)
            if watched is None:
                continue
            if watched.due > now:
                self._push(key, watched.due)
                continue
            # Whatever becomes of this look, the key stays watched until it is final.
            watched.due = now + watched.interval_s
            self._push(key, watched.due)
            if self._is_final(key):
                del self._watched[key]
            elif not self._queue.comes_within(key, _LONGEST_S):
                if watched.interval_s >= _LONGEST_S:
                    self._doubt(key)
                self._queue.add(key, priority=LOW, reason=SAFETY_NET)
                await self._clock.sleep(1.0 / _LOOKS_PER_S)

    def _push(self, key: K, due: float) -> None:
        heapq.heappush(self._heap, (due, next(self._order), key))

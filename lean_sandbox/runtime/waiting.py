"""Where keys wait: in line when they may run, on a heap while their time has not come.

Both containers drop entries lazily: an entry that leaves is only marked, its reference is skipped
later. Each container is rebuilt when more than half of it is such leftovers, so its size stays
proportional to what really waits, at amortised constant cost.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)

# Where an entry is.
READY: Final = 0
DELAYED: Final = 1
LOCKED: Final = 2  # its key is being worked on
GONE: Final = 3

NEVER: Final = float("inf")
_LEFTOVERS_TOLERATED: Final = 64


class Entry(msgspec.Struct, Generic[K], gc=False, eq=False):
    """The one slot of a waiting key."""

    key: K
    priority: int
    changes: int
    reasons: tuple[str, ...]
    # Causes that may turn out to be our own echo and be taken back.
    tokens: tuple[Hashable, ...]
    # When it may run, on the monotonic clock: the earliest of all adds.
    due: float
    # The same, of the adds that cannot be taken back.
    lasting_due: float
    state: int


class ReadyLines(Generic[K]):
    """Entries that may run now: a line per priority, first in first out.

    The entry that has waited longest goes ahead of all others once it has waited longer than
    ``starvation_cap_s``. While there are many such, only one pick in ``aged_every`` goes to them:
    else a large backlog of unimportant work (every object at start) would turn the order round just
    when it matters.
    """

    __slots__ = (
        "_aged_every",
        "_by_age",
        "_cap_s",
        "_len",
        "_lines",
        "_live",
        "_order",
        "_regular",
    )

    def __init__(self, *, starvation_cap_s: float, aged_every: int) -> None:
        self._cap_s = starvation_cap_s
        self._aged_every = aged_every
        self._lines: dict[int, deque[Entry[K]]] = {}
        self._live: dict[int, int] = {}
        self._order: list[int] = []
        self._by_age: deque[Entry[K]] = deque()
        self._len = 0
        # Picks in regular order since the last one by age.
        self._regular = aged_every

    def __len__(self) -> int:
        """Return how many entries may run."""
        return self._len

    def depths(self) -> dict[int, int]:
        """Return the length of each line, by priority."""
        return dict(self._live)

    def push(self, entry: Entry[K]) -> None:
        """Put an entry at the end of the line of its priority."""
        entry.state = READY
        self._len += 1
        self._append(entry)
        self._by_age.append(entry)
        if len(self._by_age) > 2 * self._len + _LEFTOVERS_TOLERATED:
            self._by_age = deque(entry for entry in self._by_age if entry.state == READY)

    def promote(self, entry: Entry[K], priority: int) -> None:
        """Move an entry to the end of the line of a higher priority."""
        self._live[entry.priority] -= 1
        entry.priority = priority
        self._append(entry)

    def discard(self, entry: Entry[K]) -> None:
        """Take an entry out of its line."""
        entry.state = GONE
        self._live[entry.priority] -= 1
        self._len -= 1

    def pop(self, now: float) -> Entry[K] | None:
        """Take out the entry whose turn it is."""
        if not self._len:
            self._by_age.clear()
            for line in self._lines.values():
                line.clear()
            return None
        top = next(priority for priority in self._order if self._live[priority])
        entry = self._first(top)
        oldest = self._oldest()
        if (
            oldest is not entry
            and now - oldest.due > self._cap_s
            and self._regular + 1 >= self._aged_every
        ):
            self._regular = 0
            entry = oldest
        else:
            self._regular += 1
        self.discard(entry)
        return entry

    def _append(self, entry: Entry[K]) -> None:
        priority = entry.priority
        line = self._lines.get(priority)
        if line is None:
            line = self._lines[priority] = deque()
            self._live[priority] = 0
            self._order = sorted(self._lines, reverse=True)
        self._live[priority] += 1
        line.append(entry)
        if len(line) > 2 * self._live[priority] + _LEFTOVERS_TOLERATED:
            self._lines[priority] = deque(
                entry for entry in line if entry.state == READY and entry.priority == priority
            )

    def _first(self, priority: int) -> Entry[K]:
        line = self._lines[priority]
        while line[0].state != READY or line[0].priority != priority:
            line.popleft()
        return line[0]

    def _oldest(self) -> Entry[K]:
        while self._by_age[0].state != READY:
            self._by_age.popleft()
        return self._by_age[0]


class DelayedEntries(Generic[K]):
    """Entries whose time has not come, the earliest on top."""

    __slots__ = ("_heap", "_len", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Entry[K]]] = []
        self._order = itertools.count()
        self._len = 0

    def __len__(self) -> int:
        """Return how many entries are delayed."""
        return self._len

    def push(self, entry: Entry[K]) -> None:
        """Hold an entry until it is due."""
        entry.state = DELAYED
        self._len += 1
        self._push(entry)

    def reschedule(self, entry: Entry[K]) -> None:
        """Note that a held entry is due earlier than it was."""
        self._push(entry)

    def discard(self, entry: Entry[K]) -> None:
        """Let go of an entry."""
        entry.state = GONE
        self._len -= 1

    def next_due(self) -> float:
        """Return when the earliest entry is due; :data:`NEVER` when none is held."""
        heap = self._heap
        while heap:
            due, _, entry = heap[0]
            if entry.state == DELAYED and entry.due == due:
                return due
            heapq.heappop(heap)
        return NEVER

    def pop_due(self, now: float) -> Entry[K] | None:
        """Take out the earliest entry if its time has come."""
        if self.next_due() > now:
            return None
        entry = heapq.heappop(self._heap)[2]
        self.discard(entry)
        return entry

    def _push(self, entry: Entry[K]) -> None:
        heapq.heappush(self._heap, (entry.due, next(self._order), entry))
        if len(self._heap) > 2 * self._len + _LEFTOVERS_TOLERATED:
            self._heap = [
                item for item in self._heap if item[2].state == DELAYED and item[2].due == item[0]
            ]
            heapq.heapify(self._heap)

"""The work queue: decides which key is reconciled next, and never hands out one twice at a time.

The rules, as in the queues of Kubernetes' own controllers:

* A key has one slot. Adding it again merges: the earliest due time and the highest priority win,
  all causes are kept, and of the reasons, which are for the log, the first few distinct ones.
* A key that is being worked on is locked until :meth:`WorkQueue.done`; what is added meanwhile is
  kept and leads to another reconcile, which starts after that add.
* The highest priority goes first. Inside a priority the groups (namespaces) take turns, and inside
  a group the first in is the first out; a raised key goes to the end of its new line.
* At most ``most_running`` keys are worked on at once, and an eighth more, at least one, of groups
  that have none running: no tenant has to wait until the reconciles of another end.
* Low priority is not starved: a key that has waited for 10 s goes ahead of higher priorities, but
  such keys take at most one turn in four, or the objects listed at a start would reverse the order.
* A failed key waits 5 ms * 2^(n-1), at most 1000 s, until it is forgotten.
* A gate may hold keys back while another queue has more urgent work: for at most two seconds while
  that has any, two minutes while it has a crowd of one group.
"""

from __future__ import annotations

import heapq
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Collection, Hashable
from enum import IntFlag
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel
import msgspec
import structlog

from lean_sandbox.clock import Clock
from lean_sandbox.kube.limits import Turns, count_down
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition, Histogram

# A client is waiting for the outcome.
CLIENT: Final = 30
NORMAL: Final = 20
# Filling up pools: behind whatever somebody may be waiting for.
REFILL: Final = 10
# The initial list and whatever can wait.
LOW: Final = 0

# Reasons are for the log; a few distinct ones are enough.
MAX_REASONS: Final = 4
# After how long a key goes ahead of higher priorities, and how many turns these have in between.
STARVED_AFTER_S: Final = 10.0
_REGULAR_TURNS: Final = 3
# How long gated queues hold back for this one: while it has any work, and while clients wait for a
# crowd of one group, all of whom any other work would delay. A crowd is more keys than there are
# requests in flight by default.
BESIDE_WORK_S: Final = 2.0
BESIDE_CROWD_S: Final = 120.0
CROWD: Final = 32
# As the reference controller.
BACKOFF_BASE_S: Final = 0.005
BACKOFF_CAP_S: Final = 1000.0
# 2^63 times the base is beyond the cap; a larger exponent would only overflow a float.
_MAX_DOUBLINGS: Final = 63
# Stale entries of the heap of delays are skipped later; with more than this many it is rebuilt.
_LEFTOVERS_TOLERATED: Final = 64

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)


class Cause(IntFlag):
    """What has led to a reconcile, as far as that decides what the reconcile does."""

    #: Something has happened to the object or to another that it depends on.
    EVENT = 1
    #: A list has shown the object, or all were queued, as when the work begins.
    LISTED = 2
    #: An earlier reconcile has asked for this one.
    REQUEUE = 4
    #: Nothing has happened, but the object is not in its final state.
    SAFETY_NET = 8
    #: Something that the object owns has gone, perhaps because the object has gone itself.
    CHILD_GONE = 16


_WITHOUT_EVENT: Final = Cause.REQUEUE | Cause.SAFETY_NET


class Item(msgspec.Struct, Generic[K], frozen=True, gc=False):
    """A key whose turn has come, and why. All times are monotonic."""

    key: K
    reasons: tuple[str, ...]
    causes: Cause
    priority: int
    # Failed reconciles in a row before this one.
    attempts: int
    # When the key could first have run (its first add, or the end of its delay).
    enqueued_at: float
    started_at: float

    @property
    def is_safety_net(self) -> bool:
        """Whether the safety net led to this reconcile, and no event."""
        return Cause.SAFETY_NET in self.causes and self.causes in _WITHOUT_EVENT


class _Slot(msgspec.Struct, Generic[K], gc=False, eq=False):
    """The one slot of a waiting key: in a line, in the heap of delays, or locked with its key."""

    key: K
    priority: int
    reasons: tuple[str, ...]
    causes: Cause
    # When it may run: the earliest of all adds.
    due: float
    # Number of its entry in the heap of delays, 0 without one; its other entries are stale.
    ticket: int = 0
    # Since when the gate has held it back, if it has.
    held_since: float | None = None


class WorkQueue(Generic[K]):
    """Keys to work on: deduplicated, delayed, prioritised, locked while they are worked on.

    For one event loop. Any number of tasks call :meth:`get` and then :meth:`done`; one task runs
    :meth:`keep_time`. Adding or taking a key costs O(log n) at worst.
    """

    def __init__(
        self, clock: Clock, *, group_of: Callable[[K], Hashable] = lambda _key: None
    ) -> None:
        """``group_of`` returns the group of a key; groups take turns."""
        self._clock = clock
        self._group_of = group_of
        self._slots: dict[K, _Slot[K]] = {}
        self._running: dict[K, Item[K]] = {}
        # How many of these each group has.
        self._running_in: Counter[Hashable] = Counter()
        self._failures: dict[K, int] = {}
        #: How many keys of one group are worked on at once, at most.
        self.most_running = sys.maxsize
        # Keys that may run now, by priority.
        self._lines: dict[int, Turns[K]] = {}
        # Keys that may not run yet, as a heap of (time at which to check again, ticket, slot).
        self._delays: list[tuple[float, int, _Slot[K]]] = []
        self._tickets = itertools.count(1)
        self._regular_turns = _REGULAR_TURNS
        self._gates: list[Callable[[K], float]] = []
        # Keys that the gates hold back; they are in the heap of delays.
        self._held: dict[K, _Slot[K]] = {}
        #: Checks of the gate that raised an error; the key is let through.
        self.gate_errors = 0
        # The queues whose gates hold keys back behind this one.
        self._behind: list[WorkQueue[Any]] = []
        # One for each task that waits in get; the last to wait is the first to be woken.
        self._waiting: list[anyio.Event] = []
        # Set when the first delay now ends earlier than keep_time knows.
        self._is_earlier = anyio.Event()
        #: Set by :meth:`close`.
        self.closed = anyio.Event()
        #: Whether adds are ignored, as on a standby, which adds all objects when it takes over.
        self.is_paused = False
        #: Adds that took a new slot, and those merged into an existing one.
        self.adds = 0
        self.merged = 0
        self.retries = 0
        self.queue_duration = Histogram(families.QUEUE_DURATION.buckets)
        self.work_duration = Histogram(families.WORK_DURATION.buckets)

    def __len__(self) -> int:
        """Return the number of keys that wait, whether ready, delayed or locked."""
        return len(self._slots)

    @property
    def depths(self) -> dict[int, int]:
        """How many keys may run now, by priority; a priority once used stays, with zero."""
        return {at: len(turns) for at, turns in self._lines.items()}

    def counts(self) -> dict[str, int]:
        """Return how many keys are in each state.

        ``ready`` may run now, ``running`` are worked on, ``locked`` will run again after that,
        ``delayed`` wait for their time or are held back, ``failing`` have a backoff.
        """
        ready, locked = sum(self.depths.values()), sum(key in self._slots for key in self._running)
        return {
            "ready": ready,
            "running": len(self._running),
            "locked": locked,
            "delayed": len(self._slots) - ready - locked,
            "failing": len(self._failures),
        }

    @property
    def is_busy(self) -> bool:
        """Whether a key is running or may run now; one that is due only later does not count."""
        return bool(self._running) or any(self._lines.values())

    def is_running(self, key: K) -> bool:
        """Return whether a key is worked on now."""
        return key in self._running

    def has_event(self, key: K) -> bool:
        """Return whether a key waits because something has happened to it."""
        slot = self._slots.get(key)
        return slot is not None and slot.causes not in _WITHOUT_EVENT

    def clients_in_line(self, group: Hashable) -> int:
        """Return how many keys of a group with a waiting client are ready but not running."""
        line = self._lines.get(CLIENT)
        return line.waiting(group) if line is not None else 0

    def precedence_s(self, group: Hashable, *, beside: K | None = None) -> float:
        """Return for how many seconds at most other queues should hold back their work in a group.

        0.0 if this queue is idle, apart from a reconcile of the key ``beside``.
        """
        if self._running_in[group] + self.clients_in_line(group) > CROWD:
            return BESIDE_CROWD_S
        is_busy = len(self._running) > (beside in self._running) or any(self._lines.values())
        return BESIDE_WORK_S if is_busy else 0.0

    def gate(self, hold_s: Callable[[K], float], *, behind: WorkQueue[Any] | None = None) -> None:
        """Hold keys back, each for at most ``hold_s(key)`` seconds since it was first held back.

        A key is checked when its turn comes, every two seconds from then on, when it is added
        again, and when the queue ``behind`` which it waits becomes idle.
        """
        self._gates.append(hold_s)
        if behind is not None:
            behind._behind.append(self)  # noqa: SLF001 -- of the same class

    def judge_behind(self) -> None:
        """Have the keys that gates hold back behind this queue checked anew."""
        for queue in self._behind:
            queue.judge_held()

    def judge_held(self) -> None:
        """Line up the keys that the gate holds back, so that each is checked anew."""
        held, self._held = self._held, {}
        for slot in held.values():
            self._leave(slot)
            self._line_up(slot)

    def add(
        self,
        key: K,
        *,
        priority: int = NORMAL,
        after_s: float = 0.0,
        cause: Cause = Cause.EVENT,
        reason: str = "asked for",
    ) -> None:
        """Ask for a reconcile of ``key`` in ``after_s``; ignored while paused, and once closed.

        ``reason`` is for the log alone.
        """
        self._admit(key, priority, (reason,), cause, after_s)

    def retry(
        self, key: K, *, no_later_than_s: float | None = None, not_before_s: float = 0.0
    ) -> float:
        """Ask for another reconcile of a key that failed; return the delay in seconds.

        It is the backoff of the key, at most ``no_later_than_s`` and at least ``not_before_s``,
        which wins. A locked key keeps the causes, the reasons and the priority of the reconcile
        that failed.
        """
        earlier = self._failures.get(key, 0)
        self._failures[key] = earlier + 1
        delay_s = min(BACKOFF_BASE_S * 2.0 ** min(earlier, _MAX_DOUBLINGS), BACKOFF_CAP_S)
        if no_later_than_s is not None:
            delay_s = min(delay_s, max(0.0, no_later_than_s))
        delay_s = max(delay_s, not_before_s)
        self.retries += 1
        failed = self._running.get(key)
        priority = NORMAL if failed is None else failed.priority
        reasons = ("retry",) if failed is None else failed.reasons
        causes = Cause.EVENT if failed is None else failed.causes
        self._admit(key, priority, reasons, causes, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """Reset the backoff of ``key``. If it is waiting, it goes on waiting."""
        self._failures.pop(key, None)

    async def get(self) -> Item[K] | None:
        """Wait for the next key and lock it; :meth:`done` must follow. ``None`` once closed."""
        await anyio.lowlevel.checkpoint()
        while (item := self.get_nowait()) is None and not self.closed.is_set():
            called = anyio.Event()
            self._waiting.append(called)
            try:
                await called.wait()
            except BaseException:
                if called.is_set():
                    self._call_one()
                else:
                    self._waiting.remove(called)
                raise
        return item

    async def keep_time(self) -> None:
        """Line up each key as its time comes, until the queue is closed."""
        while not self.closed.is_set():
            now = self._clock.monotonic()
            self.release_due(now)
            self._is_earlier = anyio.Event()
            delay = self._first_delay()
            await self._clock.wait(self._is_earlier, None if delay is None else delay[0] - now)

    def get_nowait(self) -> Item[K] | None:
        """Lock and return the next key; ``None`` when none may run now, or once closed."""
        if self.closed.is_set():
            return None
        now = self._clock.monotonic()
        self.release_due(now)
        while (slot := self._next(now)) is not None and self._holds_back(slot, now):
            pass
        if slot is None:
            return None
        key = slot.key
        del self._slots[key]
        attempts = self._failures.get(key, 0)
        item = Item(
            key,
            slot.reasons,
            slot.causes,
            slot.priority,
            attempts,
            enqueued_at=slot.due,
            started_at=now,
        )
        self._running[key] = item
        self._running_in[self._group_of(key)] += 1
        self.queue_duration.observe(now - slot.due)
        return item

    def done(self, key: K) -> None:
        """Unlock ``key`` after its reconcile; if it was added meanwhile, it is placed now."""
        item = self._running.pop(key)
        count_down(self._running_in, self._group_of(key))
        now = self._clock.monotonic()
        self.work_duration.observe(now - item.started_at)
        slot = self._slots.get(key)
        if slot is not None and not self.closed.is_set():
            self._place(slot, now)
        if self._behind and not self.is_busy:
            self.judge_behind()

    def close(self) -> None:
        """Hand out no more keys, ignore adds, and end all waits."""
        self.closed.set()
        self._is_earlier.set()
        while self._waiting:
            self._call_one()

    def release_due(self, now: float) -> None:
        """Line up the keys whose time has come."""
        while (delay := self._first_delay()) is not None and delay[0] <= now:
            slot = delay[2]
            self._held.pop(slot.key, None)
            slot.ticket = 0
            self._line_up(slot)

    def collect(self, into: Exposition, controller: str) -> None:
        """Add the series of this queue, under the name of its controller."""
        now = self._clock.monotonic()
        if not self.closed.is_set():
            self.release_due(now)
        labels = (controller, controller)
        # A priority has a series once it was used; an unused queue has that of LOW.
        depths = sorted((self.depths or {LOW: 0}).items())
        into.add(families.QUEUE_DEPTH, [((*labels, str(at)), size) for at, size in depths])
        into.one(families.QUEUE_ADDS, self.adds, *labels)
        into.add(families.QUEUE_DURATION, [(labels, self.queue_duration)])
        into.add(families.WORK_DURATION, [(labels, self.work_duration)])
        durations = [now - item.started_at for item in self._running.values()]
        into.one(families.UNFINISHED_WORK, sum(durations), *labels)
        into.one(families.LONGEST_RUNNING, max(durations, default=0.0), *labels)
        into.one(families.QUEUE_RETRIES, self.retries, *labels)
        into.one(families.QUEUE_MERGED, self.merged, controller)
        counts = self.counts()
        states = ("delayed", "locked", "failing")
        into.add(families.QUEUE_WAITING, [((controller, one), counts[one]) for one in states])

    # -- one slot --------------------------------------------------------------------------------

    def _admit(
        self, key: K, priority: int, reasons: tuple[str, ...], causes: Cause, after_s: float
    ) -> None:
        if self.closed.is_set() or self.is_paused:
            return
        now = self._clock.monotonic()
        due = now + max(0.0, after_s)
        slot = self._slots.get(key)
        if slot is None:
            self.adds += 1
            slot = self._slots[key] = _Slot(key, priority, reasons, causes, due)
            if key not in self._running:
                self._place(slot, now)
            return
        self.merged += 1
        slot.causes |= causes
        for reason in reasons:
            if reason not in slot.reasons and len(slot.reasons) < MAX_REASONS:
                slot.reasons += (reason,)
        moves = due < slot.due if slot.ticket else priority > slot.priority
        moves = self._held.pop(key, None) is not None or (moves and key not in self._running)
        if moves:
            self._leave(slot)
        slot.priority, slot.due = max(priority, slot.priority), min(due, slot.due)
        if moves:
            self._place(slot, now)

    def _place(self, slot: _Slot[K], now: float) -> None:
        if slot.due > now:
            self._delay(slot, slot.due)
            return
        # Keys that have fallen due since the last check come first.
        self.release_due(now)
        self._line_up(slot)

    def _leave(self, slot: _Slot[K]) -> None:
        # Its entry stays in the heap of delays, stale.
        if slot.ticket:
            slot.ticket = 0
            return
        self._lines[slot.priority].leave(self._group_of(slot.key), slot.key)

    def _call_one(self) -> None:
        if self._waiting:
            self._waiting.pop().set()

    # -- keys whose time has not come ------------------------------------------------------------

    def _delay(self, slot: _Slot[K], until: float) -> None:
        slot.ticket = next(self._tickets)
        heap = self._delays
        heapq.heappush(heap, (until, slot.ticket, slot))
        if len(heap) > 2 * len(self._slots) + _LEFTOVERS_TOLERATED:
            heap[:] = [entry for entry in heap if entry[2].ticket == entry[1]]
            heapq.heapify(heap)
        if heap[0][2] is slot:
            self._is_earlier.set()

    def _first_delay(self) -> tuple[float, int, _Slot[K]] | None:
        heap = self._delays
        while heap and heap[0][2].ticket != heap[0][1]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _holds_back(self, slot: _Slot[K], now: float) -> bool:
        try:
            hold_s = max([hold_s(slot.key) for hold_s in self._gates], default=0.0)
        except Exception as error:
            self.gate_errors += 1
            log.exception("gate_failed", key=str(slot.key), error=type(error).__name__)
            return False
        since = now if slot.held_since is None else slot.held_since
        until = since + hold_s
        if until <= now:
            return False
        slot.held_since = since
        self._held[slot.key] = slot
        self._delay(slot, min(until, now + BESIDE_WORK_S))
        return True

    # -- keys that may run -----------------------------------------------------------------------

    def _line_up(self, slot: _Slot[K]) -> None:
        group = self._group_of(slot.key)
        self._lines.setdefault(slot.priority, Turns()).join(group, slot.key)
        if not self._is_full() and group not in self._skipped():
            self._call_one()

    def _is_full(self) -> bool:
        return len(self._running) >= self.most_running + max(1, self.most_running // 8)

    def _skipped(self) -> Collection[Hashable]:
        """Return the groups that may not have one more key running now."""
        return () if len(self._running) < self.most_running else self._running_in

    def _next(self, now: float) -> _Slot[K] | None:
        if self._is_full():
            return None
        skipped = self._skipped()
        firsts = [turns.first(skipped) for turns in self._lines.values()]
        heads = [self._slots[first[1]] for first in firsts if first is not None]
        if not heads:
            return None
        chosen = max(heads, key=lambda slot: slot.priority)
        oldest = min(heads, key=lambda slot: slot.due)
        self._regular_turns += 1
        is_starving = oldest.priority < chosen.priority and now - oldest.due > STARVED_AFTER_S
        if is_starving and self._regular_turns > _REGULAR_TURNS:
            self._regular_turns = 0
            chosen = oldest
        self._lines[chosen.priority].take(self._group_of(chosen.key), chosen.key)
        return chosen

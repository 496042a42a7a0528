"""The work queue: decides which key is reconciled next, and never hands out one twice at a time.

The rules, as in the queues of Kubernetes' own controllers:

* A key has one slot. Adding it again merges: the earliest due time and the highest rank win, all
  causes are kept, and of the reasons, which are for the log, the first few distinct ones.
* A key that is being worked on is locked until :meth:`WorkQueue.done`; what is added meanwhile is
  kept and leads to another reconcile, which starts after that add.
* Of the keys that may run, :mod:`lean_sandbox.turns` says which goes first; a key whose rank is
  raised goes to the end of its new line. At most ``most_running`` keys are worked on at once, and
  an eighth more, at least one, of groups that have none running.
* A failed key waits for 5 ms, then twice as long each time, at most 1000 s, until it is forgotten.
  One that an event has let run, and fail, before its wait was over waits for the rest of it: pauses
  grow with the time that a failure lasts, and not with what happens meanwhile. After an edit they
  begin at half a second.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable
from enum import IntFlag
from typing import Final, Generic, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition, Histogram
from lean_sandbox.runtime.schedule import Schedule, Scheduled, Waiters
from lean_sandbox.turns import Rank

# Reasons are for the log; a few distinct ones are enough.
MAX_REASONS: Final = 4
# As the reference controller.
BACKOFF_BASE_S: Final = 0.005
BACKOFF_CAP_S: Final = 1000.0
# An edit has a try of its own soon, and edits by the dozen do not make dozens of tries each.
_AFTER_EDIT_S: Final = 0.5

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
    rank: Rank
    # Failed reconciles in a row before this one.
    attempts: int
    # When the key could first have run (its first add, or the end of its delay).
    enqueued_at: float
    started_at: float

    @property
    def is_safety_net(self) -> bool:
        """Whether the safety net led to this reconcile, and no event."""
        return Cause.SAFETY_NET in self.causes and self.causes in _WITHOUT_EVENT


class _Slot(Scheduled[K], Generic[K], gc=False, eq=False, kw_only=True):
    """The one slot of a waiting key: in a line, among the delays, or locked with its key."""

    reasons: tuple[str, ...]
    causes: Cause

    def merge(self, reasons: tuple[str, ...], causes: Cause) -> None:
        """Keep all causes, and the first few distinct reasons."""
        self.causes |= causes
        for reason in reasons:
            if reason not in self.reasons and len(self.reasons) < MAX_REASONS:
                self.reasons += (reason,)


class _Backoff(msgspec.Struct, gc=False):
    """How often in a row a key has failed, how long it waits now, and until when."""

    failures: int = 0
    wait_s: float = BACKOFF_BASE_S / 2.0
    until: float = -math.inf

    def fail(self, now: float) -> float:
        """Note another failure; return how long to wait from now on."""
        self.failures += 1
        if now < self.until:
            return self.until - now
        self.wait_s = min(2.0 * self.wait_s, BACKOFF_CAP_S)
        self.until = now + self.wait_s
        return self.wait_s

    def shorten(self) -> None:
        """Let the next wait be short, and those that follow grow from there."""
        self.wait_s = min(self.wait_s, _AFTER_EDIT_S / 2.0)
        self.until = -math.inf


class WorkQueue(Generic[K]):
    """Keys to work on: deduplicated, delayed, in turns, locked while they are worked on.

    For one event loop. Any number of tasks call :meth:`get` and then :meth:`done`; one task runs
    :meth:`keep_time`. Adding or taking a key costs O(log n) at worst.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        group_of: Callable[[K], Hashable] = lambda _key: None,
        most_running: int = sys.maxsize,
    ) -> None:
        """``group_of`` returns the group of a key; groups take turns."""
        self._clock = clock
        #: How many keys are worked on at once, at most, but for the eighth of other groups. The
        #: others stay in the queue, where their rank may still be raised.
        self.most_running = most_running
        self._slots: dict[K, _Slot[K]] = {}
        self._running: dict[K, Item[K]] = {}
        # The keys that have failed, until they are forgotten.
        self._backoffs: dict[K, _Backoff] = {}
        # The tasks that wait in get.
        self._waiting = Waiters()
        # Which of the keys may run now, and which goes first.
        self._schedule: Schedule[K] = Schedule(clock, group_of, self._waiting, most_running)
        #: Set by :meth:`close`.
        self.closed = anyio.Event()
        #: Whether adds are ignored, as on a standby, which adds all objects when it takes over.
        self.is_paused = False
        #: Adds that took a slot.
        self.adds = 0
        self.retries = 0
        self.queue_duration = Histogram(families.QUEUE_DURATION.buckets)
        self.work_duration = Histogram(families.WORK_DURATION.buckets)

    def __len__(self) -> int:
        """Return the number of keys that wait, whether ready, delayed or locked."""
        return len(self._slots)

    @property
    def depths(self) -> dict[Rank, int]:
        """How many keys may run now, by rank."""
        return self._schedule.depths

    def counts(self) -> dict[str, int]:
        """Return how many keys are in each state.

        ``ready`` may run now, ``running`` are worked on, ``locked`` will run again after that,
        ``delayed`` wait for their time or are held back, ``failing`` have a backoff.
        """
        ready = sum(self.depths.values())
        locked = sum(key in self._slots for key in self._running)
        return {
            "ready": ready,
            "running": len(self._running),
            "locked": locked,
            "delayed": len(self._slots) - ready - locked,
            "failing": len(self._backoffs),
        }

    @property
    def is_busy(self) -> bool:
        """Whether a key is running or may run now; one that is due only later does not count."""
        return not self._schedule.is_idle

    def is_running(self, key: K) -> bool:
        """Return whether a key is worked on now."""
        return key in self._running

    def has_event(self, key: K) -> bool:
        """Return whether a key waits because something has happened to it."""
        slot = self._slots.get(key)
        return slot is not None and slot.causes not in _WITHOUT_EVENT

    def add(
        self,
        key: K,
        *,
        rank: Rank = Rank.CLIENT,
        after_s: float = 0.0,
        cause: Cause = Cause.EVENT,
        reason: str = "asked for",
    ) -> None:
        """Ask for a reconcile of ``key`` in ``after_s``; ignored while paused, and once closed.

        ``reason`` is for the log alone.
        """
        self._admit(key, rank, (reason,), cause, after_s)

    def retry(
        self, key: K, *, no_later_than_s: float | None = None, not_before_s: float = 0.0
    ) -> float:
        """Ask for another reconcile of a key that failed; return the delay in seconds.

        It is the backoff of the key, at most ``no_later_than_s`` and at least ``not_before_s``,
        which wins. A locked key keeps the causes, the reasons and the rank of the reconcile that
        failed.
        """
        delay_s = self._backoffs.setdefault(key, _Backoff()).fail(self._clock.monotonic())
        if no_later_than_s is not None:
            delay_s = min(delay_s, max(0.0, no_later_than_s))
        delay_s = max(delay_s, not_before_s)
        self.retries += 1
        failed = self._running.get(key)
        rank = Rank.CLIENT if failed is None else failed.rank
        reasons = ("retry",) if failed is None else failed.reasons
        causes = Cause.EVENT if failed is None else failed.causes
        self._admit(key, rank, reasons, causes, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """Reset the backoff of ``key``. If it is waiting, it goes on waiting."""
        self._backoffs.pop(key, None)

    def shorten(self, key: K) -> None:
        """Let ``key`` wait for half a second at most when it fails next: it has been edited."""
        if (backoff := self._backoffs.get(key)) is not None:
            backoff.shorten()

    async def get(self) -> Item[K] | None:
        """Wait for the next key and lock it; :meth:`done` must follow. ``None`` once closed."""
        await anyio.lowlevel.checkpoint()
        while (item := self.get_nowait()) is None and not self.closed.is_set():
            await self._waiting.wait()
        return item

    async def keep_time(self) -> None:
        """Line up each key as its time comes, until the queue is closed."""
        await self._schedule.keep_time(self.closed)

    def get_nowait(self) -> Item[K] | None:
        """Lock and return the next key; ``None`` when none may run now, or once closed."""
        if self.closed.is_set():
            return None
        now = self._clock.monotonic()
        if (key := self._schedule.take_next(now)) is None:
            return None
        slot = self._slots.pop(key)
        backoff = self._backoffs.get(key)
        item = Item(
            key,
            slot.reasons,
            slot.causes,
            slot.rank,
            0 if backoff is None else backoff.failures,
            enqueued_at=slot.due,
            started_at=now,
        )
        self._running[key] = item
        self.queue_duration.observe(now - slot.due)
        return item

    def done(self, key: K) -> None:
        """Unlock ``key`` after its reconcile; if it was added meanwhile, it is placed now."""
        item = self._running.pop(key)
        self._schedule.give_back(item.rank, key)
        now = self._clock.monotonic()
        self.work_duration.observe(now - item.started_at)
        slot = self._slots.get(key)
        if slot is not None and not self.closed.is_set():
            self._schedule.place(slot, now)

    def close(self) -> None:
        """Hand out no more keys, ignore adds, and end all waits."""
        self.closed.set()
        self._schedule.wake()
        while self._waiting:
            self._waiting.call_one()

    def collect(self, into: Exposition, controller: str) -> None:
        """Add the series of this queue, under the name of its controller."""
        now = self._clock.monotonic()
        labels = (controller, controller)
        depths = [((*labels, str(rank.value)), size) for rank, size in self.depths.items()]
        into.add(families.QUEUE_DEPTH, depths)
        running_s = [now - item.started_at for item in self._running.values()]
        into.one(families.UNFINISHED_WORK, sum(running_s), *labels)
        into.one(families.LONGEST_RUNNING, max(running_s, default=0.0), *labels)
        counts = self.counts()
        states = ("delayed", "locked", "failing")
        into.add(families.QUEUE_WAITING, [((controller, one), counts[one]) for one in states])
        into.one(families.QUEUE_ADDS, self.adds, *labels)
        into.add(families.QUEUE_DURATION, [(labels, self.queue_duration)])
        into.add(families.WORK_DURATION, [(labels, self.work_duration)])
        into.one(families.QUEUE_RETRIES, self.retries, *labels)

    def _admit(
        self, key: K, rank: Rank, reasons: tuple[str, ...], causes: Cause, after_s: float
    ) -> None:
        if self.closed.is_set() or self.is_paused:
            return
        now = self._clock.monotonic()
        due = now + max(0.0, after_s)
        slot = self._slots.get(key)
        if slot is None:
            self.adds += 1
            slot = self._slots[key] = _Slot(key, rank, due, reasons=reasons, causes=causes)
            if key not in self._running:
                self._schedule.place(slot, now)
            return
        slot.merge(reasons, causes)
        is_nearer = due < slot.due if slot.ticket else rank > slot.rank
        moves = is_nearer and key not in self._running
        if moves:
            self._schedule.leave(slot)
        slot.rank = max(rank, slot.rank)
        slot.due = min(due, slot.due)
        if moves:
            self._schedule.place(slot, now)

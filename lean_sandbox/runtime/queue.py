"""The work queue: which object is looked at next, and never twice at the same time.

The rules, as in the queues of Kubernetes' own controllers:

* A key has one slot. Adding it again merges: the earliest due time and the highest priority win,
  what changed is OR-ed, the first few distinct reasons are kept.
* A key that is being worked on is locked until :meth:`WorkQueue.done`; what is added meanwhile is
  kept and leads to another pass, which starts after that add.
* First in, first out inside a priority; a raised key goes to the end of its new line.
* Low priority is not starved: see :class:`~lean_sandbox.runtime.waiting.ReadyLines`.
* A failed key waits 5 ms * 2^(n-1), at most 1000 s, until it is forgotten.

The queue holds no task and no timer: time passes only where someone waits in :meth:`WorkQueue.get`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.metrics.histogram import WORKQUEUE_BUCKETS_S, Histogram, HistogramSnapshot
from lean_sandbox.runtime.backoff import BACKOFF_BASE_S, BACKOFF_CAP_S, KeyBackoff
from lean_sandbox.runtime.getters import Getters
from lean_sandbox.runtime.waiting import (
    DELAYED,
    GONE,
    LOCKED,
    NEVER,
    READY,
    DelayedEntries,
    Entry,
    ReadyLines,
)

# A client is waiting for the outcome.
CLIENT: Final = 30
NORMAL: Final = 20
# Filling up pools: ahead of nobody who waits.
REFILL: Final = 10
# The initial list and whatever can wait.
LOW: Final = 0

# Why a key is reconciled although nothing has happened to it: it asked for it, or just in case.
REQUEUE: Final = "requeue"
SAFETY_NET: Final = "safety net"
_WITHOUT_EVENT: Final = frozenset({REQUEUE, SAFETY_NET})

# Reasons are for the log; more than a few distinct ones say nothing more.
MAX_REASONS: Final = 4
# Causes of one entry that can still be taken back; a busier key is simply worked on.
MAX_TOKENS: Final = 8

K = TypeVar("K", bound=Hashable)


class QueueClosedError(Exception):
    """The queue was closed: there will be no more items."""


class Item(msgspec.Struct, Generic[K], frozen=True, gc=False):
    """A key whose turn has come, and why."""

    key: K
    changes: int
    reasons: tuple[str, ...]
    priority: int
    # Failed passes in a row before this one.
    attempts: int
    # Monotonic time since when the key could have run (its first add, or the end of its delay).
    enqueued_at: float

    @property
    def is_safety_net(self) -> bool:
        """Whether no event and no due time led to this pass, but the safety net alone."""
        return SAFETY_NET in self.reasons and _WITHOUT_EVENT.issuperset(self.reasons)


class QueueStatistics(msgspec.Struct, frozen=True):
    """Counters of a queue at one moment; durations in seconds."""

    # Keys that may run now, by priority; a priority once used stays, with zero.
    depth: dict[int, int]
    delayed: int
    running: int
    # Keys that will run again after the pass that is running.
    locked: int
    # Keys that are in backoff or were not forgotten since.
    failing: int
    # Adds that took a new slot, and those merged into an existing one.
    adds: int
    deduplicated: int
    withdrawn: int
    retries: int
    longest_running_s: float
    unfinished_work_s: float
    queue_duration_s: HistogramSnapshot
    work_duration_s: HistogramSnapshot


class _Run(msgspec.Struct, Generic[K], frozen=True, gc=False):
    item: Item[K]
    started_at: float


class WorkQueue(Generic[K]):
    """Keys to work on: deduplicated, delayed, prioritised, locked while they are worked on.

    For one event loop. Every operation is O(log n) at worst in the number of delayed keys; a key
    costs one slot however often it is added.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        starvation_cap_s: float = 10.0,
        aged_every: int = 4,
        backoff_base_s: float = BACKOFF_BASE_S,
        backoff_cap_s: float = BACKOFF_CAP_S,
        jitter: float = 0.0,
        random: Callable[[], float] | None = None,
    ) -> None:
        """Create an empty queue.

        ``starvation_cap_s``: a key that waited longer goes ahead of higher priorities, but takes
        at most one turn in ``aged_every`` from them (1: every turn).
        ``jitter``: with ``random`` (in [0, 1)), the share by which a backoff may be longer.
        """
        self._clock = clock
        self._getters = Getters(clock)
        self._ready: ReadyLines[K] = ReadyLines(
            starvation_cap_s=starvation_cap_s, aged_every=aged_every
        )
        self._delayed: DelayedEntries[K] = DelayedEntries()
        self._backoff: KeyBackoff[K] = KeyBackoff(
            base_s=backoff_base_s, cap_s=backoff_cap_s, jitter=jitter, random=random
        )
        self._slots: dict[K, Entry[K]] = {}
        self._running: dict[K, _Run[K]] = {}
        self._closed = anyio.Event()
        self._is_closed = False
        self._is_held = False
        self._adds = 0
        self._deduplicated = 0
        self._withdrawn = 0
        self._retries = 0
        self._queue_duration = Histogram(WORKQUEUE_BUCKETS_S)
        self._work_duration = Histogram(WORKQUEUE_BUCKETS_S)

    def __len__(self) -> int:
        """Return the number of keys that wait, whether ready, delayed or locked."""
        return len(self._slots)

    @property
    def is_busy(self) -> bool:
        """Whether a key runs or may run now; one that is due only later does not count."""
        return len(self._ready) > 0 or bool(self._running)

    def is_busy_beside(self, key: K) -> bool:
        """Return whether a key other than this one runs, or any may run now."""
        return len(self._ready) > 0 or len(self._running) > (key in self._running)

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._is_closed

    @property
    def is_held(self) -> bool:
        """Whether nothing is taken in for now."""
        return self._is_held

    def hold(self) -> None:
        """Take nothing in until :meth:`resume`, so that a standby's queue does not grow.

        Who resumes has to add what is to be looked at; for a queue that is empty.
        """
        self._is_held = True

    def resume(self) -> None:
        """Take in what is added from now on."""
        self._is_held = False

    def add(
        self,
        key: K,
        *,
        priority: int = NORMAL,
        after_s: float = 0.0,
        changes: int = 0,
        reason: str = "",
        token: Hashable = None,
    ) -> None:
        """Ask for a pass over ``key``, not before ``after_s`` seconds.

        ``changes`` are flags to hand to the pass. ``token`` names a cause that may turn out to be
        our own echo, for :meth:`withdraw`. Ignored while the queue is held and once it is closed.
        """
        now = self._clock.monotonic()
        due = now + after_s if after_s > 0.0 else now
        wanted = Entry(
            key=key,
            priority=priority,
            changes=int(changes),
            reasons=(reason,) if reason else (),
            tokens=() if token is None else (token,),
            due=due,
            lasting_due=due if token is None else NEVER,
            state=LOCKED,
        )
        self._admit(wanted, now)

    def withdraw(self, key: K, token: Hashable) -> bool:
        """Take back an add whose cause turned out to be our own echo; return whether it mattered.

        The entry goes when the token was its only cause. If the token only pulled a delayed entry
        forward, the entry goes back to its delay. An entry with another cause for running as early
        stays, and so does a pass that has begun.
        """
        entry = self._slots.get(key)
        if entry is None or token not in entry.tokens:
            return False
        entry.tokens = tuple(other for other in entry.tokens if other != token)
        if entry.tokens or entry.lasting_due <= entry.due:
            return False
        self._withdrawn += 1
        if entry.lasting_due == NEVER:
            self._drop(entry)
        elif entry.state == LOCKED:
            entry.due = entry.lasting_due
        else:
            self._drop(entry)
            # A fresh entry, because the containers may still hold references to the dropped one.
            later = Entry(
                key=key,
                priority=entry.priority,
                changes=entry.changes,
                reasons=entry.reasons,
                tokens=(),
                due=entry.lasting_due,
                lasting_due=entry.lasting_due,
                state=GONE,
            )
            self._slots[key] = later
            self._place(later, self._clock.monotonic())
        return True

    def comes_within(self, key: K, seconds: float) -> bool:
        """Tell whether a key is being worked on, will be within so many seconds, or is failing.

        One that failed is tried again, however late: its backoff is as long as it is on purpose.
        """
        if key in self._running or self._backoff.failures(key):
            return True
        entry = self._slots.get(key)
        return entry is not None and entry.due <= self._clock.monotonic() + seconds

    def forget_delayed(self, key: K) -> bool:
        """Drop what was asked for a later time; return whether there was anything.

        A key that may run already, or that was asked for without delay, is left alone.
        """
        entry = self._slots.get(key)
        now = self._clock.monotonic()
        if entry is None or entry.state == READY or entry.due <= now:
            return False
        self._drop(entry)
        return True

    async def get(self) -> Item[K]:
        """Wait for the next key and lock it; :meth:`done` must follow.

        Raises :class:`QueueClosedError` once the queue is closed, even if keys are left.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            item = self.get_nowait()
            if item is not None:
                if len(self._getters):
                    self._getters.appoint()
                return item
            due = self._delayed.next_due()
            timeout_s = None if due == NEVER else due - self._clock.monotonic()
            await self._getters.wait(timeout_s)

    def get_nowait(self) -> Item[K] | None:
        """Lock and return the next key, or None when no key may run now.

        Raises :class:`QueueClosedError` once the queue is closed.
        """
        if self._is_closed:
            raise QueueClosedError
        now = self._clock.monotonic()
        self._release_due(now, taken=1)
        entry = self._ready.pop(now)
        if entry is None:
            return None
        key = entry.key
        del self._slots[key]
        item = Item(
            key=key,
            changes=entry.changes,
            reasons=entry.reasons,
            priority=entry.priority,
            attempts=self._backoff.failures(key),
            enqueued_at=entry.due,
        )
        self._running[key] = _Run(item, now)
        self._queue_duration.observe(now - entry.due)
        return item

    def done(self, key: K) -> None:
        """Unlock ``key`` after its pass; what was added meanwhile comes up now.

        Raises KeyError when the key is not being worked on.
        """
        run = self._running.pop(key)
        now = self._clock.monotonic()
        self._work_duration.observe(now - run.started_at)
        entry = self._slots.get(key)
        if entry is not None and not self._is_closed:
            self._place(entry, now)

    def retry(
        self, key: K, *, no_later_than_s: float | None = None, not_before_s: float = 0.0
    ) -> float:
        """Ask for another pass over a key that failed; return the delay in seconds.

        The delay is the backoff of the key, but at most ``no_later_than_s`` (something falls due
        for this key by then) and at least ``not_before_s`` (the server said so, which wins).
        Called while the key is locked, it keeps what the failed pass was for: its changes, reasons
        and priority.
        """
        delay_s = self._backoff.fail(key)
        if no_later_than_s is not None:
            delay_s = min(delay_s, max(0.0, no_later_than_s))
        delay_s = max(delay_s, not_before_s)
        self._retries += 1
        now = self._clock.monotonic()
        due = now + delay_s
        run = self._running.get(key)
        wanted = Entry(
            key=key,
            priority=NORMAL if run is None else run.item.priority,
            changes=0 if run is None else run.item.changes,
            reasons=("retry",) if run is None else (run.item.reasons or ("retry",)),
            tokens=(),
            due=due,
            lasting_due=due,
            state=LOCKED,
        )
        self._admit(wanted, now)
        return delay_s

    def forget(self, key: K) -> None:
        """Let the next failure of ``key`` count as its first. Waiting entries stay."""
        self._backoff.forget(key)

    def close(self) -> None:
        """Hand out nothing more and take nothing more in; wake everyone who waits in :meth:`get`.

        Keys being worked on stay locked until :meth:`done`.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._closed.set()
        self._getters.wake_all()

    async def wait_closed(self) -> None:
        """Wait until the queue is closed."""
        await self._closed.wait()

    def statistics(self) -> QueueStatistics:
        """Return the counters as they are now."""
        now = self._clock.monotonic()
        if not self._is_closed:
            self._release_due(now)
        started = [run.started_at for run in self._running.values()]
        ready, delayed = len(self._ready), len(self._delayed)
        return QueueStatistics(
            depth=self._ready.depths(),
            delayed=delayed,
            running=len(started),
            locked=len(self._slots) - ready - delayed,
            failing=len(self._backoff),
            adds=self._adds,
            deduplicated=self._deduplicated,
            withdrawn=self._withdrawn,
            retries=self._retries,
            longest_running_s=now - min(started, default=now),
            unfinished_work_s=sum(now - start for start in started),
            queue_duration_s=self._queue_duration.snapshot(),
            work_duration_s=self._work_duration.snapshot(),
        )

    def _admit(self, wanted: Entry[K], now: float) -> None:
        if self._is_closed or self._is_held:
            return
        entry = self._slots.get(wanted.key)
        if entry is not None:
            self._deduplicated += 1
            self._merge(entry, wanted, now)
            return
        self._adds += 1
        self._slots[wanted.key] = wanted
        if wanted.key not in self._running:
            self._place(wanted, now)

    def _merge(self, entry: Entry[K], wanted: Entry[K], now: float) -> None:
        entry.changes |= wanted.changes
        if wanted.reasons and len(entry.reasons) < MAX_REASONS:
            for reason in wanted.reasons:
                if reason not in entry.reasons and len(entry.reasons) < MAX_REASONS:
                    entry.reasons += (reason,)
        lasting_due = wanted.lasting_due
        for token in wanted.tokens:
            if token in entry.tokens:
                continue
            if len(entry.tokens) < MAX_TOKENS:
                entry.tokens += (token,)
            else:
                lasting_due = wanted.due
        entry.lasting_due = min(entry.lasting_due, lasting_due)
        if wanted.priority > entry.priority:
            if entry.state == READY:
                self._ready.promote(entry, wanted.priority)
            else:
                entry.priority = wanted.priority
        if wanted.due < entry.due:
            entry.due = wanted.due
            if entry.state == DELAYED:
                self._bring_forward(entry, now)

    def _bring_forward(self, entry: Entry[K], now: float) -> None:
        if entry.due > now:
            self._delayed.reschedule(entry)
            if self._delayed.next_due() == entry.due:
                self._getters.wake_leader()
        else:
            self._delayed.discard(entry)
            self._place(entry, now)

    def _place(self, entry: Entry[K], now: float) -> None:
        if entry.due <= now:
            # What fell due while nobody looked was first.
            self._release_due(now)
            self._ready.push(entry)
            self._getters.wake_one()
            return
        self._delayed.push(entry)
        if self._delayed.next_due() == entry.due:
            self._getters.wake_leader()

    def _release_due(self, now: float, *, taken: int = 0) -> None:
        """Line up what is due; call a getter for each, but for those the caller takes itself."""
        while (entry := self._delayed.pop_due(now)) is not None:
            self._ready.push(entry)
            if taken:
                taken -= 1
            else:
                self._getters.wake_one()

    def _drop(self, entry: Entry[K]) -> None:
        del self._slots[entry.key]
        if entry.state == READY:
            self._ready.discard(entry)
        elif entry.state == DELAYED:
            self._delayed.discard(entry)
        entry.state = GONE

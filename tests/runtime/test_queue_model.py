"""The work queue against a naive model, under any order of operations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lean_sandbox.runtime.queue import Cause, Item, WorkQueue
from lean_sandbox.turns import SPARE_SHARE, Rank
from tests.runtime.hand_clock import HandClock

KEYS = st.sampled_from("abc")
RANKS = st.sampled_from(Rank)
CAUSES = st.sampled_from(Cause)
DELAYS = st.sampled_from([0.0, 0.0, 1.0, 2.5, 4.0])


@dataclass
class Slot:
    """What the model knows of one waiting key."""

    rank: Rank
    causes: Cause
    due: float
    place: int
    lined_up: bool = False


class QueueMachine(RuleBasedStateMachine):
    """One slot a key, earliest due, highest rank, all causes, FIFO, locked while running."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock()
        self.queue: WorkQueue[str] = WorkQueue(self.clock)
        self.slots: dict[str, Slot] = {}
        self.running: dict[str, Item[str]] = {}
        self.failures: dict[str, int] = {}
        # How long each failing key waits, and until when.
        self.waits: dict[str, tuple[float, float]] = {}
        self.last = Rank.SPARE
        self.place = itertools.count()
        self.reasons = itertools.count()

    # -- the model ---------------------------------------------------------------------------

    def line_up(self) -> None:
        """Let keys that became due join their lines, in the order of their due times."""
        now = self.clock.monotonic()
        late = [
            (slot.due, slot.place, key)
            for key, slot in self.slots.items()
            if slot.due <= now and not slot.lined_up and key not in self.running
        ]
        for _, _, key in sorted(late):
            self.slots[key].lined_up = True
            self.slots[key].place = next(self.place)

    def expect_add(self, key: str, rank: Rank, causes: Cause, delay: float) -> None:
        """Merge an add into the model, by the rules."""
        due = self.clock.monotonic() + delay
        slot = self.slots.get(key)
        if slot is None:
            slot = self.slots[key] = Slot(rank, causes, due, next(self.place))
        else:
            slot.causes |= causes
            if rank > slot.rank:
                slot.rank = rank
                if slot.lined_up:
                    slot.place = next(self.place)
            if due < slot.due:
                slot.due = due
                slot.place = next(self.place)
        if key not in self.running and slot.due <= self.clock.monotonic() and not slot.lined_up:
            slot.lined_up = True
            slot.place = next(self.place)

    # -- the operations ----------------------------------------------------------------------

    @rule(key=KEYS, rank=RANKS, cause=CAUSES, delay=DELAYS)
    def add(self, key: str, rank: Rank, cause: Cause, delay: float) -> None:
        """Add a key in any way, each time with a reason of its own."""
        reason = f"add {next(self.reasons)}"
        self.queue.add(key, rank=rank, after_s=delay, cause=cause, reason=reason)
        self.expect_add(key, rank, cause, delay)

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 4.0]))
    def move(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.move(seconds)
        # As the task that keeps the time does.
        self.queue._schedule.release_due(self.clock.monotonic())
        self.line_up()

    @rule()
    def get(self) -> None:
        """Take what the model says comes next, or nothing."""
        item = self.queue.get_nowait()
        self.line_up()
        ready = {key: slot for key, slot in self.slots.items() if slot.lined_up}
        clients = {key for key, slot in ready.items() if slot.rank is Rank.CLIENT}
        spare = ready.keys() - clients
        at_work = [item.rank for item in self.running.values()].count(Rank.SPARE)
        if at_work >= (1 if clients else SPARE_SHARE):
            spare = set()
        # Work that nobody waits for has every other turn until one of it is in hand.
        comes_first = spare if self.last is Rank.CLIENT and not at_work else clients
        line = comes_first or clients or spare
        if not line:
            assert item is None
            return
        expected = min(line, key=lambda key: ready[key].place)
        assert item is not None
        assert item.key == expected
        assert item.key not in self.running, "never two reconciles at once for a key"
        slot = self.slots.pop(expected)
        assert item.rank is slot.rank
        self.last = slot.rank
        assert item.causes == slot.causes
        assert item.enqueued_at == slot.due
        assert item.attempts == self.failures.get(expected, 0)
        self.running[expected] = item

    @precondition(lambda self: self.running)
    @rule(data=st.data(), fails=st.booleans())
    def end_reconcile(self, data: st.DataObject, *, fails: bool) -> None:
        """End a running reconcile, well or badly."""
        key = data.draw(st.sampled_from(sorted(self.running)))
        item = self.running[key]
        if fails:
            self.failures[key] = self.failures.get(key, 0) + 1
            now = self.clock.monotonic()
            wait, until = self.waits.get(key, (0.0025, now))
            delay = until - now
            if delay <= 0.0:
                # Only a failure after the whole wait doubles it.
                delay = min(1000.0, 2.0 * wait)
                self.waits[key] = (delay, now + delay)
            assert self.queue.retry(key) == delay
            self.expect_add(key, item.rank, item.causes, delay)
        else:
            self.queue.forget(key)
            self.failures.pop(key, None)
            self.waits.pop(key, None)
        self.queue.done(key)
        del self.running[key]
        slot = self.slots.get(key)
        if slot is not None:
            slot.place = next(self.place)
            slot.lined_up = slot.due <= self.clock.monotonic()

    # -- what holds at any time --------------------------------------------------------------

    @invariant()
    def counters_agree(self) -> None:
        """The counters tell where the keys of the model are."""
        seen = self.queue
        seen._schedule.release_due(self.clock.monotonic())
        self.line_up()
        assert len(self.queue) == len(self.slots)
        counts = seen.counts()
        assert counts["running"] == len(self.running)
        assert counts["locked"] == sum(key in self.running for key in self.slots)
        assert counts["ready"] == sum(slot.lined_up for slot in self.slots.values())
        assert counts["delayed"] == len(self.slots) - counts["locked"] - counts["ready"]

    def teardown(self) -> None:
        """Nothing is lost: every key that was asked for gets its reconcile in the end."""
        for key in list(self.running):
            self.queue.done(key)
        owed = set(self.slots)
        self.clock.move(1000)
        while (item := self.queue.get_nowait()) is not None:
            owed.discard(item.key)
            self.queue.done(item.key)
        assert not owed
        assert len(self.queue) == 0


class TestQueueMachine(QueueMachine.TestCase):  # type: ignore[misc,valid-type]
    """Any order of operations keeps the laws of the model."""

    settings = settings(max_examples=100, stateful_step_count=40, deadline=None)

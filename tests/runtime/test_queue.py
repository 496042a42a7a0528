"""What the work queue promises, one law at a time."""

from __future__ import annotations

import tracemalloc

import pytest

from lean_sandbox.metrics.families import LONGEST_RUNNING, UNFINISHED_WORK
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.runtime.queue import Cause, WorkQueue
from lean_sandbox.turns import Rank
from lean_sandbox.watch.kind import Key
from tests.runtime.hand_clock import HandClock
from tests.runtime.taking import drain, taken

# How many reasons of a key are kept for the log.
MOST_REASONS = 4


def test_a_key_added_many_times_is_handed_out_once(queue: WorkQueue[str]) -> None:
    """Adds of a waiting key merge into one slot."""
    for _ in range(5):
        queue.add("a")
    assert drain(queue) == ["a"]
    assert queue.adds == 1


def test_merged_adds_keep_the_first_distinct_reasons(queue: WorkQueue[str]) -> None:
    """Reasons are for the log: distinct and bounded."""
    queue.add("a", reason="r0")
    queue.add("a", reason="r0")
    for n in range(1, 10):
        queue.add("a", reason=f"r{n}")
    item = queue.get_nowait()
    assert item is not None
    assert item.reasons == tuple(f"r{n}" for n in range(MOST_REASONS))


def test_no_cause_is_lost_among_many_reasons(queue: WorkQueue[str]) -> None:
    """What decides what a reconcile does is kept, whatever else is logged."""
    for n in range(MOST_REASONS):
        queue.add("a", reason=f"r{n}")
    queue.add("a", cause=Cause.CHILD_GONE, reason="member is gone")
    item = queue.get_nowait()
    assert item is not None
    assert item.causes == Cause.EVENT | Cause.CHILD_GONE
    assert "member is gone" not in item.reasons


@pytest.mark.parametrize(
    ("cause", "is_net"),
    [
        (Cause.EVENT, False),
        (Cause.CHILD_GONE, False),
        (Cause.LISTED, False),
        (Cause.REQUEUE, True),
        (Cause.SAFETY_NET, True),
    ],
)
def test_a_reconcile_of_the_safety_net_that_an_event_joins_is_none_any_more(
    queue: WorkQueue[str], cause: Cause, *, is_net: bool
) -> None:
    """What such a reconcile writes is no sign of a lost wake-up, whatever the reasons say."""
    queue.add("a", rank=Rank.SPARE, after_s=10.0, cause=Cause.SAFETY_NET, reason="r")
    queue.add("a", cause=cause, reason="r")
    item = queue.get_nowait()
    assert item is not None
    assert item.is_safety_net is is_net


def test_inside_a_rank_first_in_is_first_out(queue: WorkQueue[str]) -> None:
    """Keys of one rank come in the order they were added, merged ones in their first place."""
    for key in ("a", "b", "c", "a"):
        queue.add(key)
    assert drain(queue) == ["a", "b", "c"]


def test_what_a_client_waits_for_goes_first(queue: WorkQueue[str]) -> None:
    """And keys are a client's unless somebody says otherwise."""
    queue.add("spare", rank=Rank.SPARE)
    queue.add("client")
    assert drain(queue) == ["client", "spare"]


def test_a_raised_key_goes_to_the_end_of_its_new_line(queue: WorkQueue[str]) -> None:
    """Raising moves a key behind those that were there; a lower add does not lower it."""
    queue.add("a", rank=Rank.SPARE)
    queue.add("b", rank=Rank.CLIENT)
    queue.add("a", rank=Rank.CLIENT)
    queue.add("a", rank=Rank.SPARE)
    queue.add("c", rank=Rank.CLIENT)
    assert drain(queue) == ["b", "a", "c"]


def test_a_running_key_is_locked_until_done(queue: WorkQueue[str]) -> None:
    """An add during a reconcile leads to one more reconcile, after done and not before."""
    queue.add("a", reason="first")
    queue.get_nowait()
    queue.add("a", reason="second")
    queue.add("a", reason="third")
    assert queue.get_nowait() is None
    assert queue.counts()["locked"] == 1
    queue.done("a")
    again = queue.get_nowait()
    assert again is not None
    assert again.reasons == ("second", "third")


def test_done_of_a_key_not_worked_on_is_an_error(queue: WorkQueue[str]) -> None:
    """Unlocking twice is a bug that shows."""
    with pytest.raises(KeyError):
        queue.done("a")


# -- what nobody waits for -----------------------------------------------------------------------


def test_under_a_steady_stream_of_clients_spare_keys_have_every_other_turn_of_one_worker(
    queue: WorkQueue[str],
) -> None:
    """With clients' keys never running out the others are served all the same."""
    for n in range(3):
        queue.add(f"spare{n}", rank=Rank.SPARE)
    served = []
    for n in range(6):
        queue.add(f"{n}")
        queue.add(f"{n}-more")
        item = queue.get_nowait()
        assert item is not None
        queue.done(item.key)
        served.append(item.key)
    assert served == ["0", "spare0", "0-more", "spare1", "1", "spare2"]


def test_while_clients_wait_one_spare_key_is_worked_on(clock: HandClock) -> None:
    """That is, while a client's key waits in line for a worker."""
    queue: WorkQueue[str] = WorkQueue(clock, most_running=4)
    for n in range(20):
        queue.add(f"spare{n}", rank=Rank.SPARE)
    for n in range(4):
        queue.add(f"client{n}")
    assert taken(queue) == ["client0", "spare0", "client1", "client2"]
    queue.done("spare0")
    assert taken(queue) == ["spare1"]
    queue.done("client0")
    assert taken(queue) == ["client3"]
    queue.done("client1")
    assert taken(queue) == ["spare2"], "nobody waits who is waited for"


@pytest.mark.parametrize("most", [4, 20])
def test_a_share_is_for_spare_keys_while_no_client_waits(clock: HandClock, most: int) -> None:
    """It is 4, however many workers there are."""
    queue: WorkQueue[str] = WorkQueue(clock, most_running=most)
    for n in range(20):
        queue.add(f"spare{n}", rank=Rank.SPARE)
    assert taken(queue) == [f"spare{n}" for n in range(min(4, most))]


# -- groups ---------------------------------------------------------------------------------------


def by_namespace(clock: HandClock) -> WorkQueue[Key]:
    """Return an empty queue in which namespaces take turns."""
    return WorkQueue(clock, group_of=lambda key: key.namespace)


def test_a_namespace_with_one_key_does_not_wait_for_one_with_thousands(clock: HandClock) -> None:
    """One tenant makes 3,000 claims, another one a moment later: the latter is served next."""
    queue = by_namespace(clock)
    for n in range(3000):
        queue.add(Key("a", f"{n:04}"))
    assert queue.get_nowait() is not None
    queue.add(Key("b", "only"))
    served = [item.key for _ in range(2) if (item := queue.get_nowait()) is not None]
    assert served == [Key("a", "0001"), Key("b", "only")]


def test_namespaces_take_turns_and_keep_their_own_order(clock: HandClock) -> None:
    """As long as two have keys that wait, each gets every other turn."""
    queue = by_namespace(clock)
    for key in ("a1", "a2", "a3", "b1", "b2", "c1"):
        queue.add(Key(key[0], key[1]))
    order = ["".join(item.key) for _ in range(6) if (item := queue.get_nowait()) is not None]
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_the_rank_goes_before_turns(clock: HandClock) -> None:
    """Turns are taken inside a rank only."""
    queue = by_namespace(clock)
    for name in ("1", "2"):
        queue.add(Key("b", name), rank=Rank.SPARE)
        queue.add(Key("a", name))
        queue.add(Key("c", name))
    order = ["".join(item.key) for _ in range(4) if (item := queue.get_nowait()) is not None]
    assert order == ["a1", "b1", "c1", "a2"]


def test_namespaces_that_come_and_go_leave_nothing_behind(clock: HandClock) -> None:
    """What is remembered of turns goes with the last key that waits."""
    queue = by_namespace(clock)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for n in range(4000):
            key = Key(f"tenant-{n}", "only")
            queue.add(key)
            queue.get_nowait()
            queue.done(key)
        assert tracemalloc.get_traced_memory()[0] - before < 64_000
    finally:
        tracemalloc.stop()


# -- closing, counting, bounds --------------------------------------------------------------------


def test_statistics_tell_where_everything_is(clock: HandClock, queue: WorkQueue[str]) -> None:
    """Depth by rank, delayed, running and the durations are counted."""
    clock.move(1000.0)
    queue.add("a")
    queue.add("b")
    queue.add("c")
    queue.add("d", after_s=100)
    clock.move(0.5)
    queue.get_nowait()
    clock.move(2)
    queue.get_nowait()
    clock.move(1)
    assert queue.depths == {Rank.SPARE: 0, Rank.CLIENT: 1}
    counts = queue.counts()
    assert (counts["delayed"], counts["running"], counts["locked"]) == (1, 2, 0)
    found = Exposition()
    queue.collect(found, "sandbox")
    assert found.families[LONGEST_RUNNING.name][1] == [(("sandbox", "sandbox"), 3)]
    assert found.families[UNFINISHED_WORK.name][1] == [(("sandbox", "sandbox"), 4)]
    waited = queue.queue_duration
    assert (sum(waited.counts), waited.total) == (2, 3.0)
    queue.done("a")
    worked = queue.work_duration
    assert worked.total == 3
    assert worked.bounds[0] == 1e-8
    assert len(worked.bounds) == 12
    queue.retry("a")
    assert (queue.adds, queue.retries) == (5, 1)


def grown_bytes(queue: WorkQueue[str], times: int, how: str) -> int:
    """Add one key many times; return the bytes that stay allocated."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for n in range(times):
            if how == "same":
                queue.add("a", reason="event")
            elif how == "earlier":
                queue.add("a", after_s=1e9 - n)
            else:
                queue.add("a", rank=Rank.SPARE)
                queue.add("a", rank=Rank.CLIENT)
                queue.get_nowait()
                queue.done("a")
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("how", ["same", "earlier", "raised"])
def test_adding_one_key_again_and_again_does_not_grow_memory(
    queue: WorkQueue[str], how: str
) -> None:
    """A key costs one slot, however often it is added, pulled forward or raised."""
    assert grown_bytes(queue, 100, how) < 64_000
    assert grown_bytes(queue, 4000, how) < 64_000


def test_a_queued_key_costs_less_than_400_bytes(queue: WorkQueue[str]) -> None:
    """A restart over many objects queues them all: the price of each is bounded."""
    keys = [f"default/sandbox-{n}" for n in range(10_000)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for key in keys:
            queue.add(key, rank=Rank.SPARE, reason="initial")
        cost = (tracemalloc.get_traced_memory()[0] - before) / len(keys)
    finally:
        tracemalloc.stop()
    assert cost < 400


def test_a_queue_that_is_paused_or_closed_takes_nothing(queue: WorkQueue[str]) -> None:
    """What runs may end; what was added to it meanwhile is not handed out any more."""
    queue.is_paused = True
    queue.add("a")
    assert queue.get_nowait() is None
    queue.is_paused = False
    queue.add("a")
    item = queue.get_nowait()
    assert item is not None
    queue.add("a")
    queue.add("left")
    queue.close()
    queue.close()
    queue.add("b")
    queue.retry(item.key)
    queue.done(item.key)
    assert queue.get_nowait() is None
    assert queue.closed.is_set()
    assert queue.adds == 3


def test_each_cause_has_a_bit_of_its_own() -> None:
    """So that what merges loses none."""
    bits = [one.value for one in Cause]
    assert bits == [1 << place for place in range(len(bits))]

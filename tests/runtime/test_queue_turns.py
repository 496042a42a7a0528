"""How the queue divides its turns between namespaces, and what it keeps free for others."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.runtime.queue import WorkQueue
from lean_sandbox.turns import Rank
from lean_sandbox.watch.kind import Key
from tests.runtime.hand_clock import HandClock
from tests.runtime.taking import taken

# An add to one of these namespaces, or what is done next.
STEPS = st.lists(st.sampled_from([*"aaabcd", "take", "take", "take", "end"]), max_size=200)


def new_queue(most: int) -> WorkQueue[Key]:
    """Return an empty queue that works on so many keys at once."""
    return WorkQueue[Key](HandClock(), group_of=lambda key: key.namespace, most_running=most)


def test_no_more_keys_are_handed_out_than_may_run_at_once() -> None:
    """The next one is handed out when one is done."""
    queue = new_queue(2)
    for name in "1234":
        queue.add(Key(f"ns-{name}", "only"))
    first, *others = taken(queue)
    assert len(others) == 2
    queue.done(first)
    assert taken(queue) == [Key("ns-4", "only")]


def test_an_eighth_more_is_for_namespaces_that_nobody_works_on() -> None:
    """A burst never fills the queue: whoever comes with one key is served at once."""
    queue = new_queue(16)
    for number in range(100):
        queue.add(Key("burst", f"{number:03}"))
    assert len(taken(queue)) == 16
    queue.add(Key("single", "1"))
    queue.add(Key("single", "2"))
    assert taken(queue) == [Key("single", "1")]
    queue.done(Key("single", "1"))
    assert taken(queue) == [Key("single", "2")]
    queue.done(Key("burst", "000"))
    assert taken(queue) == []
    queue.done(Key("burst", "001"))
    assert taken(queue) == [Key("burst", "016")]


@pytest.mark.parametrize(("most", "more"), [(1, 1), (15, 1), (16, 2), (50, 6), (100, 12)])
def test_an_eighth_more_is_an_eighth_and_at_least_one(most: int, more: int) -> None:
    """Of many namespaces with one key each, so many beside a burst; the rest waits."""
    queue = new_queue(most)
    for number in range(most + 1):
        queue.add(Key("burst", f"{number:03}"))
    assert len(taken(queue)) == most
    for number in range(more + 1):
        queue.add(Key(f"single-{number}", "1"))
    assert len(taken(queue)) == more


def test_a_single_worker_has_one_more_for_others() -> None:
    """What hangs in one namespace does not stop the others."""
    queue = new_queue(1)
    for name in ("burst", "single", "other"):
        queue.add(Key(name, "1"))
        queue.add(Key(name, "2"))
    assert taken(queue) == [Key("burst", "1"), Key("single", "1")]
    queue.done(Key("single", "1"))
    assert taken(queue) == [Key("other", "1")]


def test_what_is_kept_for_others_goes_by_rank_too() -> None:
    """Among those that come, whoever a client waits for is first."""
    queue = new_queue(7)
    for number in range(9):
        queue.add(Key("burst", f"{number}"))
    assert len(taken(queue)) == 7
    queue.add(Key("late", "1"), rank=Rank.SPARE)
    queue.add(Key("late", "2"), rank=Rank.SPARE)
    assert taken(queue) == [Key("late", "1")]
    queue.done(Key("late", "1"))
    queue.add(Key("single", "1"))
    assert taken(queue) == [Key("single", "1")]


@given(st.sampled_from([1, 2, 8, 9, 16]), STEPS)
def test_a_namespace_waits_for_one_turn_of_each_other_at_most(most: int, steps: list[str]) -> None:
    """In any history: bounded, none idle, and first in first out in each namespace.

    A namespace of which nothing runs sees each other one served once before it is its turn.
    """
    queue = new_queue(most)
    waiting: dict[str, list[Key]] = {name: [] for name in "abcd"}
    running: list[Key] = []
    # Of a namespace that waits: how often each other one was served meanwhile.
    seen: dict[str, Counter[str]] = {name: Counter() for name in "abcd"}
    for number, step in enumerate(steps):
        if step == "end":
            if running:
                queue.done(running.pop(number % len(running)))
            continue
        if step != "take":
            key = Key(step, f"{number}")
            if not waiting[step]:
                seen[step].clear()
            waiting[step].append(key)
            queue.add(key)
            continue
        at_work = {key.namespace for key in running}
        free = [name for name in "abcd" if waiting[name] and name not in at_work]
        item = queue.get_nowait()
        if item is None:
            assert len(running) == most + max(1, most // 8) or not free
            assert len(running) >= most or not any(waiting.values())
            continue
        key = item.key
        assert waiting[key.namespace].pop(0) == key
        running.append(key)
        assert len(running) <= most + max(1, most // 8)
        seen[key.namespace].clear()
        for name in free:
            if name != key.namespace:
                seen[name][key.namespace] += 1
                assert max(seen[name].values()) <= 1
        for name in at_work:
            seen[name].clear()

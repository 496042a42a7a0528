"""The warm queue against a list, under any order of operations."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lean_sandbox.controllers.warm import Counts, WarmQueue
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry
from tests.support.members import mark_of, member_of, running_pods


class Member(NamedTuple):
    """What the model knows of a member."""

    pool: Key
    key: Key
    uid: str
    node: str
    has_address: bool
    is_ready: bool
    mark: str

    @property
    def entry(self) -> SandboxEntry:
        """The member as the cache holds it."""
        return member_of(
            self.pool,
            self.key.name,
            self.node,
            uid=self.uid,
            has_address=self.has_address,
            is_ready=self.is_ready,
            mark=self.mark,
        )


POOLS = (Key("a", "p"), Key("a", "q"), Key("b", "p"))
NODES = ("", "n1", "n2", "n3", "n4", "n5")
NAMES = ("m1", "m2", "m3", "m4", "m5", "m6")
MEMBERS = st.builds(
    lambda pool, name, uid, node, facts, mark: Member(
        pool, Key(pool.namespace, name), f"{name}-{uid}", node, facts[0], facts[1], mark
    ),
    # Most in one pool, for its lines to grow long.
    st.sampled_from((POOLS[0],) * 4 + POOLS),
    st.sampled_from(NAMES),
    st.sampled_from((1, 1, 1, 1, 1, 2)),
    st.sampled_from(NODES[:4]),
    st.sampled_from(((True, True), (True, True), (True, False), (False, False), (False, True))),
    st.sampled_from(("new", "new", "old")),
)


def stage(member: Member) -> int:
    """Return 0 for Ready, 1 for networked, 2 for waiting."""
    return 2 if not member.has_address else 0 if member.is_ready else 1


def pick(line: list[Member]) -> Member | None:
    """Choose by the letter of the rule."""
    if len(line) < 2:
        return line[0] if line else None
    nodes = Counter(member.node for member in line if member.node)
    if not nodes:
        return line[0]
    most = max(nodes.values())
    return next(member for member in line if member.node and nodes[member.node] == most)


class WarmMachine(RuleBasedStateMachine):
    """Handed out once, never lost, the right one, whatever happens."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Key] = []
        self.expected_told: list[Key] = []
        self.queue = self.new_queue()
        # Free members in order of arrival, all pools in one list.
        self.free: list[Member] = []
        self.taken: dict[Key, Member] = {}
        # Takes whose claim does not know what became of them.
        self.in_hand: list[Member] = []

    def new_queue(self) -> WarmQueue:
        """Return a queue that tells of the members that can be taken."""
        queue = WarmQueue(running_pods)
        queue.available.append(self.told.append)
        queue.released.append(self.told.append)
        return queue

    # -- the model ---------------------------------------------------------------------------

    def at(self, pool: Key, *stages: int) -> list[Member]:
        """Return the free members of a pool at some stages, in order."""
        return [member for member in self.free if member.pool == pool and stage(member) in stages]

    def find(self, key: Key) -> int | None:
        """Return where in the list the key is."""
        return next((n for n, member in enumerate(self.free) if member.key == key), None)

    def append(self, member: Member) -> None:
        """Put a member at the end."""
        self.free.append(member)
        if member.has_address:
            self.expected_told.append(member.pool)

    def expect_offer(self, member: Member) -> None:
        """Merge a sight into the model."""
        key = member.key
        uid = member.uid
        taken = self.taken.get(key)
        if taken is not None:
            if (taken.uid, taken.pool) == (uid, member.pool):
                self.taken[key] = member
                return
            del self.taken[key]
        place = self.find(key)
        if place is None:
            self.append(member)
            return
        known = self.free[place]
        if (known.uid, known.pool) == (uid, member.pool):
            self.free[place] = member
            if member.has_address and not known.has_address:
                self.expected_told.append(member.pool)
        else:
            del self.free[place]
            self.append(member)

    # -- the operations ----------------------------------------------------------------------

    @rule(members=st.lists(MEMBERS, min_size=1, max_size=4))
    def offer(self, members: list[Member]) -> None:
        """See members, new or known, as they were or changed."""
        for member in members:
            self.queue.offer(member.entry)
            self.expect_offer(member)

    @precondition(lambda self: self.free)
    @rule(
        data=st.data(),
        node=st.sampled_from(NODES[:4]),
        has_address=st.booleans(),
        is_ready=st.booleans(),
    )
    def change(self, data: st.DataObject, node: str, *, has_address: bool, is_ready: bool) -> None:
        """Change the facts of a free member."""
        old = data.draw(st.sampled_from(self.free))
        self.offer([Member(old.pool, old.key, old.uid, node, has_address, is_ready, old.mark)])

    @rule(pool=st.sampled_from(POOLS), judges=st.booleans())
    def take(self, pool: Key, *, judges: bool) -> None:
        """Take what the rule says comes next; drop the stale ones met before it, and only those."""
        taken = self.queue.acquire(pool, accept=lambda m: not judges or mark_of(m) == "new")
        expected: Member | None = None
        for stages in (0, 1):
            while (expected := pick(self.at(pool, stages))) is not None:
                if not judges or expected.mark == "new":
                    break
                self.free.remove(expected)
            if expected is not None:
                break
        if expected is None and judges:
            for member in self.at(pool, 2):
                if member.mark == "new":
                    break
                self.free.remove(member)
        assert taken == (expected.entry if expected is not None else None)
        if expected is None:
            return
        assert expected.pool == pool
        assert expected.key.namespace == pool.namespace
        assert expected.key not in self.taken, "never two claims for one member"
        self.free.remove(expected)
        self.taken[expected.key] = expected
        self.in_hand.append(expected)

    @rule(member=MEMBERS)
    def reserve(self, member: Member) -> None:
        """Take exactly this one, if it is free."""
        known = next((one for one in self.free if one.key == member.key), None)
        is_free = known is not None and known.uid == member.uid
        assert self.queue.reserve(member.entry) is is_free
        if known is not None and is_free:
            self.free.remove(known)
            self.taken[known.key] = known
            self.in_hand.append(known)

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """Return a take, which may have been forgotten, replaced or ended meanwhile."""
        self.return_(data.draw(st.sampled_from(self.in_hand)))

    def return_(self, member: Member) -> None:
        """Return one take, and compare."""
        self.queue.release(member.entry)
        known = self.taken.get(member.key)
        if known is not None and (known.uid, known.pool) == (member.uid, member.pool):
            self.append(self.taken.pop(member.key))

    def drop(self, key: Key) -> None:
        """Drop what the model has of a key."""
        self.taken.pop(key, None)
        place = self.find(key)
        if place is not None:
            del self.free[place]

    @rule(member=MEMBERS)
    def forget(self, member: Member) -> None:
        """Drop a Sandbox, known or not."""
        self.queue.forget(member.entry)
        known = [m for m in [*self.taken.values(), *self.free] if m.key == member.key]
        if known and known[0].uid == member.uid:
            self.drop(member.key)

    @rule(pool=st.sampled_from(POOLS))
    def forget_pool(self, pool: Key) -> None:
        """Delete a pool."""
        self.queue.forget_pool(pool)
        self.free = [member for member in self.free if member.pool != pool]
        self.taken = {key: m for key, m in self.taken.items() if m.pool != pool}

    @rule()
    def restart(self) -> None:
        """Rebuild from what the server has: the same members, all of them free again."""
        members = sorted([*self.free, *self.taken.values()], key=lambda m: m.key)
        self.queue = self.new_queue()
        self.free = []
        self.taken = {}
        self.in_hand = []
        for member in members:
            self.queue.offer(member.entry)
            self.expect_offer(member)
        assert self.free == members

    # -- what holds at any time --------------------------------------------------------------

    @invariant()
    def counters_agree(self) -> None:
        """Every member is counted once, in its pool; a pool without members is not kept."""
        everyone = [*self.free, *self.taken.values()]
        assert set(self.queue._pools) == {member.pool for member in everyone}
        for pool in POOLS:
            expected = Counts(
                ready=len(self.at(pool, 0)),
                networked=len(self.at(pool, 1)),
                waiting=len(self.at(pool, 2)),
                acquired=sum(member.pool == pool for member in self.taken.values()),
            )
            assert self.queue.counts(pool) == expected
            assert self.queue.to_take(pool) == len(self.at(pool, 0, 1))

    @invariant()
    def waiters_were_told(self) -> None:
        """Exactly when a member became available."""
        assert self.told == self.expected_told

    def teardown(self) -> None:
        """Nothing is lost: every member that is free comes out, each once, in order."""
        for pool in POOLS:
            while self.at(pool, 0, 1):
                self.take(pool, judges=False)
            assert self.queue.acquire(pool) is None


class TestWarmMachine(WarmMachine.TestCase):  # type: ignore[misc,valid-type]
    """Any order of operations keeps the laws of the list."""

    settings = settings(max_examples=75, stateful_step_count=40, deadline=None)


@pytest.mark.claim_case(120)
@pytest.mark.parametrize("seed", range(4))
def test_the_laws_hold_over_a_long_life(seed: int) -> None:
    """Fifty members on five nodes, thousands of changes: everything is swept many times."""
    rng = random.Random(seed)  # noqa: S311
    machine = WarmMachine()

    def some() -> Member:
        pool = POOLS[0] if rng.random() < 0.9 else rng.choice(POOLS)
        name = f"m{rng.randrange(50)}"
        facts = rng.random() < 0.9, rng.random() < 0.6
        mark = "old" if rng.random() < 0.05 else "new"
        return Member(pool, Key(pool.namespace, name), name, rng.choice(NODES), *facts, mark=mark)

    for step in range(1_500):
        machine.offer([some(), some()])
        machine.take(POOLS[0], judges=rng.random() < 0.5)
        # Nearly all come back, so that the pool stays full.
        while len(machine.in_hand) > 5:
            taken = machine.in_hand.pop(rng.randrange(5))
            if rng.random() < 0.1:
                machine.forget(taken)
            else:
                machine.return_(taken)
        machine.forget(some())
        if step % 10 == 0:
            machine.counters_agree()
    machine.waiters_were_told()
    machine.teardown()

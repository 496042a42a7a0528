"""Claims that wait for members: whom to wake, under any order of arrivals, reconciles and ends."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lean_sandbox.controllers.claim.waiting import WaitingClaims
from lean_sandbox.watch.kind import Key

POOLS = (Key("ns", "p"), Key("ns", "q"))
CLAIMS = tuple(Key("ns", f"c{number}") for number in range(6))
# Some were made in the same second.
MADE = {claim: f"2026-01-01T00:00:0{number // 2}Z" for number, claim in enumerate(CLAIMS)}
claims = st.sampled_from(CLAIMS)
pools = st.sampled_from((POOLS[0],) * 3 + POOLS)


class WaitingMachine(RuleBasedStateMachine):
    """The model: members by pool, and which arrivals each waiting claim has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.members = dict.fromkeys(POOLS, 0)
        self.arrivals = dict.fromkeys(POOLS, 0)
        # By claim: its pool, and the arrivals there when it last left a member untaken.
        self.waits: dict[Key, tuple[Key, int]] = {}
        self.awake: dict[Key, Key] = {}
        self.woken: list[Key] = []
        self.waiting = WaitingClaims(self.woken.append, self.members.__getitem__)

    def note_wakes(self) -> None:
        """Who is woken has not left these very members; no older one that left none sleeps."""
        for claim in self.woken:
            pool, tried = self.waits[claim]
            assert claim not in self.awake
            assert tried < self.arrivals[pool]
            self.awake[claim] = pool
            for other, (theirs, left) in self.waits.items():
                if theirs == pool and other not in self.awake and left < 0 and tried < 0:
                    assert (MADE[claim], claim) < (MADE[other], other)
        self.woken.clear()

    @rule(pool=pools)
    def member_comes(self, pool: Key) -> None:
        """One more member can be taken."""
        self.members[pool] += 1
        self.arrivals[pool] += 1
        self.waiting.available(pool)
        self.note_wakes()

    @rule(pool=pools)
    def member_is_given_back(self, pool: Key) -> None:
        """A claim that nobody woke had a member in hand, and failed."""
        self.members[pool] += 1
        self.waiting.level(pool)
        self.note_wakes()

    @rule(pool=pools)
    def member_goes(self, pool: Key) -> None:
        """A member is deleted, or a claim that nobody woke takes it."""
        self.members[pool] = max(0, self.members[pool] - 1)

    @rule(claim=claims, pool=pools, takes=st.booleans(), comes_meanwhile=st.booleans())
    def claim_is_served(self, *, claim: Key, pool: Key, takes: bool, comes_meanwhile: bool) -> None:
        """A reconcile ends with a member in hand, or without, and then the claim waits on."""
        seen = self.arrivals[pool]
        tried = self.waiting.arrivals
        is_served = takes and self.members[pool] > 0
        if is_served:
            self.members[pool] -= 1
        if comes_meanwhile:
            self.member_comes(pool)
        self.awake.pop(claim, None)
        if is_served:
            self.waits.pop(claim, None)
            self.waiting.forget(claim)
        else:
            spoken_for = sum(theirs == pool for theirs in self.awake.values())
            before = self.waits.get(claim)
            left = before[1] if before is not None and before[0] == pool else -1
            if self.members[pool] > spoken_for:
                left = seen
            self.waits[claim] = (pool, left)
            self.waiting.wait(claim, pool, MADE[claim], tried=tried)
        self.note_wakes()

    @rule(claim=claims)
    def claim_ends(self, claim: Key) -> None:
        """A claim is deleted, or got a Sandbox of its own."""
        self.waits.pop(claim, None)
        self.awake.pop(claim, None)
        self.waiting.forget(claim)
        self.note_wakes()

    @invariant()
    def no_member_is_left_while_a_claim_sleeps(self) -> None:
        """As many are awake as there are members, but for those that have left these very ones."""
        for pool in POOLS:
            awake = sum(theirs == pool for theirs in self.awake.values())
            asleep = [
                left
                for claim, (theirs, left) in self.waits.items()
                if theirs == pool and claim not in self.awake
            ]
            if any(left < self.arrivals[pool] for left in asleep):
                assert awake >= self.members[pool]

    @invariant()
    def nothing_is_kept_of_others(self) -> None:
        """It holds those that wait, and none besides."""
        assert self.waiting._pools.keys() == self.waits.keys()


class TestWaitingMachine(WaitingMachine.TestCase):  # type: ignore[misc,valid-type]
    """Any order keeps the laws."""

    settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_each_member_wakes_one_claim() -> None:
    """Three hundred members for three hundred claims are three hundred wakes, oldest first."""
    pool = Key("ns", "p")
    woken = list[Key]()
    free = [0]
    waiting = WaitingClaims(woken.append, lambda _: free[0])
    names = [Key("ns", f"c{number:03}") for number in range(300)]
    for number, name in enumerate(reversed(names)):
        waiting.wait(name, pool, f"2026-01-01T00:00:{59 - number // 10:02}Z", tried=0)
    for name in names:
        free[0] = 1
        waiting.available(pool)
        assert woken[-1] == name
        free[0] = 0
        waiting.forget(name)
    assert len(woken) == 300
    assert not waiting._pools

"""The warm queue: the cases of the claim controller, exclusivity, size and cost."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Iterator

import pytest

from lean_sandbox.controllers.warm import Counts, Member, Take, WarmQueue
from lean_sandbox.watch.kind import Key

POOL = Key("default", "pool")


def member(
    name: str,
    node: str = "",
    *,
    pool: Key = POOL,
    uid: str = "",
    has_address: bool = True,
    is_ready: bool = True,
    mark: str = "",
) -> Member:
    """Return a member, Ready unless told otherwise."""
    return Member(
        pool, Key(pool.namespace, name), uid or f"uid-{name}", node, has_address, is_ready, mark
    )


def filled(*members: Member) -> WarmQueue:
    """Return a queue that was offered these members in this order."""
    queue = WarmQueue()
    for one in members:
        queue.offer(one)
    return queue


def drain(queue: WarmQueue, pool: Key = POOL) -> Iterator[str]:
    """Take all there is; yield the names."""
    while (taken := queue.take(pool).member) is not None:
        yield taken.key.name


# -- which one ---------------------------------------------------------------------------------


@pytest.mark.claim_case(120)
def test_members_without_nodes_are_taken_in_order_of_arrival() -> None:
    """With nothing to choose by, first come is first served."""
    assert list(drain(filled(member("m1"), member("m2"), member("m3")))) == ["m1", "m2", "m3"]


@pytest.mark.claim_case(120)
def test_the_fullest_node_gives_its_earliest_member() -> None:
    """A node with two members gives before one with one; then the earliest of equals."""
    queue = filled(member("m1", "n1"), member("m2", "n2"), member("m3", "n2"))
    assert list(drain(queue)) == ["m2", "m1", "m3"]


def test_of_equally_full_nodes_the_one_with_the_earliest_member_gives() -> None:
    """Ties are broken by the place in line, not by the name of the node."""
    queue = filled(member("m1", "z"), member("m2", "a"), member("m3", "a"), member("m4", "z"))
    assert list(drain(queue)) == ["m1", "m2", "m3", "m4"]


def test_a_member_without_a_node_comes_after_all_that_have_one() -> None:
    """The rule counts nodes; only where none is known does the head of the line count."""
    queue = filled(member("m1"), member("m2"), member("m3", "n1"))
    assert list(drain(queue)) == ["m3", "m1", "m2"]


def test_ready_comes_before_networked_whatever_the_nodes() -> None:
    """An older member that is not Ready waits behind a younger Ready one, but is not lost."""
    queue = filled(
        member("old", "n1", is_ready=False),
        member("older", "n1", is_ready=False),
        member("young", "n2"),
    )
    assert list(drain(queue)) == ["young", "old", "older"]


def test_nodes_are_counted_among_members_of_the_same_stage() -> None:
    """Members that are not Ready do not make their node fuller for the choice of a Ready one."""
    queue = filled(
        member("m1", "n1"),
        member("m2", "n2"),
        member("m3", "n2", is_ready=False),
        member("m4", "n2", has_address=False),
    )
    assert queue.take(POOL).member == member("m1", "n1")


def test_a_networked_member_beats_waiting_for_another() -> None:
    """One that is not Ready is handed out at once although another may become Ready soon."""
    queue = filled(member("m1", has_address=False), member("m2", is_ready=False))
    assert queue.take(POOL) == Take(member("m2", is_ready=False), waiting=1)


def test_a_member_without_an_address_is_only_counted() -> None:
    """It is never handed out, not even when it claims to be Ready, and keeps its place."""
    queue = filled(member("m1", has_address=False), member("m2", has_address=False))
    assert queue.take(POOL) == Take(None, waiting=2)
    queue.offer(member("m2", "n2"))
    queue.offer(member("m1", "n1"))
    assert list(drain(queue)) == ["m1", "m2"]


def test_an_empty_pool_has_nobody_to_wait_for() -> None:
    """Unknown, emptied and never filled pools look the same: no member, nobody waiting."""
    queue = filled(member("m1"))
    assert list(drain(queue)) == ["m1"]
    assert queue.take(POOL) == queue.take(Key("default", "other")) == Take(None, 0)


@pytest.mark.claim_case(120)
def test_an_offer_refreshes_in_place() -> None:
    """A second sight keeps the turn and brings the node, both when it appears and when it goes."""
    queue = filled(member("m1"), member("m2", "n1"), member("m3"))
    queue.offer(member("m1", "n1", mark="new"))
    assert queue.counts(POOL) == Counts(ready=3)
    assert queue.take(POOL).member == member("m1", "n1", mark="new")
    queue.offer(member("m2"))
    assert list(drain(queue)) == ["m2", "m3"]


def test_a_pool_gives_only_its_own_members() -> None:
    """Not those of another pool or of its namesake elsewhere, nor for a name without namespace."""
    elsewhere = Key("other", "pool")
    queue = filled(member("m1", pool=elsewhere), member("m1", pool=Key("default", "second")))
    assert queue.take(POOL) == queue.take(Key("", "pool")) == Take(None, 0)
    assert queue.take(elsewhere).member == member("m1", pool=elsewhere)


@pytest.mark.claim_case(120)
def test_a_pool_has_no_members_in_other_namespaces() -> None:
    """Such an offer is a mistake of the caller and changes nothing."""
    queue = WarmQueue()
    with pytest.raises(ValueError, match="cannot be a member"):
        queue.offer(Member(POOL, Key("other", "m1"), "uid"))
    assert queue.pools() == []


def test_a_member_that_changes_pools_goes_along() -> None:
    """Free, it joins the end of the new line; taken, it comes back there."""
    second = Key("default", "second")
    queue = filled(member("m1"), member("m2"), member("m3", pool=second))
    queue.offer(member("m1", pool=second))
    taken = queue.take(POOL).member
    assert taken == member("m2")
    queue.offer(member("m2", pool=second))
    assert (queue.counts(POOL), queue.counts(second)) == (Counts(), Counts(ready=2, taken=1))
    queue.give_back(taken)
    assert list(drain(queue, second)) == ["m3", "m1", "m2"]


# -- accepting ---------------------------------------------------------------------------------


def test_a_refused_member_is_dropped_and_the_next_is_judged() -> None:
    """Stale members go for good, in any stage, until they are offered again."""
    queue = filled(
        member("m1", mark="old"),
        member("m2", mark="old", is_ready=False),
        member("m3", mark="old", has_address=False),
    )

    def accept(one: Member) -> bool:
        return one.mark == "new"

    assert queue.take(POOL, accept=accept) == Take(None, waiting=0)
    assert queue.pools() == []
    queue.offer(member("m2", mark="new"))
    assert queue.take(POOL, accept=accept).member == member("m2", mark="new")
    assert queue.statistics().refused == 3


def test_waiting_members_are_judged_up_to_the_first_that_is_accepted() -> None:
    """Whether to wait needs one of them; the others are judged when their turn comes."""
    queue = filled(*(member(f"m{n}", mark=f"{n}", has_address=False) for n in range(10)))
    judged: list[str] = []

    def accept(one: Member) -> bool:
        judged.append(one.mark)
        return one.mark == "3"

    assert queue.take(POOL, accept=accept) == Take(None, waiting=7)
    assert judged == ["0", "1", "2", "3"]


def test_a_judge_that_fails_costs_no_member() -> None:
    """The member it was asked about stays where it is."""
    queue = filled(member("m1"), member("m2"))

    def accept(_: Member) -> bool:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        queue.take(POOL, accept=accept)
    assert list(drain(queue)) == ["m1", "m2"]


# -- taken, given back, adopted ----------------------------------------------------------------


def test_three_claims_for_two_members_get_two() -> None:
    """Nobody gets what another has in hand."""
    queue = filled(member("m1"), member("m2"))
    got = [queue.take(POOL).member for _ in range(3)]
    assert got == [member("m1"), member("m2"), None]
    assert queue.counts(POOL) == Counts(taken=2)


def test_a_member_given_back_joins_the_end_with_its_latest_facts() -> None:
    """A claim that could not read or write it leaves it to others, once."""
    queue = filled(member("m1"), member("m2"))
    taken = queue.take(POOL).member
    assert taken is not None
    queue.offer(member("m1", mark="new"))
    assert queue.counts(POOL) == Counts(ready=1, taken=1)
    queue.give_back(taken)
    queue.give_back(taken)
    assert queue.counts(POOL) == Counts(ready=2)
    assert queue.take(POOL).member == member("m2")
    assert queue.take(POOL).member == member("m1", mark="new")


def test_a_forgotten_member_does_not_come_back() -> None:
    """Gone while free or while in hand, it is gone; giving it back is no error."""
    queue = filled(member("m1"), member("m2"))
    taken = queue.take(POOL).member
    assert taken is not None
    for one in (member("m1"), member("m2"), member("never")):
        queue.forget(one.key, one.uid)
    queue.give_back(taken)
    queue.done(taken)
    assert queue.pools() == []
    assert queue.statistics().adopted == 0


@pytest.mark.claim_case(120)
def test_forgetting_one_in_the_middle_leaves_the_others() -> None:
    """The order of the rest stays, and an old uid does not hit the successor."""
    queue = filled(member("m1"), member("m2"), member("m3"))
    queue.forget(Key("default", "m2"), "uid-m2")
    queue.forget(Key("default", "m3"), "another")
    assert list(drain(queue)) == ["m1", "m3"]


def test_a_successor_of_the_same_name_is_another_member() -> None:
    """It is free at the end of the line, whatever becomes of the one before."""
    queue = filled(member("m1"), member("m2"))
    taken = queue.take(POOL).member
    assert taken is not None
    queue.offer(member("m1", uid="second"))
    queue.give_back(taken)
    queue.done(taken)
    queue.forget(taken.key, taken.uid)
    assert queue.counts(POOL) == Counts(ready=2)
    assert list(drain(queue)) == ["m2", "m1"]


def test_an_adopted_member_is_not_revived_by_old_news() -> None:
    """What the watch says of the time before the adoption does not make the member free."""
    queue = filled(member("m1"))
    taken = queue.take(POOL).member
    assert taken is not None
    queue.done(taken)
    queue.offer(member("m1", mark="late"))
    assert queue.take(POOL) == Take(None, 0)
    assert (queue.statistics().adopted, queue.statistics().outdated) == (1, 1)
    queue.forget(taken.key, taken.uid)
    assert queue.statistics().adopted == 0
    queue.offer(member("m1", mark="released"))
    assert queue.take(POOL).member == member("m1", mark="released")


def test_a_successor_of_an_adopted_member_is_free() -> None:
    """The memory of an adoption is of one uid."""
    queue = filled(member("m1"))
    queue.done(member("m1"))
    queue.offer(member("m1", uid="second"))
    assert queue.take(POOL).member == member("m1", uid="second")
    assert queue.statistics().adopted == 0


def test_an_adoption_finished_after_a_restart_needs_no_take() -> None:
    """A claim that already names a member adopts it; no other claim is offered it."""
    queue = filled(member("m1"), member("m2"))
    queue.done(member("m1", uid="another"))
    queue.done(member("m1"))
    assert list(drain(queue)) == ["m2"]


def test_the_memory_of_adoptions_is_bounded() -> None:
    """If the watch never tells, the oldest are dropped."""
    queue = WarmQueue(max_adopted=10)
    for n in range(100):
        queue.offer(member(f"m{n}"))
        queue.done(member(f"m{n}"))
    assert queue.statistics().adopted == 10
    queue.offer(member("m99"))
    queue.offer(member("m0"))
    assert list(drain(queue)) == ["m0"]


@pytest.mark.claim_case(120)
def test_a_deleted_pool_is_forgotten_with_all_its_members() -> None:
    """Free and taken ones; other pools keep theirs; a pool of the same name starts anew."""
    second = Key("default", "second")
    queue = filled(
        member("m1"),
        member("m2", "n1", is_ready=False),
        member("m3", has_address=False),
        member("m4"),
        member("s1", pool=second),
        member("s2", pool=second),
    )
    taken, kept = queue.take(POOL).member, queue.take(second).member
    assert taken is not None
    assert kept is not None
    queue.forget_pool(POOL)
    queue.forget_pool(POOL)
    queue.give_back(taken)
    queue.give_back(kept)
    assert queue.pools() == [second]
    assert list(drain(queue, second)) == ["s2", "s1"]
    queue.offer(member("m3"))
    assert list(drain(queue)) == ["m3"]


# -- waking ------------------------------------------------------------------------------------


def test_a_pool_is_announced_for_each_member_that_can_be_taken_now() -> None:
    """When an address appears and when a member comes back; not for what changes nothing."""
    told: list[Key] = []
    queue = WarmQueue(on_available=told.append)
    steps = [
        (member("m1", has_address=False), 0),
        (member("m1", "n1", has_address=False), 0),
        (member("m1", "n1", is_ready=False), 1),
        (member("m1", "n1"), 1),
        (member("m1", "n2"), 1),
        (member("m2"), 2),
    ]
    for offered, expected in steps:
        queue.offer(offered)
        assert told == [POOL] * expected
    taken = queue.take(POOL).member
    assert taken is not None
    queue.offer(taken)
    assert len(told) == 2
    queue.give_back(taken)
    assert len(told) == 3


# -- size and cost -----------------------------------------------------------------------------


def test_no_member_is_dropped_however_many_there_are() -> None:
    """The queue has no capacity: fifty thousand go in, each comes out once."""
    queue = filled(*(member(f"m{n}", f"n{n % 7}") for n in range(50_000)))
    assert queue.counts(POOL) == Counts(ready=50_000)
    assert len(set(drain(queue))) == 50_000


@pytest.mark.parametrize("nodes", [0, 3, 2_000])
@pytest.mark.parametrize("size", [500, 10_000])
def test_choosing_does_not_scan(size: int, nodes: int) -> None:
    """What is looked at per operation is a small constant, for any size and number of nodes."""
    rng = random.Random(1)  # noqa: S311
    queue = WarmQueue()
    operations = 0

    def some(n: int) -> Member:
        node = f"n{rng.randrange(nodes)}" if nodes else ""
        return member(f"m{n}", node, is_ready=rng.random() < 0.5)

    for n in range(size):
        queue.offer(some(n))
    operations += size
    for _ in range(size):
        taken = queue.take(POOL).member
        assert taken is not None
        # Churn in the middle of the lines, which leaves the most leftovers.
        queue.offer(some(rng.randrange(size)))
        queue.forget(Key("default", f"m{rng.randrange(size)}"), "another")
        (queue.give_back if rng.random() < 0.9 else queue.done)(taken)
        operations += 4
    assert queue.statistics().inspected < 3 * operations


def test_one_take_looks_at_the_member_it_hands_out() -> None:
    """Ten thousand wait, ten thousand are not Ready: none of them is looked at for a Ready one."""
    queue = filled(
        *(member(f"w{n}", has_address=False) for n in range(10_000)),
        *(member(f"x{n}", f"n{n % 9}", is_ready=False) for n in range(10_000)),
        *(member(f"r{n}") for n in range(100)),
    )
    before = queue.statistics().inspected
    assert queue.take(POOL).waiting == 10_000
    # Once to choose it, once to take it out.
    assert queue.statistics().inspected <= before + 2


def test_leftovers_stay_few() -> None:
    """Members that flap between stages and nodes leave no trail."""
    queue = filled(*(member(f"m{n}", "n0") for n in range(50)))
    for turn in range(200):
        for n in range(0, 50, 7):
            queue.offer(member(f"m{n}", f"n{turn % 3}", is_ready=turn % 2 == 0))
        queue.take(Key("default", "other"))
    held = queue._pools[POOL]
    stages = [stage for stage in held._stages if stage is not None]
    kept = sum(len(line.heap) for stage in stages for line in stage._lines.values())
    assert kept <= 2 * 50 + 17 * 6
    assert sorted(drain(queue)) == sorted(f"m{n}" for n in range(50))
    assert queue.counts(POOL) == Counts(taken=50)


def test_a_member_that_comes_back_again_and_again_stands_in_line_once() -> None:
    """Each return leaves a copy behind that looks valid; it is handed out and dropped only once."""
    queue = filled(member("m1"), member("m2"), member("m3", is_ready=False))
    for turn in range(101):
        queue.offer(member("m2", is_ready=turn % 2 == 0))
    lines = [
        line
        for stage in queue._pools[POOL]._stages
        if stage is not None
        for line in stage._lines.values()
    ]
    assert all(len(line.heap) <= 2 * line.size + 16 for line in lines)
    assert list(drain(queue)) == ["m1", "m2", "m3"]
    for name in ("m1", "m2", "m3"):
        queue.give_back(member(name))
    for turn in range(11):
        queue.offer(member("m2", is_ready=turn % 2 == 0))
    queue.forget_pool(POOL)
    assert queue.pools() == []


@pytest.mark.parametrize(("nodes", "limit"), [(100, 200), (20_000, 450)])
def test_a_free_member_costs_a_few_hundred_bytes(nodes: int, limit: int) -> None:
    """Besides the Member: about 140 bytes, and 350 where each is alone on its node."""
    names = [f"n{n}" for n in range(nodes)]
    members = [member(f"m{n}", names[n % nodes]) for n in range(20_000)]
    gc.collect()
    tracemalloc.start()
    queue = WarmQueue()
    for one in members:
        queue.offer(one)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert queue.counts(POOL).ready == len(members)
    assert used / len(members) < limit


def test_pools_leave_nothing_behind() -> None:
    """Thousands of pools come and go, emptied in every way, and nothing grows."""
    queue = WarmQueue(max_adopted=16)

    def live(numbers: range) -> None:
        for n in numbers:
            pool = Key("default", f"p{n}")
            first = member(f"m{n}", f"n{n}", pool=pool)
            second = member(f"x{n}", pool=pool, has_address=False)
            queue.offer(first)
            queue.offer(second)
            taken = queue.take(pool).member
            assert taken is not None
            if n % 3 == 0:
                queue.done(taken)
            if n % 3 == 1:
                queue.give_back(taken)
                queue.forget_pool(pool)
            queue.forget(first.key, first.uid)
            queue.forget(second.key, second.uid)

    live(range(2_000))
    gc.collect()
    tracemalloc.start()
    live(range(2_000, 12_000))
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert (queue.pools(), queue._free, queue._taken, len(queue._adopted)) == ([], {}, {}, 0)
    assert grown < 20_000

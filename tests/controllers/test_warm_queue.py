"""The warm queue: the cases of the claim controller, exclusivity, size and cost."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from lean_sandbox.controllers.warm import Counts, WarmQueue, pool_of
from lean_sandbox.model.meta import OwnerReference, controller_reference
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry
from tests.support.members import mark_of, member_of, running_pods
from tests.support.names import REF_HASH, WARM_POOL

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
) -> SandboxEntry:
    """Return a member, Ready unless told otherwise."""
    return member_of(
        pool, name, node, uid=uid, has_address=has_address, is_ready=is_ready, mark=mark
    )


def filled(*members: SandboxEntry) -> WarmQueue:
    """Return a queue that was offered these members in this order."""
    queue = WarmQueue(running_pods)
    for one in members:
        queue.offer(one)
    return queue


def drain(queue: WarmQueue, pool: Key = POOL) -> Iterator[str]:
    """Take all there is; yield the names."""
    while (taken := queue.acquire(pool)) is not None:
        yield taken.key.name


# -- who can be taken --------------------------------------------------------------------------

GROUP = "extensions.agents.x-k8s.io"


def found_pool(**fields: Any) -> str | None:
    """Return the pool that a Sandbox can be taken from."""
    defaults: dict[str, Any] = {
        "key": Key("default", "m1"),
        "uid": "u",
        "version": 1,
        "generation": 1,
        "is_deleting": False,
        "labels": {WARM_POOL: "", REF_HASH: ""},
        "owner": controller_reference("SandboxWarmPool", "pool", "x", f"{GROUP}/v1"),
    }
    found = pool_of(SandboxEntry(**{**defaults, **fields}))
    return found.name if found is not None else None


@pytest.mark.claim_case(61, 62, 91)
def test_only_healthy_members_of_a_pool_can_be_taken() -> None:
    """Claim cases 61, 62, 91: version, uid and label values do not matter; the rest does."""
    old = OwnerReference(f"{GROUP}/v1alpha1", "SandboxWarmPool", "pool", "other", controller=True)
    assert found_pool() == found_pool(owner=old) == "pool"
    assert found_pool(is_deleting=True) is None
    assert found_pool(owner=None) is None
    for api_version, kind in (("apps/v1", "ReplicaSet"), ("apps/v1", "SandboxWarmPool")):
        assert found_pool(owner=controller_reference(kind, "pool", "x", api_version)) is None
    claim = controller_reference("SandboxClaim", "pool", "x", f"{GROUP}/v1beta1")
    assert found_pool(owner=claim) is None
    assert found_pool(labels={WARM_POOL: "x"}) is None
    assert found_pool(labels={REF_HASH: "x"}) is None
    assert found_pool(labels=None) is None


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
    assert queue.acquire(POOL) == member("m1", "n1")


def test_a_networked_member_beats_waiting_for_another() -> None:
    """One that is not Ready is handed out at once although another may become Ready soon."""
    queue = filled(member("m1", has_address=False), member("m2", is_ready=False))
    assert queue.acquire(POOL) == member("m2", is_ready=False)
    assert queue.counts(POOL) == Counts(waiting=1, acquired=1)


def test_a_member_without_an_address_is_only_counted() -> None:
    """It is never handed out, not even when it claims to be Ready, and keeps its place."""
    queue = filled(member("m1", has_address=False), member("m2", has_address=False))
    assert queue.acquire(POOL) is None
    assert queue.counts(POOL) == Counts(waiting=2)
    queue.offer(member("m2", "n2"))
    queue.offer(member("m1", "n1"))
    assert list(drain(queue)) == ["m1", "m2"]


def test_an_empty_pool_has_nobody_to_wait_for() -> None:
    """Unknown, emptied and never filled pools look the same: no member, nobody waiting."""
    queue = filled(member("m1"))
    assert list(drain(queue)) == ["m1"]
    assert queue.acquire(POOL) is queue.acquire(Key("default", "other")) is None
    assert queue.counts(POOL) == Counts(acquired=1)


@pytest.mark.claim_case(120)
def test_an_offer_refreshes_in_place() -> None:
    """A second sight keeps the turn and brings the node, both when it appears and when it goes."""
    queue = filled(member("m1"), member("m2", "n1"), member("m3"))
    queue.offer(member("m1", "n1", mark="new"))
    assert queue.counts(POOL) == Counts(ready=3)
    assert queue.acquire(POOL) == member("m1", "n1", mark="new")
    queue.offer(member("m2"))
    assert list(drain(queue)) == ["m2", "m3"]


def test_a_pool_gives_only_its_own_members() -> None:
    """Not those of another pool or of its namesake elsewhere, nor for a name without namespace."""
    elsewhere = Key("other", "pool")
    queue = filled(member("m1", pool=elsewhere), member("m1", pool=Key("default", "second")))
    assert queue.acquire(POOL) is queue.acquire(Key("", "pool")) is None
    assert queue.acquire(elsewhere) == member("m1", pool=elsewhere)


def test_a_member_that_changes_pools_goes_along() -> None:
    """Free or taken, it joins the end of the new line; giving it back changes nothing there."""
    second = Key("default", "second")
    queue = filled(member("m1"), member("m2"), member("m3", pool=second))
    queue.offer(member("m1", pool=second))
    taken = queue.acquire(POOL)
    assert taken == member("m2")
    queue.offer(member("m2", pool=second))
    assert (queue.counts(POOL), queue.counts(second)) == (Counts(), Counts(ready=3))
    queue.release(taken)
    assert list(drain(queue, second)) == ["m3", "m1", "m2"]


# -- accepting ---------------------------------------------------------------------------------


def test_a_refused_member_is_dropped_and_the_next_is_judged() -> None:
    """Stale members go for good, in any stage, until they are offered again."""
    queue = filled(
        member("m1", mark="old"),
        member("m2", mark="old", is_ready=False),
        member("m3", mark="old", has_address=False),
    )

    def accept(one: SandboxEntry) -> bool:
        return mark_of(one) == "new"

    assert queue.acquire(POOL, accept=accept) is None
    assert not queue._pools
    queue.offer(member("m2", mark="new"))
    assert queue.acquire(POOL, accept=accept) == member("m2", mark="new")


def test_waiting_members_are_judged_up_to_the_first_that_is_accepted() -> None:
    """Whether to wait needs one of them; the others are judged when their turn comes."""
    queue = filled(*(member(f"m{n}", mark=f"{n}", has_address=False) for n in range(10)))
    judged: list[str] = []

    def accept(one: SandboxEntry) -> bool:
        judged.append(mark_of(one))
        return mark_of(one) == "3"

    assert queue.acquire(POOL, accept=accept) is None
    assert queue.counts(POOL) == Counts(waiting=7)
    assert judged == ["0", "1", "2", "3"]


def test_a_judge_that_fails_costs_no_member() -> None:
    """The member it was asked about stays where it is."""
    queue = filled(member("m1"), member("m2"))

    def accept(_: SandboxEntry) -> bool:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        queue.acquire(POOL, accept=accept)
    assert list(drain(queue)) == ["m1", "m2"]


# -- taken, given back, gone -------------------------------------------------------------------


def test_three_claims_for_two_members_get_two() -> None:
    """Nobody gets what another has in hand."""
    queue = filled(member("m1"), member("m2"))
    got = [queue.acquire(POOL) for _ in range(3)]
    assert got == [member("m1"), member("m2"), None]
    assert queue.counts(POOL) == Counts(acquired=2)


def test_a_member_given_back_joins_the_end_with_its_latest_facts() -> None:
    """A claim that could not read or write it leaves it to others, once."""
    queue = filled(member("m1"), member("m2"))
    taken = queue.acquire(POOL)
    assert taken is not None
    queue.offer(member("m1", mark="new"))
    assert queue.counts(POOL) == Counts(ready=1, acquired=1)
    queue.release(taken)
    queue.release(taken)
    assert queue.counts(POOL) == Counts(ready=2)
    assert queue.acquire(POOL) == member("m2")
    assert queue.acquire(POOL) == member("m1", mark="new")


def test_a_forgotten_member_does_not_come_back() -> None:
    """Gone while free or while in hand, it is gone; giving it back is no error."""
    queue = filled(member("m1"), member("m2"))
    taken = queue.acquire(POOL)
    assert taken is not None
    for one in (member("m1"), member("m2"), member("never")):
        queue.forget(one)
    queue.release(taken)
    assert not queue._pools


def test_a_refused_member_is_not_handed_out_and_is_remembered_until_it_is_gone() -> None:
    """It may be tried again once it has changed; what is no member is not remembered."""
    one = member("m1", uid="u1")
    other = member("m1", uid="u2")
    queue = filled(one)
    queue.refuse(other)
    assert not queue.is_refused(other)
    queue.refuse(one)
    assert list(drain(queue)) == []
    assert queue.is_refused(one)
    queue.offer(one)
    assert list(drain(queue)) == ["m1"]
    assert queue.is_refused(one)
    queue.forget(one)
    assert not queue.is_refused(one)
    queue.refuse(one)
    assert not queue.is_refused(one)


@pytest.mark.claim_case(120)
def test_forgetting_one_in_the_middle_leaves_the_others() -> None:
    """The order of the rest stays, and an old uid does not hit the successor."""
    queue = filled(member("m1"), member("m2"), member("m3"))
    queue.forget(member("m2"))
    queue.forget(member("m3", uid="another"))
    assert list(drain(queue)) == ["m1", "m3"]


def test_a_successor_of_the_same_name_is_another_member() -> None:
    """It is free at the end of the line, whatever becomes of the one before."""
    queue = filled(member("m1"), member("m2"))
    taken = queue.acquire(POOL)
    assert taken is not None
    queue.offer(member("m1", uid="second"))
    queue.release(taken)
    queue.forget(taken)
    assert queue.counts(POOL) == Counts(ready=2)
    assert list(drain(queue)) == ["m2", "m1"]


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
    taken = queue.acquire(POOL)
    kept = queue.acquire(second)
    assert taken is not None
    assert kept is not None
    queue.forget_pool(POOL)
    queue.forget_pool(POOL)
    queue.release(taken)
    queue.release(kept)
    assert list(queue._pools) == [second]
    assert list(drain(queue, second)) == ["s2", "s1"]
    queue.offer(member("m3"))
    assert list(drain(queue)) == ["m3"]


# -- waking ------------------------------------------------------------------------------------


def test_a_pool_is_announced_for_each_member_that_can_be_taken_now() -> None:
    """When an address appears and when a member comes back; not for what changes nothing."""
    told: list[Key] = []
    queue = WarmQueue(running_pods)
    queue.available.append(told.append)
    queue.released.append(told.append)
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
    taken = queue.acquire(POOL)
    assert taken is not None
    queue.offer(taken)
    assert len(told) == 2
    queue.release(taken)
    assert len(told) == 3


# -- size and cost -----------------------------------------------------------------------------


def test_no_member_is_dropped_however_many_there_are() -> None:
    """The queue has no capacity: fifty thousand go in, each comes out once."""
    queue = filled(*(member(f"m{n}", f"n{n % 7}") for n in range(50_000)))
    assert queue.counts(POOL) == Counts(ready=50_000)
    assert len(set(drain(queue))) == 50_000


@pytest.mark.parametrize(("nodes", "limit"), [(100, 200), (20_000, 450)])
def test_a_free_member_costs_a_few_hundred_bytes(nodes: int, limit: int) -> None:
    """Besides the entry of the cache: about 190 bytes, and 350 where each is alone on its node."""
    names = [f"n{n}" for n in range(nodes)]
    members = [member(f"m{n}", names[n % nodes]) for n in range(20_000)]
    gc.collect()
    tracemalloc.start()
    queue = WarmQueue(running_pods)
    for one in members:
        queue.offer(one)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert queue.counts(POOL).ready == len(members)
    assert used / len(members) < limit


def test_pools_leave_nothing_behind() -> None:
    """Thousands of pools come and go, emptied in every way, and nothing grows."""
    queue = WarmQueue(running_pods)

    def live(numbers: range) -> None:
        for n in numbers:
            pool = Key("default", f"p{n}")
            first = member(f"m{n}", f"n{n}", pool=pool)
            second = member(f"x{n}", pool=pool, has_address=False)
            queue.offer(first)
            queue.offer(second)
            taken = queue.acquire(pool)
            assert taken is not None
            if n % 3 == 0:
                queue.forget(taken)
            if n % 3 == 1:
                queue.release(taken)
                queue.forget_pool(pool)
            queue.forget(first)
            queue.forget(second)

    live(range(2_000))
    gc.collect()
    tracemalloc.start()
    live(range(2_000, 12_000))
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert (queue._pools, queue._queued) == ({}, {})
    assert grown < 20_000

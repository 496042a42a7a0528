"""The warm queue: who can be taken, failures, size and cost. The order is in the model's test."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from lean_sandbox.controllers.resolver import TemplateResolver
from lean_sandbox.controllers.warm import Counts, WarmQueue, build_warm_queue, pool_of
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.meta import OwnerReference, controller_reference
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources import build_caches
from lean_sandbox.watch.resources.sandbox import SandboxEntry
from tests.support.members import member_of, running_pods
from tests.support.names import REF_HASH, WARM_POOL

POOL = Key("default", "pool")


def member(name: str, node: str = "", *, pool: Key = POOL, **more: Any) -> SandboxEntry:
    """Return a member, Ready unless told otherwise."""
    return member_of(pool, name, node, **more)


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


@pytest.mark.parametrize(
    "reason",
    ["PodTerminating", "PodFailed", "PodSucceeded", "SandboxSuspended", "SandboxExpired"],
)
def test_a_member_whose_pod_has_ended_or_is_to_end_is_not_handed_out(reason: str) -> None:
    """Its addresses stay in the status until the Pod is gone; one that only starts can be had."""

    def not_ready(name: str, why: str) -> SandboxEntry:
        entry = member(name)
        assert entry.status is not None
        ready = Condition(type="Ready", status="False", reason=why)
        return msgspec.structs.replace(
            entry, status=msgspec.structs.replace(entry.status, conditions=(ready,))
        )

    queue = filled(not_ready("ends", reason), not_ready("starts", "DependenciesNotReady"))
    assert list(drain(queue)) == ["starts"]


# -- what fails ---------------------------------------------------------------------------------


def test_a_judge_that_fails_costs_no_member() -> None:
    """The member it was asked about stays where it is."""
    queue = filled(member("m1"), member("m2"))

    def accept(_: SandboxEntry) -> bool:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        queue.acquire(POOL, accept=accept)
    assert list(drain(queue)) == ["m1", "m2"]


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


def test_a_refused_member_is_forgotten_with_the_sandbox_that_takes_its_name() -> None:
    """Though nobody has seen its end."""
    caches = build_caches()
    queue = build_warm_queue(caches, cast("TemplateResolver", None))
    one = member("m1", uid="u1")
    caches.sandboxes.put(one)
    queue.refuse(one)
    caches.sandboxes.put(member("m1", uid="u2"))
    assert not queue.is_refused(one)


# -- size and cost -----------------------------------------------------------------------------


def test_no_member_is_dropped_however_many_there_are() -> None:
    """The queue has no capacity: twenty thousand go in, each comes out once."""
    queue = filled(*(member(f"m{n}", f"n{n % 7}") for n in range(20_000)))
    assert queue.counts(POOL) == Counts(ready=20_000)
    assert len(set(drain(queue))) == 20_000


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
    live(range(2_000, 4_000))
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert (queue._pools, queue._queued) == ({}, {})
    assert grown < 20_000

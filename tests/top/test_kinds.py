"""What is kept of an object, whatever it says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from filters import EventType
from lean_sandbox.top.board import Board
from lean_sandbox.top.kinds import (
    NOT_SHOWN,
    TopClaimEntry,
    TopPoolEntry,
    TopSandboxEntry,
    build_top_caches,
)
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Key
from tests.watch.hand import Hand
from tests.watch.objects import owned_by, sandbox, sandbox_row

Json = dict[str, Any]
MADE = "2026-01-02T03:04:05Z"
SEEN = "agents.x-k8s.io/controller-first-observed-at"
FIRST_READY = "agents.x-k8s.io/claim-first-ready-at"
MEMBER = [{**owned_by("p")[0], "kind": "SandboxWarmPool"}]
OF_EXTENSIONS = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1"}


def kept(cache: Cache[Any], **body: Any) -> Any:
    """Return what is kept of an object."""
    meta = {"name": "c", "namespace": "ns", "uid": "1", "resourceVersion": "1"}
    meta |= {"creationTimestamp": MADE, **body.pop("metadata", {})}
    item = msgspec.convert({"metadata": meta, **body}, cache.kind.item_type)
    cache.full(EventType.ADDED, item, initial=True)
    return cache.get(Key("ns", "c"))


def claim(**body: Any) -> TopClaimEntry:
    """Return what is kept of a claim."""
    found: TopClaimEntry = kept(build_top_caches(lambda: 0.0).claims, **body)
    return found


def ready(status: str = "False", **more: str) -> Json:
    """Return a status with the condition Ready."""
    return {"conditions": [{"type": "Ready", "status": status, "reason": "Why", **more}]}


@pytest.mark.parametrize("field", ["reason", "message"])
@pytest.mark.parametrize("length", [100, 500])
def test_of_what_a_claim_says_so_much_is_kept(field: str, length: int) -> None:
    """100 characters of a reason, 500 of a message: they are as long as their writer likes."""
    longest = {"reason": 100, "message": 500}[field]
    found = claim(status=ready(**{field: "x" * length}))
    assert getattr(found, field) == "x" * min(length, longest)
    longer = claim(status=ready(**{field: "x" * (longest + 1)}))
    assert getattr(longer, field) == "x" * longest


@pytest.mark.parametrize("body", [{}, {"spec": None, "status": None}])
def test_a_claim_that_says_nothing_is_not_ready_and_of_no_pool(body: Json) -> None:
    """As it is before any controller has seen it."""
    found = claim(**body)
    assert (found.pool, found.sandbox, found.reason, found.message) == ("", "", "", "")
    assert (found.is_ready, found.is_warm, found.created_at) == (False, False, MADE)


def test_a_claim_that_is_ready_has_no_message() -> None:
    """There is nothing to tell of it."""
    found = claim(status={**ready("True", message="fine"), "sandbox": {"name": "p-1"}})
    assert (found.is_ready, found.reason, found.message) == (True, "Why", "")
    assert found.is_warm


@pytest.mark.parametrize(
    ("seen", "first_ready", "took_s"),
    [
        (MADE, MADE, 0.0),
        ("2026-01-02T03:04:06Z", "2026-01-02T03:04:08.5Z", 2.5),
        ("2026-01-02T03:04:04Z", "2026-01-02T03:04:08Z", None),
        ("2026-01-02T03:04:08Z", "2026-01-02T03:04:06Z", None),
        ("2026-01-02T03:04:06Z", None, None),
        (None, "2026-01-02T03:04:06Z", None),
        (None, None, None),
        ("soon", "2026-01-02T03:04:06Z", None),
    ],
)
def test_a_claim_took_from_the_first_sight_to_ready(
    seen: str | None, first_ready: str | None, took_s: float | None
) -> None:
    """What is older than the claim, or ends before it begins, is that of another one."""
    written = {SEEN: seen, FIRST_READY: first_ready}
    notes = {name: at for name, at in written.items() if at is not None}
    found = claim(metadata={"annotations": notes})
    assert found.took_s == took_s

    undated = claim(metadata={"annotations": notes, "creationTimestamp": None})
    assert (undated.took_s, undated.created_at) == (None, "")


@pytest.mark.parametrize(
    ("spec", "desired", "template"),
    [
        ({"replicas": 3, "sandboxTemplateRef": {"name": "t"}}, 3, "t"),
        ({"replicas": 0}, 0, ""),
        ({"replicas": -2}, 0, ""),
        ({}, 1, ""),
        (None, 1, ""),
    ],
)
def test_a_pool_asks_for_no_fewer_than_none(spec: Any, desired: int, template: str) -> None:
    """And for one, if it does not say how many."""
    found: TopPoolEntry = kept(build_top_caches(lambda: 0.0).pools, spec=spec)
    assert (found.desired, found.template) == (desired, template)


@pytest.mark.parametrize(
    ("owners", "pool"),
    [
        ([{**MEMBER[0], **OF_EXTENSIONS}], "p"),
        (MEMBER, ""),
        ([{**MEMBER[0], **OF_EXTENSIONS, "kind": "SandboxClaim"}], ""),
        ([{**MEMBER[0], **OF_EXTENSIONS, "controller": False}], ""),
        ([], ""),
    ],
)
def test_a_member_is_what_a_pool_of_the_api_controls(owners: list[Json], pool: str) -> None:
    """A name alone makes no member."""
    hand: Hand[TopSandboxEntry] = Hand(build_top_caches(lambda: 0.0).sandboxes.kind)
    hand.listed(sandbox("a", 10, ownerReferences=owners))
    assert hand.get("a").pool == pool


def test_a_sandbox_is_ready_as_its_columns_say() -> None:
    """Of the reason 100 characters are kept; where no columns are shown, it is not Ready."""
    hand: Hand[TopSandboxEntry] = Hand(build_top_caches(lambda: 0.0).sandboxes.kind)
    hand.saw(sandbox_row("ADDED", "a", 10, first=True))
    assert (hand.get("a").is_ready, hand.get("a").reason) == (True, "DependenciesReady")
    hand.saw(sandbox_row("MODIFIED", "a", 11, ready="False", reason="x" * 101))
    assert (hand.get("a").is_ready, hand.get("a").reason) == (False, "x" * 100)
    hand.learn_metadata(sandbox("a", 12))
    assert (hand.get("a").is_ready, hand.get("a").reason) == (False, NOT_SHOWN)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"is_ready": True, "reason": "DependenciesReady"}, "free"),
        ({"reason": ""}, "starting"),
        ({"reason": "DependenciesNotReady"}, "starting"),
        ({"reason": "NotShown"}, ""),
        ({"reason": "PodFailed"}, "stuck"),
        ({"reason": "PodFailed", "is_deleting": True}, ""),
    ],
)
def test_each_member_counts_for_one_state(fields: Json, state: str) -> None:
    """For none if it is ending, or if the server does not show what it is in."""
    caches = build_top_caches(lambda: 0.0)
    board = Board(caches)
    caches.pools.put(TopPoolEntry(Key("ns", "p"), "p", 1, desired=1))
    caches.sandboxes.put(TopSandboxEntry(Key("ns", "a"), "a", 1, pool="p", **fields))
    (pool,) = board._pools({})
    counted = {"free": pool.free, "starting": pool.starting, "stuck": pool.stuck}
    assert [name for name, count in counted.items() if count] == ([state] if state else [])

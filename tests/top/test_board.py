"""What is counted change by change is what a count of everything would give."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from filters import Change
from lean_sandbox.top.board import Board
from lean_sandbox.top.figures import Figures, NotReady, until_ready
from lean_sandbox.top.kinds import (
    TopCaches,
    TopClaimEntry,
    TopPoolEntry,
    TopSandboxEntry,
    build_top_caches,
)
from lean_sandbox.watch.kind import Delta, Key

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NS = "team-a"
REASONS = ("", "DependenciesNotReady", "PodFailed", "SandboxSuspended", "WarmPoolNotFound")
NAMES = st.sampled_from(["a", "b", "c", "d"])


def keyed(name: str, uid: str) -> dict[str, Any]:
    """Return the first fields of an entry."""
    return {"key": Key(NS, name), "uid": uid, "version": 1}


@st.composite
def sandboxes(draw: st.DrawFn) -> TopSandboxEntry:
    """Return a Sandbox, of a pool or not."""
    is_ready = draw(st.booleans())
    return TopSandboxEntry(
        **keyed(draw(NAMES), draw(st.sampled_from(["1", "2"]))),
        is_deleting=draw(st.booleans()),
        pool=draw(st.sampled_from(["", "p", "q"])),
        is_ready=is_ready,
        reason="DependenciesReady" if is_ready else draw(st.sampled_from(REASONS)),
    )


@st.composite
def claims(draw: st.DrawFn) -> TopClaimEntry:
    """Return a claim, with a Sandbox or not."""
    name = draw(NAMES)
    is_ready = draw(st.booleans())
    took_s = draw(st.none() | st.floats(0.0, 10.0)) if is_ready else None
    return TopClaimEntry(
        **keyed(name, draw(st.sampled_from(["1", "2"]))),
        pool=draw(st.sampled_from(["p", "q"])),
        sandbox=draw(st.sampled_from(["", name, "p-12345"])),
        is_ready=is_ready,
        reason="DependenciesReady" if is_ready else draw(st.sampled_from(REASONS)),
        created_at=f"2026-01-02T03:04:0{draw(st.integers(0, 5))}Z",
        ready_s=NOW.timestamp() + (took_s or 0.0),
        took_s=took_s,
    )


def opened(*pools: str) -> tuple[TopCaches, Board]:
    """Return empty caches but for pools, and what follows them."""
    caches = build_top_caches(lambda: 0.0)
    board = Board(caches)
    for name in pools:
        caches.pools.put(TopPoolEntry(**keyed(name, name), desired=3, template="tpl"))
    return caches, board


def shown(board: Board) -> Figures:
    """Return the figures of a board."""
    return board.figures(NOW, server="http://127.0.0.1:1", namespace="")


@given(st.lists(sandboxes() | claims() | NAMES, max_size=40))
def test_counts_follow_every_change(changes: list[TopSandboxEntry | TopClaimEntry | str]) -> None:
    """Whatever comes and goes in whatever order: no count drifts, none is negative."""
    caches, board = opened("p", "q")
    for change in changes:
        match change:
            case TopSandboxEntry():
                caches.sandboxes.put(change)
            case TopClaimEntry():
                caches.claims.put(change)
            case str():
                caches.sandboxes.remove(Key(NS, change))
                caches.claims.remove(Key(NS, change))
    figures = shown(board)
    held, held_claims = list(caches.sandboxes), list(caches.claims)
    for pool in figures.pools:
        members = [one for one in held if one.pool == pool.name and not one.is_deleting]
        waiting = [one for one in members if not one.is_ready]
        starting = [one for one in waiting if one.reason in ("", "DependenciesNotReady")]
        of_pool = [one for one in held_claims if one.pool == pool.name]
        assert pool.free == len(members) - len(waiting)
        assert pool.starting == len(starting)
        assert pool.stuck == len(waiting) - len(starting)
        assert pool.claimed == sum(one.sandbox != "" for one in of_pool)
        assert pool.warm == sum(one.sandbox == "p-12345" for one in of_pool)
        assert pool.waiting == sum(one.sandbox == "" for one in of_pool)
    told = Counter({(one.kind, one.reason): one.count for one in figures.not_ready})
    assert told == Counter(
        [("sandbox", one.reason) for one in held if not one.is_ready]
        + [("claim", one.reason) for one in held_claims if not one.is_ready]
    )
    assert figures.claims.ready == sum(one.is_ready for one in held_claims)
    assert figures.sandboxes.ready == sum(one.is_ready for one in held)
    assert {one.name for one in figures.last_claims} == {one.key.name for one in held_claims}


def test_nothing_is_kept_of_what_has_gone() -> None:
    """Pools and reasons that no object names any more take no memory."""
    caches, board = opened()
    for number in range(50):
        reason = f"Reason{number}"
        entry = keyed(f"x{number}", "1")
        caches.claims.put(TopClaimEntry(**entry, pool=reason, reason=reason))
        caches.sandboxes.put(TopSandboxEntry(**entry, pool=reason, reason=reason))
    for number in range(50):
        key = Key(NS, f"x{number}")
        caches.claims.remove(key)
        caches.sandboxes.remove(key)
    kept = (board._members, board._claims, board._claims_by_reason, board._sandboxes_by_reason)
    assert [len(one) for one in kept] == [0, 0, 0, 0]


def test_the_last_claims_come_first_and_those_that_are_gone_do_not() -> None:
    """In the order of their creation, whatever the order in which they were listed."""
    caches, board = opened()
    for name, second in (("b", 2), ("a", 1), ("c", 3)):
        made = f"2026-01-02T03:04:0{second}Z"
        caches.claims.put(TopClaimEntry(**keyed(name, name), pool="p", created_at=made))
    caches.claims.remove(Key(NS, "c"))
    assert [one.name for one in shown(board).last_claims] == ["b", "a"]


def test_a_claim_of_a_name_that_was_used_before_is_another_one() -> None:
    """Its time counts as well, though the watch has shown no end of the one before."""
    caches, board = opened()
    for uid, took_s in (("1", 5.0), ("1", 5.0), ("2", 7.0)):
        claim = keyed("c", uid)
        caches.claims.put(TopClaimEntry(**claim, pool="p", ready_s=1.0, took_s=took_s))
    took = shown(board).claims.until_ready
    assert (took.claims, took.max_ms) == (2, 7000.0)


def test_what_is_refused_comes_first_with_the_latest_example() -> None:
    """A refused claim is told before many that wait; the message is the claim's own."""
    caches, board = opened()
    for number in range(3):
        waiting = keyed(f"w{number}", "1")
        caches.claims.put(TopClaimEntry(**waiting, pool="p", reason="SandboxNotReady"))
    for name in ("x", "y"):
        why = f"why {name}"
        caches.claims.put(
            TopClaimEntry(**keyed(name, "1"), pool="p", reason="WarmPoolNotFound", message=why)
        )
    first, second = shown(board).not_ready
    assert first == NotReady(
        kind="claim",
        reason="WarmPoolNotFound",
        count=2,
        is_refused=True,
        example_namespace=NS,
        example_name="y",
        message="why y",
    )
    assert (second.kind, second.example_name) == ("claim", "w2")
    assert (second.reason, second.count, second.is_refused) == ("SandboxNotReady", 3, False)


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=250))
@example([1.0] * 100)
def test_percentiles_are_times_that_were_seen(took_s: list[float]) -> None:
    """By the nearest rank; one in a hundred is not told of fewer than a hundred."""
    found = until_ready(took_s)
    ranked = [round(one * 1000.0, 3) for one in sorted(took_s)]
    assert found.claims == len(took_s)
    assert found.max_ms == ranked[-1]
    assert found.p50_ms in ranked
    assert sum(one <= (found.p50_ms or 0.0) for one in ranked) * 2 >= len(ranked)
    assert (found.p99_ms is None) == (len(took_s) < 100)
    if found.p99_ms is not None:
        assert sum(one <= found.p99_ms for one in ranked) * 100 >= len(ranked) * 99


def test_without_a_time_nothing_is_told_of_it() -> None:
    """No claim that became Ready, no percentiles."""
    found = until_ready([])
    assert (found.claims, found.p50_ms, found.p99_ms, found.max_ms) == (0, None, None, None)


def test_pools_come_by_name_each_with_its_cause() -> None:
    """What the controller says of another pool is not told of this one."""
    _, board = opened("q", "p")
    found = board.figures(NOW, server="", namespace="", causes={Key(NS, "q"): "create"})
    assert [(one.name, one.template, one.cause) for one in found.pools] == [
        ("p", "tpl", ""),
        ("q", "tpl", "create"),
    ]


def test_of_many_claims_the_last_are_told_and_counted() -> None:
    """Fifty of them by name; the times of the last thousand count."""
    caches, board = opened()
    for number in range(1001):
        made = f"2026-01-02T03:{number // 60:02}:{number % 60:02}Z"
        took_s = 900.0 if number == 0 else 1.0
        caches.claims.put(
            TopClaimEntry(
                **keyed(f"c{number}", "1"),
                pool="p",
                created_at=made,
                ready_s=float(number),
                took_s=took_s,
            )
        )
        if number == 999:
            assert shown(board).claims.until_ready.max_ms == 900_000.0
    found = shown(board)
    assert [one.name for one in found.last_claims] == [f"c{1000 - n}" for n in range(50)]
    assert (found.claims.until_ready.claims, found.claims.until_ready.max_ms) == (1000, 1000.0)
    assert found.last_claims[0].took_ms == 1000.0


def test_the_rate_is_unknown_at_first_and_forgets_what_is_old() -> None:
    """Until a second has passed there is none; later it is that of the last ten seconds."""
    caches, board = opened()
    new = TopClaimEntry(**keyed("a", "1"), pool="p")
    for at in (100.2, 100.4, 108.0):
        board.arrived(Delta(new.key, Change.GENERATION, None, new), at)
    board.arrived(Delta(new.key, Change.GENERATION, None, new, initial=True), 108.0)
    board.arrived(Delta(new.key, Change.GENERATION, new, new), 108.0)
    assert board.per_second(100.9, since_s=100.0) is None
    assert board.per_second(101.0, since_s=100.0) == 3.0
    assert board.per_second(108.0, since_s=100.0) == round(3 / 8, 1)
    assert board.per_second(111.0, since_s=100.0) == 0.1
    assert board.per_second(118.0, since_s=100.0) == 0.0
    assert len(caches.claims) == 0

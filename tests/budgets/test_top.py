"""What `lean-sandbox top` costs with many objects: a look, an event, and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from lean_sandbox.top.board import Board
from lean_sandbox.top.kinds import TopClaimEntry, TopPoolEntry, TopSandboxEntry, build_top_caches
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.decode import EventDecoder
from lean_sandbox.watch.kind import Entry, Key
from tests.footprint.objects import held_bytes, row, sandbox

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MANY = 600
#: With 10,000 Sandboxes that is 12 MiB above an empty process.
BOUND_KIB = 1.2


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is filled with the kind of each cache that is walked over."""
    found: list[str] = []
    iterate = Cache.__iter__

    def walked(self: Cache[Entry]) -> Iterator[Entry]:
        found.append(self.kind.resource.plural)
        return iterate(self)

    monkeypatch.setattr(Cache, "__iter__", walked)
    return found


def test_a_look_walks_over_pools_alone(walks: list[str]) -> None:
    """It costs the same with ten Sandboxes and claims and with ten thousand."""
    caches = build_top_caches(lambda: 0.0)
    board = Board(caches)
    caches.pools.put(TopPoolEntry(Key("ns", "p"), "1", 1, desired=3))
    for number in range(MANY):
        key = Key("ns", f"x{number}")
        caches.sandboxes.put(TopSandboxEntry(key, f"s{number}", 1, pool="p", is_ready=True))
        caches.claims.put(
            TopClaimEntry(key, f"c{number}", 1, pool="p", created_at="2026-01-02T03:04:05Z")
        )
    figures = board.figures(NOW, server="s", namespace="")
    assert figures.pools[0].free == figures.pools[0].waiting == MANY
    assert len(figures.last_claims) < MANY
    assert walks == ["sandboxwarmpools"]


def test_a_sandbox_is_small() -> None:
    """Ten thousand of them leave room in 60 MiB."""
    caches = build_top_caches(lambda: 0.0)
    board = Board(caches)
    feed = EventDecoder(caches.sandboxes)
    cells = {"Ready": "True", "Reason": "DependenciesReady"}

    def take(first: int, last: int) -> None:
        for number in range(first, last):
            feed.line(row(sandbox(number, is_claimed=True)["metadata"], cells, 1 + number))

    tracemalloc.start()
    take(0, 50)
    before = held_bytes()
    take(50, 50 + MANY)
    kib = (held_bytes() - before) / 1024 / MANY
    tracemalloc.stop()
    assert board.figures(NOW, server="s", namespace="").sandboxes.ready == 50 + MANY
    assert kib < BOUND_KIB

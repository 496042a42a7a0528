"""What a Sandbox with its Pod costs in memory, everything that is kept of them included."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from filters import EventType
from lean_sandbox.model.pod import Pod
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.watch.decode import EventDecoder
from lean_sandbox.watch.resources import build_caches
from lean_sandbox.watch.writes import apply_response
from tests.footprint.objects import address, held_bytes, pod, row, sandbox

WARM = 50
# Long enough that the growth of a table weighs little, whenever it comes.
STRETCH = 300
PAIRS = WARM + 3 * STRETCH

#: KiB of heap for a ready Sandbox and its Pod: both entries, their fingerprints, keys and indices.
BOUND_KIB = 2.2
#: The same when both have an owner of their own, as those of claims do.
CLAIMED_BOUND_KIB = 2.4


class Watched:
    """Both caches, fed as the controller feeds them."""

    def __init__(self) -> None:
        """Start empty."""
        self.caches = build_caches()
        self.sandboxes = self.caches.sandboxes
        self.pods = self.caches.pods
        self.sandbox_feed = EventDecoder(self.sandboxes)
        self.pod_feed = EventDecoder(self.pods)

    def list(self, number: int, *, is_claimed: bool) -> None:
        """Take a pair from lists."""
        box = msgspec.json.encode(sandbox(number, is_claimed=is_claimed))
        self.sandboxes.full(EventType.ADDED, msgspec.json.decode(box, type=Sandbox), initial=True)
        raw = msgspec.json.encode(pod(number))
        self.pods.full(EventType.ADDED, msgspec.json.decode(raw, type=Pod), initial=True)

    def live(self, number: int, *, is_claimed: bool) -> None:
        """Take a pair as it comes to life under watch: rows, a GET, rows again."""
        box = sandbox(number, is_claimed=is_claimed)
        body = pod(number)
        at = 3_000_000 + 10 * number
        waiting = {
            "Ready": "0/1",
            "Status": "Pending",
            "IP": "<none>",
            "Node": f"node-{number % 50}",
            "Readiness Gates": "<none>",
        }
        running = {**waiting, "Ready": "1/1", "Status": "Running", "IP": address(number)}
        ready = {"Ready": "True", "Reason": "DependenciesReady"}
        self.sandbox_feed.line(row(box["metadata"], {"Ready": None, "Reason": None}, at))
        self.pod_feed.line(row(body["metadata"], waiting, at + 1))
        self.pod_feed.line(row(body["metadata"], running, at + 2))
        body["metadata"]["resourceVersion"] = str(at + 3)
        shown: Any = msgspec.json.decode(msgspec.json.encode(body), type=Pod)
        apply_response(self.pods, shown, known=self.pods.gate.known("team-a", 0))
        box["metadata"]["resourceVersion"] = str(at + 4)
        shown = msgspec.json.decode(msgspec.json.encode(box), type=Sandbox)
        apply_response(self.sandboxes, shown, known=self.sandboxes.gate.known("team-a", 0))
        self.pod_feed.line(row(body["metadata"], running, at + 5))
        self.sandbox_feed.line(row(box["metadata"], ready, at + 6))


@pytest.fixture
def traced() -> Iterator[None]:
    """Count the heap for the length of a test.

    What objects of all caches share has bounds; it is filled first, by objects that are gone, so
    that no pair pays for it.
    """
    tracemalloc.start()
    earlier = Watched()
    for number in range(PAIRS):
        earlier.list(number, is_claimed=number % 2 == 0)
    del earlier
    yield
    tracemalloc.stop()


def kib_per_pair(take: Callable[[int], None]) -> float:
    """Return the growth of the heap for each pair: the middle one of three stretches.

    The interpreter's own table of interned texts doubles when it is full, in one step that has
    nothing to do with the pair that happened to come.
    """
    for number in range(WARM):
        take(number)
    grown = []
    for begin in range(WARM, PAIRS, STRETCH):
        before = held_bytes()
        for number in range(begin, begin + STRETCH):
            take(number)
        grown.append((held_bytes() - before) / 1024 / STRETCH)
    return sorted(grown)[1]


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("way", ["list", "live"])
@pytest.mark.parametrize(("is_claimed", "bound"), [(False, BOUND_KIB), (True, CLAIMED_BOUND_KIB)])
def test_a_sandbox_with_its_pod_is_small(way: str, *, is_claimed: bool, bound: float) -> None:
    """However it was learnt of, a pair costs less than the bound that the documentation names."""
    watched = Watched()
    one = getattr(watched, way)
    kib = kib_per_pair(lambda number: one(number, is_claimed=is_claimed))
    assert len(watched.caches.sandboxes) == len(watched.caches.pods) == PAIRS
    held = watched.caches.pods.owned_by("team-a", f"{7:08x}-1111-4000-8000-000000000000")
    assert [entry.key.name for entry in held] == ["sandbox-000007"]
    assert not any(entry.needs_fetch for entry in watched.caches.sandboxes)
    assert kib < bound


@pytest.mark.usefixtures("traced")
def test_events_that_change_nothing_keep_nothing() -> None:
    """A thousand rows that repeat what is known leave the heap as it was."""
    watched = Watched()
    watched.list(1, is_claimed=False)
    metadata = pod(1)["metadata"]
    cells = {"Ready": "1/1", "Status": "Running", "IP": address(1), "Node": "node-1"}
    cells["Readiness Gates"] = "<none>"
    watched.pod_feed.line(row(metadata, cells, 3_000_000))
    before = held_bytes()
    for number in range(1_000):
        watched.pod_feed.line(row(metadata, cells, 3_000_001 + number))
    assert watched.pods.dropped_unchanged >= 1_000
    assert held_bytes() - before < 4_096


@pytest.mark.usefixtures("traced")
def test_what_is_deleted_is_given_back() -> None:
    """A later generation of objects costs nothing on top of the first one, which has gone."""
    watched = Watched()

    def live_and_die() -> None:
        for number in range(STRETCH):
            watched.list(number, is_claimed=False)
        for cache in (watched.sandboxes, watched.pods):
            cache.begin_list(None)
            cache.begin_page(None, "9000000")
            cache.end_list(None)
        assert len(watched.caches.sandboxes) == len(watched.caches.pods) == 0

    live_and_die()
    grown = []
    for _ in range(3):
        before = held_bytes()
        live_and_die()
        grown.append(held_bytes() - before)
    # The middle one, for the reason that kib_per_pair gives.
    assert sorted(grown)[1] < 64 * 1024

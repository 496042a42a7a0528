"""The ring is bounded whatever happens, and its Chrome trace is well formed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.manager.trace import (
    CLAIMS,
    PODS,
    SANDBOXES,
    Entry,
    EventEntry,
    Life,
    ReconcileEntry,
    RequestEntry,
    TraceBuffer,
    table,
)
from lean_sandbox.watch.kind import Key
from tests.support.clock import FakeClock

Json = dict[str, Any]
NAMES = st.sampled_from("abc")
TIMES = st.floats(0.0, 100.0)
TEXTS = st.text(max_size=8)


def saw(plural: str, name: str, owner: str = "", at: float = 0.0) -> EventEntry:
    """Return an event that passed, as it is kept."""
    return EventEntry(at, plural, Key("ns", name), "ADDED", True, "first sight", "1", owner)  # noqa: FBT003


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Return an entry of any kind about one of few objects."""
    plural = draw(st.sampled_from([CLAIMS, SANDBOXES, PODS]))
    key, at = Key("ns", draw(NAMES)), draw(TIMES)
    match draw(st.integers(0, 2)):
        case 0:
            owner = draw(st.sampled_from(["", "SandboxClaim/a", "Sandbox/b", "Sandbox/c"]))
            return EventEntry(
                at, plural, key, "MODIFIED", draw(st.booleans()), draw(TEXTS), "7", owner
            )
        case 1:
            took_s, waited_s = draw(TIMES), draw(TIMES)
            return ReconcileEntry(
                *(at, plural, key, "sandbox", (draw(TEXTS),), waited_s, took_s),
                *("success", draw(st.integers(0, 3)), draw(st.none() | TIMES), draw(TEXTS)),
            )
    code = draw(st.sampled_from([0, 200, 409]))
    return RequestEntry(at, plural, key, "get", "pods", code, draw(TIMES), draw(TEXTS))


def life(found: list[Entry]) -> Life:
    """Return an answer with these entries."""
    return Life("claim", Key("ns", "a"), "2026-01-02T03:04:05Z", 100.0, 10, 10, 0.0, found)


@given(st.integers(1, 20), st.lists(entries(), max_size=60))
def test_the_ring_never_holds_more_than_it_may_and_the_last_are_kept(
    most: int, coming: list[Entry]
) -> None:
    """Whatever comes: the newest entries in their order, and a count of all there ever were."""
    ring = TraceBuffer(most, FakeClock())
    for one in coming:
        ring.keep(one)
    assert list(ring.entries) == coming[-most:]
    assert ring.recorded == len(coming)


@given(st.lists(entries(), max_size=40))
def test_about_finds_each_entry_of_the_family_once_in_the_order_of_time(
    coming: list[Entry],
) -> None:
    """The object, what its events' owners lead to, and nothing else."""
    ring = TraceBuffer(100, FakeClock())
    for one in coming:
        ring.keep(one)
    sandboxes = {
        one.key.name
        for one in coming
        if isinstance(one, EventEntry) and (one.plural, one.owner) == (SANDBOXES, "SandboxClaim/a")
    }
    pods = {
        one.key.name
        for one in coming
        if isinstance(one, EventEntry)
        and one.plural == PODS
        and one.owner in {f"Sandbox/{name}" for name in sandboxes}
    }
    wanted = {CLAIMS: {"a"}, SANDBOXES: sandboxes, PODS: pods}
    found = ring.about((CLAIMS, Key("ns", "a")))
    assert [one.at for one in found] == sorted(one.at for one in found)
    family = [one for one in coming if one.key.name in wanted[one.plural]]
    assert sorted(map(repr, found)) == sorted(map(repr, family))


def test_owners_of_another_namespace_are_others() -> None:
    """Names are unique in a namespace only."""
    ring = TraceBuffer(10, FakeClock())
    ring.keep(saw(PODS, "x", "Sandbox/a"))
    assert ring.about((SANDBOXES, Key("other", "a"))) == []


def test_requests_outside_of_passes_are_not_kept() -> None:
    """Watches, Events and the Lease belong to no object."""
    ring = TraceBuffer(10, FakeClock())
    ring.observe(RequestRecord("GET", "watch", "pods", 200, 1.0))
    ring.observe(RequestRecord("PUT", "update", "leases", 200, 1.0))
    assert not ring.entries


@given(st.lists(entries(), min_size=1, max_size=20))
def test_the_table_has_a_line_for_each_entry(found: list[Entry]) -> None:
    """Under two lines of head, whatever texts the entries hold; none of them moves a cursor."""
    shown = table(life(found))
    assert len(shown.splitlines()) == len(found) + 2
    assert shown.replace("\n", "").isprintable()

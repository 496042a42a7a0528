"""The ring is bounded whatever happens, and its Chrome trace is well formed."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from filters import Change, Decision, EventType
from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.manager.flight import (
    CLAIMS,
    PODS,
    SANDBOXES,
    Asked,
    Entry,
    Kept,
    Ran,
    Saw,
    Sight,
    TraceBuffer,
)
from lean_sandbox.manager.trace_chrome import chrome
from lean_sandbox.manager.trace_command import table
from lean_sandbox.manager.trace_endpoint import Life
from lean_sandbox.watch.store import Key
from tests.support.clock import FakeClock

Json = dict[str, Any]
NAMES = st.sampled_from("abc")
TIMES = st.floats(0.0, 100.0)
PASSED = Decision(Change.FIRST_SEEN, "first sight", passed=True)
TEXTS = st.text(max_size=8)


def saw(plural: str, name: str, owner: str = "", at: float = 0.0) -> Sight:
    """Return an event that passed, as it is kept."""
    return Sight(at, plural, Key("ns", name), EventType.ADDED, PASSED, "1", owner)


def kept(entry: Entry) -> Kept:
    """Return an entry as the ring keeps it."""
    if not isinstance(entry, Saw):
        return entry
    verdict = Decision(Change.GENERATION, entry.reason, passed=entry.passed)
    type_ = EventType(entry.type)
    return Sight(entry.at, entry.plural, entry.key, type_, verdict, entry.version, entry.owner)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Return an entry of any kind about one of few objects."""
    plural = draw(st.sampled_from([CLAIMS, SANDBOXES, PODS]))
    key, at = Key("ns", draw(NAMES)), draw(TIMES)
    match draw(st.integers(0, 2)):
        case 0:
            owner = draw(st.sampled_from(["", "SandboxClaim/a", "Sandbox/b", "Sandbox/c"]))
            return Saw(at, plural, key, "MODIFIED", draw(st.booleans()), draw(TEXTS), "7", owner)
        case 1:
            took_s, waited_s = draw(TIMES), draw(TIMES)
            return Ran(
                *(at, plural, key, "sandbox", (draw(TEXTS),), waited_s, took_s),
                *("success", draw(st.integers(0, 3)), draw(st.none() | TIMES), draw(TEXTS)),
            )
    code = draw(st.sampled_from([0, 200, 409]))
    return Asked(at, plural, key, "get", "pods", code, draw(TIMES), draw(TEXTS))


def life(found: list[Entry]) -> Life:
    """Return an answer with these entries."""
    return Life("claim", Key("ns", "a"), "2026-01-02T03:04:05Z", 100.0, 10, 10, 0.0, found)


@given(st.integers(1, 20), st.lists(entries(), max_size=60))
def test_the_ring_never_holds_more_than_it_may_and_the_last_are_kept(
    most: int, coming: list[Entry]
) -> None:
    """Whatever comes: the newest entries in their order, and a count of all there ever were."""
    ring = TraceBuffer(most, FakeClock())
    wanted = [kept(one) for one in coming]
    for one in wanted:
        ring._keep(one)
    assert list(ring) == wanted[-most:]
    assert ring.recorded == len(coming)


@given(st.lists(entries(), max_size=40))
def test_about_finds_each_entry_of_the_family_once_in_the_order_of_time(
    coming: list[Entry],
) -> None:
    """The object, what its events' owners lead to, and nothing else."""
    ring = TraceBuffer(100, FakeClock())
    for one in coming:
        ring._keep(kept(one))
    sandboxes = {
        one.key.name
        for one in coming
        if isinstance(one, Saw) and (one.plural, one.owner) == (SANDBOXES, "SandboxClaim/a")
    }
    pods = {
        one.key.name
        for one in coming
        if isinstance(one, Saw)
        and one.plural == PODS
        and one.owner in {f"Sandbox/{name}" for name in sandboxes}
    }
    wanted = {CLAIMS: {"a"}, SANDBOXES: sandboxes, PODS: pods}
    found = ring.about((CLAIMS, Key("ns", "a")))
    assert [one.at for one in found] == sorted(one.at for one in found)
    family = [one for one in coming if one.key.name in wanted[one.plural]]
    assert sorted(map(repr, found)) == sorted(map(repr, family))


def test_children_that_are_known_otherwise_count_as_well() -> None:
    """A binding whose events have been overwritten is known from the caches."""
    ring = TraceBuffer(10, FakeClock())
    ring._keep(saw(SANDBOXES, "m1", "SandboxWarmPool/p"))
    ring._keep(saw(PODS, "x", "Sandbox/m1"))
    ring._keep(saw(PODS, "y", "Sandbox/m2"))
    subject = (CLAIMS, Key("ns", "c"))
    assert ring.about(subject) == []
    bound = {subject: [(SANDBOXES, Key("ns", "m1"))]}
    found = ring.about(subject, lambda one: bound.get(one, []))
    assert [one.key.name for one in found] == ["m1", "x"]


def test_owners_of_another_namespace_are_others() -> None:
    """Names are unique in a namespace only."""
    ring = TraceBuffer(10, FakeClock())
    ring._keep(saw(PODS, "x", "Sandbox/a"))
    assert ring.about((SANDBOXES, Key("other", "a"))) == []


def test_requests_outside_of_passes_are_not_kept() -> None:
    """Watches, Events and the Lease belong to no object."""
    ring = TraceBuffer(10, FakeClock())
    ring.observe(RequestRecord("GET", "watch", "pods", 200, 1, 1, 1.0))
    ring.observe(RequestRecord("PUT", "update", "leases", 200, 1, 1, 1.0))
    assert len(ring) == 0


@given(st.lists(entries(), max_size=40))
def test_a_chrome_trace_is_well_formed(found: list[Entry]) -> None:
    """Source: Trace Event Format. Every event has ph, ts, pid, tid; slices have a dur.

    Times begin at zero, every process and thread has a name, and slices of one thread that overlap
    are never drawn over each other.
    """
    made = json.loads(msgspec.json.encode(chrome(life(found))))
    named: set[tuple[int, int]] = set()
    slices: defaultdict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    drawn = []
    for one in made["traceEvents"]:
        assert one["name"]
        assert one["ph"] in ("M", "i", "X")
        assert one["ts"] >= 0.0
        assert isinstance(one["pid"], int)
        assert isinstance(one["tid"], int)
        place = (one["pid"], one["tid"])
        if one["ph"] == "M":
            named.add(place)
            continue
        drawn.append(one)
        assert place in named
        assert (one["pid"], 0) in named
        if one["ph"] == "i":
            assert one["s"] == "t"
        else:
            assert one["dur"] >= 0.0
            slices[place].append((one["ts"], one["dur"]))
    assert len(drawn) == len(found)
    assert min((one["ts"] for one in drawn), default=0.0) == 0.0
    for taken in slices.values():
        ordered = sorted(taken)
        for (ts, dur), (following, _) in itertools.pairwise(ordered):
            # Microseconds are rounded when the seconds are multiplied.
            assert following >= ts + dur - 1e-3


@given(st.lists(entries(), min_size=1, max_size=20))
def test_the_table_has_a_line_for_each_entry(found: list[Entry]) -> None:
    """Under two lines of head, whatever texts the entries hold; none of them moves a cursor."""
    shown = table(life(found))
    assert len(shown.splitlines()) == len(found) + 2
    assert shown.replace("\n", "").isprintable()

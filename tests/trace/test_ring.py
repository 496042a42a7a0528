"""The ring is bounded whatever happens, and finds what belongs together."""

from __future__ import annotations

from typing import Literal

import anyio
import anyio.lowlevel
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.config.options import Settings
from lean_sandbox.http.server import Request
from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.trace.life import CLAIMS, PATH, PODS, SANDBOXES, TraceEntry
from lean_sandbox.trace.recorder import Recorder
from lean_sandbox.watch.kind import Key
from tests.support.clock import FakeClock
from tests.support.world import open_world, sandbox

NAMES = st.sampled_from("abc")
TIMES = st.floats(0.0, 100.0)
TEXTS = st.text(max_size=8)


def saw(plural: str, name: str, owner: str = "", at: float = 0.0) -> TraceEntry:
    """Return an event that passed, as it is kept."""
    return TraceEntry(
        at, plural, Key("ns", name), "event", "ADDED, passed: first sight", owner=owner
    )


@st.composite
def entries(draw: st.DrawFn) -> TraceEntry:
    """Return an entry of any kind about one of few objects."""
    plural = draw(st.sampled_from([CLAIMS, SANDBOXES, PODS]))
    key = Key("ns", draw(NAMES))
    at = draw(TIMES)
    what: Literal["event", "reconcile", "request"] = draw(
        st.sampled_from(["event", "reconcile", "request"])
    )
    if what == "event":
        owner = draw(st.sampled_from(["", "SandboxClaim/a", "Sandbox/b", "Sandbox/c"]))
        return TraceEntry(at, plural, key, what, draw(TEXTS), owner=owner)
    return TraceEntry(at, plural, key, what, draw(TEXTS), draw(TIMES))


@given(st.lists(entries(), max_size=20))
async def test_about_finds_each_entry_of_the_family_once_in_the_order_of_time(
    coming: list[TraceEntry],
) -> None:
    """The object, what its events' owners lead to, and nothing else."""
    ring = Recorder(100, FakeClock())
    for one in coming:
        ring.entries.append(one)
    sandboxes = {
        one.key.name for one in coming if (one.plural, one.owner) == (SANDBOXES, "SandboxClaim/a")
    }
    pods = {
        one.key.name
        for one in coming
        if one.plural == PODS and one.owner in {f"Sandbox/{name}" for name in sandboxes}
    }
    wanted = {CLAIMS: {"a"}, SANDBOXES: sandboxes, PODS: pods}
    found = await ring.about((CLAIMS, Key("ns", "a")))
    assert [one.at for one in found] == sorted(one.at for one in found)
    family = [one for one in coming if one.key.name in wanted[one.plural]]
    assert sorted(map(repr, found)) == sorted(map(repr, family))


async def test_owners_of_another_namespace_are_others() -> None:
    """Names are unique in a namespace only."""
    ring = Recorder(10, FakeClock())
    ring.entries.append(saw(PODS, "x", "Sandbox/a"))
    assert await ring.about((SANDBOXES, Key("other", "a"))) == []


def test_requests_outside_of_reconciles_are_not_kept() -> None:
    """Watches, Events and the Lease belong to no object."""
    ring = Recorder(10, FakeClock())
    ring.observe(RequestRecord("GET", "watch", "pods", 200, 1.0))
    ring.observe(RequestRecord("PUT", "update", "leases", 200, 1.0))
    assert not ring.entries


@given(st.lists(entries(), min_size=1, max_size=8))
async def test_the_table_has_a_line_for_each_entry(found: list[TraceEntry]) -> None:
    """Under three lines of head, whatever texts there are: none moves a cursor, as JSON neither."""
    ring = Recorder(100, FakeClock())
    ring.entries.append(saw(CLAIMS, "a"))
    for one in found:
        ring.entries.append(one)
    kept = await ring.about((CLAIMS, Key("ns", "a")))
    query = {"kind": "claim", "namespace": "ns", "name": "a"}
    shown = (await ring.handle(Request(PATH, query))).body
    assert len(shown.decode().splitlines()) == len(kept) + 3
    told = (await ring.handle(Request(PATH, {**query, "output": "json"}))).body
    assert msgspec.json.decode(told, type=list[TraceEntry]) == kept
    assert (shown + told).decode().replace("\n", "").isprintable()


async def test_others_run_while_a_ring_is_walked() -> None:
    """A large ring is looked at in pieces, for one reader at a time, while more comes."""
    ring = Recorder(20_000, FakeClock())
    for number in range(20_000):
        ring.entries.append(saw(CLAIMS, "a" if number % 2 else "b"))
    turns = 0
    answers = list[bytes]()
    query = {"kind": "claim", "namespace": "ns", "name": "a"}

    async def ask() -> None:
        answers.append((await ring.handle(Request(PATH, query))).body)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask)
        while len(answers) < 3:
            await anyio.lowlevel.checkpoint()
            ring.entries.append(saw(PODS, "x"))
            turns += 1
    # Three readers, three walks for each, ten pieces in each walk.
    assert turns >= 3 * 3 * 10
    assert "2000 entries" in answers[0].decode().splitlines()[1]


async def test_an_owner_reference_of_any_length_takes_little_of_the_ring() -> None:
    """What the name of an owner may have is kept, no more."""
    async with open_world(Settings(trace_entries=100)) as world:
        reference = {"apiVersion": "v1", "kind": "Odd", "uid": "u", "controller": True}
        owner = {**reference, "name": "x" * 500_000}
        world.plane.store.plant(sandbox(metadata={"ownerReferences": [owner]}))
        await world.settle()
        assert world.trace is not None
        kept = [one.owner for one in world.trace.entries if one.owner]
    assert kept
    assert max(map(len, kept)) < 300

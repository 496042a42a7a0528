"""Laws of the small parts: lines, pauses, shared texts, writers of a status."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import ProtocolFault
from lean_sandbox.kube.http1 import LineSplitter
from lean_sandbox.kube.transport import Transport
from lean_sandbox.model.meta import ManagedFieldsEntry, ObjectMeta, OwnerReference, as_version
from lean_sandbox.model.wire import shared_map
from lean_sandbox.watch.failures import pause_s
from lean_sandbox.watch.kind import Key, OwnedEntry, shared_owner, status_writers
from lean_sandbox.watch.resources.sandbox import sandbox_kind
from lean_sandbox.watch.source import Source
from tests.support.clock import FakeClock

PIECES = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b" ", "\u2028".encode(), b"\x85"]))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes at the given places."""
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(bounds)]


@given(PIECES, st.lists(st.integers(0, 1000)))
def test_any_chunking_gives_the_same_lines(pieces: list[bytes], places: list[int]) -> None:
    """Where the network cuts the bytes changes nothing; only a line feed ends a line."""
    data = b"".join(pieces)
    splitter = LineSplitter()
    found = [line for chunk in cut(data, places) for line in splitter.feed(chunk)]
    whole, _, rest = data.rpartition(b"\n")
    assert found == [line for line in whole.split(b"\n") if line.strip()]
    assert splitter.pending == rest


@given(st.integers(0, 12), st.lists(st.integers(0, 1000)))
def test_the_limit_holds_for_any_chunking(size: int, places: list[int]) -> None:
    """A line of exactly the limit passes, one byte more does not, finished or not."""
    splitter = LineSplitter(limit_bytes=8)
    chunks = cut(b"x\n" + b"y" * size + b"\nz\n", places)
    if size <= 8:
        found = [line for chunk in chunks for line in splitter.feed(chunk)]
        assert found == [b"x", *([b"y" * size] if size else []), b"z"]
    else:
        with pytest.raises(ProtocolFault, match="exceeds 8 bytes"):
            list(map(splitter.feed, chunks))


def test_pauses_double_to_their_cap() -> None:
    """0.8 s, twice as long each time, never above 30 s."""
    found = [pause_s(failures, 1.0) for failures in range(1, 9)]
    assert found == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 40))
def test_jitter_takes_away_up_to_half(jitter: float, failures: int) -> None:
    """The pause lies between half and all of what the failures in a row call for."""
    whole_s = min(30.0, 0.8 * 2.0 ** (failures - 1))
    assert whole_s / 2 <= pause_s(failures, jitter) <= whole_s


def test_retry_after_is_the_least_pause() -> None:
    """Retry-After lengthens a pause and never shortens it."""
    assert pause_s(1, 1.0, at_least_s=7) == 7
    assert pause_s(2, 1.0, at_least_s=0.1) == 1.6


def test_equal_maps_are_shared_and_empty_ones_are_none() -> None:
    """Two objects with the same labels hold one mapping between them."""
    one = {"app": "web", "team": "a"}
    other = {"app": "web", "team": "a"}
    assert shared_map(one) == one
    assert shared_map(one) is shared_map(other)
    assert shared_map({}) is None
    assert shared_map(None) is None


def test_an_owner_keeps_its_meaning_and_shares_its_texts() -> None:
    """The owner remembered stays when nothing changed; a namesake shares the object's name."""

    def row(owner: OwnerReference | None, name: str = "box") -> ObjectMeta:
        return ObjectMeta(name=name, owner_references=() if owner is None else (owner,))

    owner = OwnerReference(kind="Sandbox", name="box", uid="u", api_version="g/v1", controller=True)
    old = OwnedEntry(Key("ns", "box"), "p", 1, owner=shared_owner(row(owner), None))
    assert old.owner == owner
    again = msgspec.structs.replace(owner)
    assert shared_owner(row(again), old) is old.owner
    assert shared_owner(row(None), old) is None
    renamed = shared_owner(row(owner), OwnedEntry(old.key, "p", 1))
    assert renamed is not None
    assert renamed.name is old.key.name
    pool = OwnerReference(kind="Pool", name="pool", uid="p", api_version="g/v1", controller=True)
    assert shared_owner(row(pool), old) is shared_owner(row(pool, "other"), None)


@given(st.integers(0, 2**63))
def test_versions_are_compared_as_numbers(number: int) -> None:
    """A version that is no number is 0, which is older than nothing and newer than nothing."""
    assert as_version(str(number)) == number
    assert as_version(f"v{number}") == as_version("") == 0


def writer(manager: str, subresource: str, time: str) -> ManagedFieldsEntry:
    """Return an entry of managedFields."""
    return ManagedFieldsEntry(manager=manager, subresource=subresource, time=time)


WRITERS = st.lists(
    st.builds(
        writer,
        st.sampled_from(["me", "kubelet", "other"]),
        st.sampled_from(["", "status", "scale"]),
        st.sampled_from(["09:00:00", "09:00:01"]),
    ),
    max_size=4,
)


@given(before=WRITERS, after=WRITERS)
def test_the_digest_changes_with_foreign_writes_of_the_status_alone(
    before: list[ManagedFieldsEntry], after: list[ManagedFieldsEntry]
) -> None:
    """Our own writes, and writes of anything else, say nothing of the status."""

    def foreign(writers: list[ManagedFieldsEntry]) -> list[ManagedFieldsEntry]:
        return [one for one in writers if one.subresource == "status" and one.manager != "me"]

    digests = [status_writers(writers, besides="me") for writers in (before, after)]
    assert (digests[0] == digests[1]) is (foreign(before) == foreign(after))
    assert bool(digests[0]) is bool(foreign(before))


async def test_a_source_that_has_heard_nothing_is_silent_since_it_was_made() -> None:
    """The metric of the silence has a value before the first answer."""
    clock = FakeClock()
    await clock.advance(5.0)
    client = Client(Transport(Connection("http://127.0.0.1:9")))
    source = Source(
        client,
        sandbox_kind(),
        clock=clock,
        namespace=None,
        field_selector="",
        shard_selector="",
    )
    assert (source.heard_at, source.received_bytes) == (5.0, 0)
    await clock.advance(2.0)
    source.note(b"ab")
    assert (source.heard_at, source.received_bytes) == (7.0, 2)

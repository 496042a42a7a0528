"""Laws of the store: whatever happens to it, its index says what a full scan would."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Entry, Key, Kind, key_of, view_or_fault
from lean_sandbox.watch.resources.children import pvc_kind
from lean_sandbox.watch.shown import ShownVersions
from tests.support.clock import FakeClock


class Thing(Entry, frozen=True):
    """A small entry."""

    owner_uid: str | None = None


ANY_KIND: Kind[Any] = pvc_kind()
KEYS = st.builds(Key, st.sampled_from(["one", "two"]), st.sampled_from("abcd"))
OWNERS = st.sampled_from(["u1", "u2", "u3", None])


def _key(thing: Thing) -> Key:
    return thing.key


def things(owner_of: Callable[[Thing], str | None] = lambda _thing: None) -> Cache[Thing]:
    """Return a cache whose entries are put in by hand."""
    return Cache(msgspec.structs.replace(ANY_KIND, owner_of=owner_of))


class StoreMachine(RuleBasedStateMachine):
    """Put, replace, move between owners and remove, in any order, beside a plain dict."""

    def __init__(self) -> None:
        super().__init__()
        self.store: Cache[Thing] = things(lambda thing: thing.owner_uid)
        self.model: dict[Key, Thing] = {}

    @rule(key=KEYS, owner=OWNERS)
    def put(self, key: Key, owner: str | None) -> None:
        """Insert or replace."""
        thing = Thing(key, "", 0, owner_uid=owner)
        self.store.put(thing)
        self.model[key] = thing

    @rule(key=KEYS)
    def put_again(self, key: Key) -> None:
        """Put an entry that is there already, advanced in place, which is not indexed."""
        thing = self.model.get(key)
        if thing is not None:
            self.store.advance(thing, thing.version + 1, ())
            self.store.put(thing)

    @rule(key=KEYS, owner=OWNERS)
    def mark(self, key: Key, owner: str | None) -> None:
        """Change what is indexed of an entry, by an older one; another object is not changed."""
        if (thing := self.model.get(key)) is not None:
            stale = msgspec.structs.replace(thing, owner_uid="u1")
            self.model[key] = self.store.mark(stale, owner_uid=owner)
            assert self.model[key].owner_uid == owner
        other = Thing(key, "another", 0)
        assert self.store.mark(other, version=7).version == 7

    @rule(key=KEYS)
    def remove(self, key: Key) -> None:
        """Remove, also what is not there."""
        assert self.store.remove(key) is self.model.pop(key, None)

    @invariant()
    def the_index_equals_a_full_scan(self) -> None:
        """For every namespace and owner."""
        for namespace, owner in product(("one", "two", "three"), ("u1", "u2", "u3", "nobody")):
            scanned = [
                self.model[key]
                for key in sorted(self.model)
                if (key.namespace, self.model[key].owner_uid) == (namespace, owner)
            ]
            assert sorted(self.store.owned_by(namespace, owner), key=_key) == scanned

    @invariant()
    def look_ups_agree(self) -> None:
        """Length, membership, iteration and keys by namespace."""
        assert len(self.store) == len(self.model)
        assert list(self.store) == list(self.model.values())
        assert self.store.keys() == list(self.model)
        for namespace in ("one", "two", "three"):
            expected = [key for key in self.model if key.namespace == namespace]
            assert self.store.keys(namespace) == expected
        for key in self.model:
            assert key in self.store
            assert self.store.get(key) is self.model[key]

    @invariant()
    def the_index_holds_nothing_of_the_dead(self) -> None:
        """An owner without entries costs nothing."""
        owners = {
            (key.namespace, thing.owner_uid)
            for key, thing in self.model.items()
            if thing.owner_uid is not None
        }
        held = self.store._owners._keys
        assert {(namespace, owner) for namespace in held for owner in held[namespace]} == owners
        assert all(held.values())


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_store_without_owners_has_no_index() -> None:
    """By default nothing is indexed."""
    store: Cache[Thing] = things()
    store.put(Thing(Key("one", "a"), "", 0, owner_uid="u1"))
    assert store.owned_by("one", "u1") == []


def test_keys_share_the_text_of_their_namespace() -> None:
    """Thousands of keys hold one text between them, and read well."""
    one, two = (key_of(f"team-{letter}", name) for letter, name in ("ax", "ay"))
    assert one.namespace is two.namespace
    assert str(one) == "team-a/x"


async def test_whoever_waits_for_a_version_leaves_nothing_behind() -> None:
    """Each is told of its own object; once all have left, nothing is collected."""
    shown = ShownVersions()
    clock = FakeClock()
    key = Key("ns", "a")
    with shown.of(key) as first:
        with shown.of(key) as second, shown.of(Key("ns", "b")) as other:
            shown.note("ns", "a", 5)
            for one in (first, second):
                await one.until(5, clock, 0.0)
                assert one._version == 5
            assert other._version == 0
        assert shown
        shown.note("ns", "a", 4)
        shown.note("ns", "a", 6)
        assert (first._version, second._version) == (6, 5)
    assert not shown


@pytest.mark.parametrize(("length", "is_cut"), [(1024, False), (1025, True)])
def test_a_fault_is_kept_with_so_many_characters(length: int, *, is_cut: bool) -> None:
    """It may quote what a tenant has written."""

    def view(_: object) -> object:
        raise ValueError("x" * length)

    view_, fault = view_or_fault(view, None)
    assert (view_, len(fault)) == (None, 1024 if is_cut else length)

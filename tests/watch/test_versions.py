"""Laws of the version gate, by itself: what is news, what is known, what has ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lean_sandbox.watch.kind import Entry, Key
from lean_sandbox.watch.store import Store
from lean_sandbox.watch.versions import TOMBSTONE_S, Age, Known, VersionGate

KEYS = st.builds(Key, st.sampled_from(["one", "two"]), st.sampled_from("abc"))
VERSIONS = st.integers(1, 5)
NOTHING = Known()


class Gate:
    """A gate, the store that it follows, and its clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.gate = VersionGate(lambda: self.now_s, TOMBSTONE_S)
        self.store: Store[Entry] = Store(lambda _entry: None)
        self.store.listeners.append(self.gate.follow)

    def put(self, name: str, version: int, *, uid: str = "", namespace: str = "ns") -> Entry:
        """Cache an object at a version."""
        entry = Entry(Key(namespace, name), uid or f"uid-of-{name}", version)
        self.store.put(entry)
        return entry

    def begin_list(self, *, namespace: str | None = None, resync: bool = False) -> None:
        """Begin a list over what is cached."""
        entries = [one for one in self.store if namespace in (None, one.key.namespace)]
        self.gate.begin_list(namespace, entries, reached=0, resync=resync)

    def listed(self, version: int, *, namespace: str | None = None) -> None:
        """List everything that is cached, at a version."""
        self.begin_list(namespace=namespace)
        self.gate.begin_page(namespace, str(version))
        self.gate.end_list(namespace)


# -- events ----------------------------------------------------------------------------------------


@given(first=VERSIONS, second=VERSIONS, is_whole=st.booleans())
def test_an_event_no_newer_than_the_entry_is_known(
    first: int, second: int, *, is_whole: bool
) -> None:
    """Nothing that comes late takes an entry back."""
    here = Gate()
    entry = here.put("a", max(first, second))
    assert here.gate.of_old_event(entry, min(first, second), is_whole=is_whole) is Age.KNOWN


@given(cached=VERSIONS, item=VERSIONS, listed=VERSIONS, resync=st.booleans())
def test_a_list_shows_that_a_store_was_restored_by_an_older_item_only(
    cached: int, item: int, listed: int, *, resync: bool
) -> None:
    """Older than the entry, in a list that had reached the entry; a response may be ahead of it."""
    here = Gate()
    entry = here.put("a", cached)
    here.begin_list(resync=resync)
    here.gate.begin_page(None, str(listed))
    item = min(item, cached)
    age = here.gate.of_old_event(entry, item, is_whole=True)
    if item < cached:
        assert age is (Age.RESTORED if listed >= cached else Age.KNOWN)
    else:
        assert age is (Age.LISTED_AGAIN if resync else Age.KNOWN)
    assert here.gate.of_old_event(entry, item, is_whole=False) is Age.KNOWN


def test_an_object_known_by_the_response_to_its_create_is_news_once_more() -> None:
    """Its event has the same version and shows more; after any newer one it is known."""
    here = Gate()
    entry = here.put("a", 5)
    here.gate.half_known.add(entry.key)
    assert here.gate.of_old_event(entry, 4, is_whole=False) is Age.KNOWN
    assert here.gate.of_old_event(entry, 5, is_whole=False) is Age.NEWS
    newer = here.put("a", 6)
    assert here.gate.of_old_event(newer, 6, is_whole=False) is Age.KNOWN
    here.gate.half_known.add(entry.key)
    here.store.remove(entry.key)
    assert not here.gate.half_known


# -- lists -----------------------------------------------------------------------------------------


@given(
    st.dictionaries(KEYS, VERSIONS), st.lists(KEYS), st.lists(KEYS), st.sampled_from([None, "one"])
)
def test_a_list_lacks_what_it_did_not_show(
    cached: dict[Key, int], added: list[Key], shown: list[Key], namespace: str | None
) -> None:
    """Of what was cached before or came meanwhile, in the namespace that is listed."""
    here = Gate()
    for key, version in cached.items():
        here.put(key.name, version, namespace=key.namespace)
    here.begin_list(namespace=namespace)
    here.gate.begin_page(namespace, "9")
    for key in added:
        here.put(key.name, 9, namespace=key.namespace)
    for key in shown:
        here.gate.present(key)
    missing, version = here.gate.end_list(namespace)
    expected = {*cached, *added} - set(shown)
    assert missing == sorted(key for key in expected if namespace in (None, key.namespace))
    assert version == 9
    assert not here.gate.is_listing(namespace or "ns")


@given(st.lists(VERSIONS, min_size=1), VERSIONS)
def test_a_list_below_what_was_known_before_it_shows_a_restored_store_once(
    cached: list[int], listed: int
) -> None:
    """Everything known when it was requested had been written by then."""
    here = Gate()
    for number, version in enumerate(cached):
        here.put(f"n{number}", version)
    here.begin_list()
    assert here.gate.begin_page(None, str(listed)) is (listed < max(cached))
    assert here.gate.begin_page(None, str(listed)) is False


def test_a_list_below_what_the_watch_had_reached_shows_a_restored_store() -> None:
    """Also where nothing is cached, as bookmarks have versions too."""
    here = Gate()
    here.gate.begin_list(None, [], reached=5, resync=False)
    assert here.gate.begin_page(None, "4")


def test_the_list_of_a_namespace_says_nothing_of_another() -> None:
    """Where all namespaces are listed together, that list covers each."""
    here = Gate()
    here.listed(7, namespace="one")
    assert [here.gate.listed_at(namespace) for namespace in ("one", "two")] == [7, 0]
    here.listed(9)
    assert [here.gate.listed_at(namespace) for namespace in ("one", "two")] == [9, 9]


# -- ends ------------------------------------------------------------------------------------------


@given(st.integers(0, 5), VERSIONS, st.floats(0, 2 * TOMBSTONE_S))
def test_what_has_ended_stays_so_for_as_long_as_a_request_may_take(
    ended: int, version: int, later_s: float
) -> None:
    """At its last version and before; at any version where nothing can follow (0)."""
    here = Gate()
    here.gate.note_end("u", ended)
    here.now_s += later_s
    here.gate.note_end("another", 0)
    if later_s <= TOMBSTONE_S:
        assert here.gate.has_ended("u", version) is (ended == 0 or version <= ended)
    else:
        assert not here.gate.has_ended("u", version)


def test_an_end_that_is_seen_again_is_remembered_from_then_on() -> None:
    """Others that were seen meanwhile are forgotten before it."""
    here = Gate()
    for uid in ("u", "v", "u"):
        here.gate.note_end(uid, 0)
        here.now_s += TOMBSTONE_S / 2
    here.now_s += 1.0
    here.gate.note_end("w", 0)
    assert here.gate.has_ended("u", 1)
    assert not here.gate.has_ended("v", 1)


def test_an_object_that_is_cached_has_not_ended() -> None:
    """A restored store has it again; another object under its name has ended it for good."""
    here = Gate()
    here.gate.note_end("u", 0)
    here.put("a", 3, uid="u")
    assert not here.gate.has_ended("u", 3)
    here.put("a", 4, uid="v")
    assert here.gate.has_ended("u", 9)


# -- responses -------------------------------------------------------------------------------------


@given(VERSIONS, st.integers(0, 5))
def test_a_response_older_than_the_entry_is_known(cached: int, version: int) -> None:
    """A version that is no number (0) never is: it may be news."""
    here = Gate()
    entry = here.put("a", cached)
    age = here.gate.of_response(entry, "ns", entry.uid, version, NOTHING)
    assert age is (Age.KNOWN if 0 < version < cached else Age.NEWS)


@pytest.mark.parametrize(("sent", "age"), [("before", Age.ENDED), ("after", Age.NEWS)])
def test_a_response_brings_nothing_back_that_ended_since_its_request(sent: str, age: Age) -> None:
    """What had ended when the request was sent is there again: the store was restored."""
    here = Gate()
    known = here.gate.known("ns", 0)
    here.gate.note_end("u", 5)
    if sent == "after":
        known = here.gate.known("ns", 0)
    assert here.gate.of_response(None, "ns", "u", 5, known) is age
    assert here.gate.of_response(None, "ns", "u", 6, known) is Age.NEWS


@given(VERSIONS, VERSIONS, VERSIONS)
def test_a_response_that_a_later_list_lacks_has_ended(
    before: int, since: int, version: int
) -> None:
    """One that the list of before the request lacks as well has come since."""
    here = Gate()
    here.listed(min(before, since))
    known = here.gate.known("ns", 0)
    here.listed(max(before, since))
    age = here.gate.of_response(None, "ns", "u", version, known)
    is_unlisted = min(before, since) < version <= max(before, since)
    assert age is (Age.UNLISTED if is_unlisted else Age.NEWS)


# -- all of it together ----------------------------------------------------------------------------


class Interleaving(RuleBasedStateMachine):
    """A server's objects, whose events and responses reach a store by its gate, in any order.

    Events come in the order of the writes, as by one watch; each response comes whenever it likes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.here = Gate()
        self.version = 0
        self.server: dict[Key, Entry] = {}
        # Entries as they were written; for an end, its version and what has ended.
        self.events: list[tuple[Entry, bool]] = []
        self.responses: list[tuple[Entry, Known]] = []

    @rule(key=KEYS)
    def write(self, key: Key) -> None:
        """Create or change an object."""
        self.version += 1
        old = self.server.get(key)
        uid = f"uid-{self.version}" if old is None else old.uid
        self.server[key] = Entry(key, uid, self.version)
        self.events.append((self.server[key], False))

    @precondition(lambda self: self.server)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Delete an object."""
        old = self.server.pop(data.draw(st.sampled_from(sorted(self.server))))
        self.version += 1
        self.events.append((Entry(old.key, old.uid, self.version), True))

    @precondition(lambda self: self.server)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """Send a GET that the server answers with what is there now; the answer is on its way."""
        entry = self.server[data.draw(st.sampled_from(sorted(self.server)))]
        held = self.here.store.get(entry.key)
        known = self.here.gate.known(entry.key.namespace, 0 if held is None else held.version)
        self.responses.append((entry, known))

    @precondition(lambda self: self.events)
    @rule()
    def event(self) -> None:
        """Take in the next event."""
        entry, is_end = self.events.pop(0)
        store = self.here.store
        gate = self.here.gate
        old = store.get(entry.key)
        if is_end:
            if old is None or (old.uid == entry.uid and old.version <= entry.version):
                store.remove(entry.key)
            gate.note_end(entry.uid, entry.version)
        elif old is None or entry.version > old.version:
            store.put(self._copy(entry))
        else:
            assert gate.of_old_event(old, entry.version, is_whole=False) is Age.KNOWN

    @precondition(lambda self: self.responses)
    @rule(data=st.data())
    def response(self, data: st.DataObject) -> None:
        """Take in one of the responses."""
        at = data.draw(st.integers(0, len(self.responses) - 1))
        entry, known = self.responses.pop(at)
        store = self.here.store
        gate = self.here.gate
        old = store.get(entry.key)
        age = gate.of_response(old, entry.key.namespace, entry.uid, entry.version, known)
        assert age in (Age.NEWS, Age.KNOWN, Age.ENDED)
        if age is Age.NEWS:
            store.put(self._copy(entry))

    @staticmethod
    def _copy(entry: Entry) -> Entry:
        return Entry(entry.key, entry.uid, entry.version)

    @invariant()
    def nothing_is_newer_than_the_server(self) -> None:
        """What is cached was written."""
        assert all(entry.version <= self.version for entry in self.here.store)

    def teardown(self) -> None:
        """Once everything has arrived, the store is as the server's."""
        while self.events:
            self.event()
        for entry, known in self.responses:
            old = self.here.store.get(entry.key)
            age = self.here.gate.of_response(
                old, entry.key.namespace, entry.uid, entry.version, known
            )
            if age is Age.NEWS:
                self.here.store.put(self._copy(entry))
        assert {entry.key: entry for entry in self.here.store} == self.server


TestInterleaving = Interleaving.TestCase

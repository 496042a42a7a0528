"""The events of objects that the server is to name wait for the responses to their creates."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from filters import Change
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry, sandbox_kind
from lean_sandbox.watch.writes import apply_response
from tests.watch.hand import Hand
from tests.watch.objects import owned_by, sandbox, sandbox_row

Json = dict[str, Any]
OWNER = "uid-of-pool"


def row(event_type: str, name: str, version: int, **fields: Any) -> Json:
    """Return an event of an object of the pool."""
    return sandbox_row(event_type, name, version, **{"ownerReferences": owned_by("pool"), **fields})


def whole(name: str, version: int) -> Json:
    """Return an object of the pool."""
    return sandbox(name, version, ownerReferences=owned_by("pool"))


@pytest.fixture
def boxes() -> Hand[SandboxEntry]:
    """Sandboxes fed by hand; the columns are known already."""
    hand = Hand(sandbox_kind())
    hand.listed(whole("known", 10))
    hand.saw(row("MODIFIED", "known", 11, first=True))
    return hand


def test_the_echo_of_a_create_waits_for_its_answer(boxes: Hand[SandboxEntry]) -> None:
    """What its maker knows from the answer is news to nobody."""
    with boxes.cache.own.creating("ns", OWNER):
        assert boxes.saw(row("ADDED", "new", 20)) == []
        boxes.learn(whole("new", 20))
    assert boxes.deltas == []
    assert boxes.get("new").version == 20


@pytest.mark.parametrize("answers_first", [True, False])
def test_a_new_object_waits_for_no_create_that_came_later(
    boxes: Hand[SandboxEntry], *, answers_first: bool
) -> None:
    """However many follow, it is told when those have ended that may have made it."""
    own = boxes.cache.own
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(own.creating("ns", OWNER))
        assert boxes.saw(row("ADDED", "new", 20)) == []
        second.enter_context(own.creating("ns", OWNER))
        assert boxes.saw(row("MODIFIED", "new", 21, generation=2)) == []
        if answers_first:
            boxes.learn(whole("other", 22))
        first.close()
        assert [delta.change for delta in boxes.deltas] == [Change.FIRST_SEEN]
        assert boxes.get("new").generation == 2
        assert boxes.saw(row("MODIFIED", "new", 23, generation=3)) == [Change.GENERATION]


def test_what_an_answer_has_shown_waits_for_no_other(boxes: Hand[SandboxEntry]) -> None:
    """The rest of a group of creates may take long."""
    own = boxes.cache.own
    with own.creating("ns", OWNER):
        with own.creating("ns", OWNER):
            boxes.saw(row("ADDED", "new", 20), row("MODIFIED", "new", 21, generation=2))
            boxes.learn(whole("new", 20))
        assert [delta.change for delta in boxes.deltas] == [Change.GENERATION]


@pytest.mark.parametrize(
    "event",
    [
        row("MODIFIED", "known", 20, generation=2),
        row("ADDED", "new", 20, ownerReferences=owned_by("another")),
        row("ADDED", "new", 20, ownerReferences=owned_by("pool", controller=False)),
        row("ADDED", "new", 20, namespace="elsewhere"),
        row("ADDED", "new", 20, ownerReferences=None),
    ],
)
def test_what_no_create_can_have_made_does_not_wait(boxes: Hand[SandboxEntry], event: Json) -> None:
    """Known objects, and those of another owner or namespace."""
    with boxes.cache.own.creating("ns", OWNER):
        assert len(boxes.saw(event)) == 1


def test_an_end_is_told_at_once_and_stays_one(boxes: Hand[SandboxEntry]) -> None:
    """Neither the event that waited nor the answer brings the object back."""
    known = boxes.cache.gate.known("ns", 0)
    with boxes.cache.own.creating("ns", OWNER):
        boxes.saw(row("ADDED", "new", 20))
        assert boxes.saw(row("DELETED", "new", 21)) == [Change.GONE]
        item = boxes.decode(whole("new", 20), boxes.kind.item_type)
        assert apply_response(boxes.cache, item, known=known, is_create=True)[1] is Change.GONE
    assert boxes.find("new") is None


def test_a_list_is_the_last_word(boxes: Hand[SandboxEntry]) -> None:
    """The object has ended while the watch was away."""
    with boxes.cache.own.creating("ns", OWNER):
        boxes.saw(row("ADDED", "new", 20))
        boxes.listed(whole("known", 30))
    assert boxes.find("new") is None


def test_an_event_that_is_not_understood_ends_no_write() -> None:
    """Whatever a tenant stores: the object itself is all that it costs."""
    hand = Hand(sandbox_kind())
    build = hand.kind.build

    def fragile(row: Any, item: Any, old: Any) -> SandboxEntry:
        if row.name == "odd":
            raise ValueError("odd")
        return build(row, item, old)

    hand.cache.kind = msgspec.structs.replace(hand.kind, build=fragile)
    with hand.cache.own.creating("ns", OWNER):
        hand.saw(row("ADDED", "odd", 20, first=True), row("ADDED", "fine", 21))
    assert hand.find("fine") is not None
    assert hand.find("odd") is None


class Creates(RuleBasedStateMachine):
    """Any order of creates, answers and events, against a model of sets."""

    def __init__(self) -> None:
        super().__init__()
        self.hand = Hand(sandbox_kind())
        self.hand.listed(sandbox("first", 1))
        self.hand.saw(sandbox_row("MODIFIED", "first", 2, first=True))
        self.hand.saw(sandbox_row("DELETED", "first", 3))
        self.versions = itertools.count(10)
        self.names = itertools.count()
        # In flight, by number: the owner, and what ends it.
        self.creates: dict[int, tuple[str, ExitStack]] = {}
        self.owners: dict[str, str] = {}
        # By name: the version that is known; the version that waits, and for which creates.
        self.known: dict[str, int] = {}
        self.waiting: dict[str, tuple[int, set[int]]] = {}
        self.first: dict[str, int] = {}

    def fields(self, name: str, event_type: str) -> Json:
        """Return the next event of an object."""
        version = next(self.versions)
        self.first.setdefault(name, version)
        return sandbox_row(event_type, name, version, ownerReferences=owned_by(self.owners[name]))

    def see(self, name: str, event_type: str) -> None:
        """Take an event, by the rules."""
        event = self.fields(name, event_type)
        version = int(event["object"]["rows"][0]["object"]["metadata"]["resourceVersion"])
        owner = self.owners[name]
        if name in self.waiting:
            self.waiting[name] = version, self.waiting[name][1]
        elif name not in self.known and (
            creates := {n for n, (made, _) in self.creates.items() if made == owner}
        ):
            self.waiting[name] = version, creates
        else:
            self.known[name] = version
        self.hand.saw(event)

    @rule(owner=st.sampled_from(["pool", "other"]))
    def begin(self, owner: str) -> None:
        """Send a create."""
        stack = ExitStack()
        stack.enter_context(self.hand.cache.own.creating("ns", f"uid-of-{owner}"))
        self.creates[next(self.names)] = owner, stack

    @rule(owner=st.sampled_from(["pool", "other"]))
    def added(self, owner: str) -> None:
        """An object is new, whoever has made it."""
        name = f"s{next(self.names)}"
        self.owners[name] = owner
        self.see(name, "ADDED")

    @precondition(lambda self: self.known or self.waiting)
    @rule(data=st.data())
    def modified(self, data: st.DataObject) -> None:
        """An object changes."""
        self.see(data.draw(st.sampled_from(sorted({*self.known, *self.waiting}))), "MODIFIED")

    @precondition(lambda self: self.known or self.waiting)
    @rule(data=st.data())
    def deleted(self, data: st.DataObject) -> None:
        """An object ends."""
        name = data.draw(st.sampled_from(sorted({*self.known, *self.waiting})))
        self.known.pop(name, None)
        self.waiting.pop(name, None)
        self.hand.saw(self.fields(name, "DELETED"))

    @precondition(lambda self: self.creates)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A create ends, with an answer that shows an object that waits, or without any."""
        number = data.draw(st.sampled_from(sorted(self.creates)))
        _, stack = self.creates.pop(number)
        may_show = sorted(name for name, (_, its) in self.waiting.items() if number in its)
        shown = data.draw(st.sampled_from(["", *may_show]))
        if shown:
            version = self.first[shown]
            owner = self.owners[shown]
            self.hand.learn(sandbox(shown, version, ownerReferences=owned_by(owner)))
            self.known[shown] = version
        stack.close()
        for name, (version, creates) in list(self.waiting.items()):
            creates.discard(number)
            if not creates or name in self.known:
                del self.waiting[name]
                self.known[name] = version

    @invariant()
    def nothing_waits_longer_and_nothing_is_told_earlier(self) -> None:
        """The cache knows what the model does."""
        cache = self.hand.cache
        found = {key.name: cache.get(key) for key in cache.keys("ns")}
        versions = {name: entry.version for name, entry in found.items() if entry is not None}
        assert versions == self.known
        assert all(Key("ns", name) not in cache for name in self.waiting)

    def teardown(self) -> None:
        """End what is in flight."""
        for _, stack in self.creates.values():
            stack.close()


TestCreates = Creates.TestCase

"""What an answer shows and what the watch shows, in whichever order, never leads backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters import Change
from lean_sandbox.watch.resources.pod import PodEntry, pod_kind
from lean_sandbox.watch.resources.sandbox import SandboxEntry, sandbox_kind
from lean_sandbox.watch.versions import TOMBSTONE_S
from lean_sandbox.watch.writes import apply_fetched, apply_response
from tests.watch.hand import Hand
from tests.watch.objects import page, pod, pod_row, sandbox, sandbox_row


def test_learning_never_notifies(boxes: Hand[SandboxEntry]) -> None:
    """Who asked knows the answer already, also of an object never seen."""
    boxes.learn(sandbox("a", 20, generation=4))
    entry, change = boxes.learn(sandbox("new", 21))
    assert change == Change.FIRST_SEEN
    assert boxes.get("new") is entry
    assert boxes.deltas == []


def test_learning_tells_what_others_have_changed(boxes: Hand[SandboxEntry]) -> None:
    """Between what was known and our answer somebody changed the spec: the answer shows it."""
    _, change = boxes.learn(sandbox("a", 20, generation=2))
    assert change == Change.GENERATION
    _, change = boxes.learn(sandbox("a", 21, generation=2))
    assert change == Change.NONE


@pytest.mark.parametrize("is_new", [True, False])
def test_the_first_row_after_an_answer_shows_no_change_but_a_version(is_new: bool) -> None:  # noqa: FBT001
    """A Pod has no address and no node yet: what the scheduler reports of it is news for itself."""
    hand = Hand(pod_kind())
    hand.listed(pod("b", 9))
    waits: dict[str, Any] = {"ip": "", "node": "", "phase": "Pending", "ready": False}
    found = hand.decode(pod("a", 10, **waits), hand.kind.item_type)
    shown = found.metadata.with_columns(hand.kind.new_columns) if is_new else found
    apply_response(hand.cache, shown, known=hand.cache.gate.known("ns", 9))
    row = {"status": "Pending", "ready": "0/1", "ip": "<none>", "node": "<none>"}
    assert hand.saw(pod_row("MODIFIED", "a", 11, first=True, **row)) == [Change.VERSION]


def test_an_answer_older_than_an_event_does_not_lead_back(boxes: Hand[SandboxEntry]) -> None:
    """The watch was faster: what it showed stays, and the answer says nothing changed."""
    boxes.saw(sandbox_row("MODIFIED", "a", 30, generation=3))
    entry, change = boxes.learn(sandbox("a", 20, generation=2))
    assert (entry.version, entry.generation, change) == (30, 3, Change.NONE)
    assert boxes.get("a") is entry


def test_an_answer_of_a_predecessor_does_not_replace_its_successor(
    boxes: Hand[SandboxEntry],
) -> None:
    """A GET that was under way while the object was replaced."""
    boxes.saw(sandbox_row("DELETED", "a", 30), sandbox_row("ADDED", "a", 31, uid="reborn"))
    entry, change = boxes.learn(sandbox("a", 20))
    assert (entry.uid, change) == ("reborn", Change.NONE)
    assert boxes.get("a").uid == "reborn"


def test_an_event_of_a_predecessor_does_not_replace_what_an_answer_showed(
    boxes: Hand[SandboxEntry],
) -> None:
    """We created a successor; the watch is still telling of the one before."""
    boxes.learn(sandbox("a", 40, uid="ours"))
    assert (
        boxes.saw(
            sandbox_row("MODIFIED", "a", 30, generation=9),
            sandbox_row("DELETED", "a", 31),
            sandbox_row("ADDED", "a", 40, uid="ours"),
        )
        == []
    )
    assert boxes.get("a").uid == "ours"
    assert boxes.saw(sandbox_row("DELETED", "a", 50, uid="ours")) == [Change.GONE]


def test_an_answer_does_not_bring_back_what_has_ended(boxes: Hand[SandboxEntry]) -> None:
    """The end overtook the answer: nothing would ever remove the object again."""
    boxes.saw(sandbox_row("DELETED", "a", 30))
    entry, change = boxes.learn(sandbox("a", 29))
    assert change == Change.GONE
    assert entry.version == 29
    assert boxes.find("a") is None


def test_an_answer_does_not_bring_back_what_a_relist_or_a_request_found_gone(
    boxes: Hand[SandboxEntry],
) -> None:
    """A synthesised delete and a 404 count like a seen one."""
    boxes.listed(sandbox("b", 50))
    assert boxes.learn(sandbox("a", 29))[1] == Change.GONE
    boxes.cache.forget(boxes.get("b").key, "uid-of-b")
    assert boxes.learn(sandbox("b", 50))[1] == Change.GONE
    assert len(boxes.cache) == 0


@pytest.mark.parametrize("comes", ["during the list", "after the list"])
def test_a_get_of_what_no_event_has_shown_does_not_outlive_a_list_without_it(comes: str) -> None:
    """It ended while the watch was away: no event will tell, and no later list would miss it."""
    hand = Hand(sandbox_kind())
    hand.listed(sandbox("a", 10))
    known = hand.cache.gate.known("ns", 0)
    found = hand.decode(sandbox("new", 20), hand.kind.item_type)
    hand.cache.begin_list(None)
    if comes == "during the list":
        apply_fetched(hand.cache, found, known=known)
    hand.feed.page(msgspec.json.encode(page([sandbox("a", 10)], 30)), initial=False)
    hand.cache.end_list(None)
    if comes == "after the list":
        apply_fetched(hand.cache, found, known=known)
    assert hand.find("new") is None
    assert hand.deltas[-1].change == Change.GONE


def test_a_get_after_a_list_is_believed_whatever_the_list_has_left_out() -> None:
    """An older version is no end then: the list could not read it, or its store was replaced."""
    hand = Hand(sandbox_kind())
    hand.listed(sandbox("a", 30))
    found = hand.decode(sandbox("new", 20), hand.kind.item_type)
    apply_fetched(hand.cache, found, known=hand.cache.gate.known("ns", 0))
    assert hand.get("new").version == 20


def test_a_get_that_an_event_has_overtaken_says_nothing_of_the_store() -> None:
    """What the watch did not show, as a Pod without the label, may be older than any list."""
    hand = Hand(pod_kind())
    hand.listed(pod("b", 30))
    known = hand.cache.gate.known("ns", 0)
    found = hand.decode(pod("a", 20, labels={}), hand.kind.item_type)
    hand.saw(pod_row("ADDED", "a", 40, first=True))
    apply_fetched(hand.cache, found, known=known)
    assert hand.get("a").version == 40


def test_an_answer_later_than_the_end_shows_that_it_was_none(boxes: Hand[SandboxEntry]) -> None:
    """An object that lost and got back what the selector asks for is remembered again."""
    boxes.saw(sandbox_row("DELETED", "a", 30))
    assert boxes.learn(sandbox("a", 31))[1] == Change.FIRST_SEEN
    assert boxes.get("a").version == 31
    assert boxes.saw(sandbox_row("ADDED", "a", 31)) == []


def test_an_end_that_an_answer_has_disproved_is_ignored(boxes: Hand[SandboxEntry]) -> None:
    """The watch is late with a DELETED that was only the selector's."""
    boxes.learn(sandbox("a", 40))
    assert boxes.saw(sandbox_row("DELETED", "a", 30)) == []
    assert boxes.get("a").version == 40


@pytest.mark.parametrize("version", ["11", "odd"])
def test_an_end_at_the_version_that_is_known_is_one(
    boxes: Hand[SandboxEntry], version: str
) -> None:
    """So is one at a version that says nothing."""
    assert boxes.get("a").version == 11
    ended = sandbox_row("DELETED", "a", 11, resourceVersion=version)
    assert boxes.saw(ended) == [Change.GONE]


def test_the_watch_may_show_an_object_again_after_its_end(boxes: Hand[SandboxEntry]) -> None:
    """Events come in order: what is added after it was deleted is there."""
    assert boxes.saw(
        sandbox_row("DELETED", "a", 30), sandbox_row("ADDED", "a", 31, first=True)
    ) == [Change.GONE, Change.FIRST_SEEN]
    boxes.learn(sandbox("a", 32))
    assert boxes.get("a").version == 32


def test_where_versions_are_no_numbers_each_event_is_news(boxes: Hand[SandboxEntry]) -> None:
    """None of them can be said to be older than another."""
    for generation, version in enumerate(("b", "c", "a"), start=5):
        row = sandbox_row("MODIFIED", "a", 0, generation=generation, resourceVersion=version)
        assert boxes.saw(row) == [Change.GENERATION]


def test_forgetting_names_the_very_object(boxes: Hand[SandboxEntry]) -> None:
    """A 404 speaks of the object that was asked for, not of one that took its name since.

    Its end is told: a list after a gap misses only what is remembered.
    """
    boxes.cache.forget(boxes.get("a").key, "another")
    assert boxes.find("a") is not None
    assert boxes.deltas == []
    boxes.cache.forget(boxes.get("a").key, "uid-of-a")
    assert boxes.find("a") is None
    (gone,) = boxes.deltas
    assert (gone.change, gone.new, gone.saw_deletion) == (Change.GONE, None, True)
    boxes.deltas.clear()
    assert boxes.saw(sandbox_row("MODIFIED", "a", 40)) == [Change.FIRST_SEEN]


def test_deleted_and_created_again_is_two_deltas(boxes: Hand[SandboxEntry]) -> None:
    """Each with what was known and what is known; nothing of the old one clings to the new."""
    boxes.saw(
        sandbox_row("DELETED", "a", 30, deletionTimestamp="2026-01-02T03:04:05Z"),
        sandbox_row("ADDED", "a", 31, uid="reborn"),
    )
    gone, made = boxes.deltas
    assert (gone.change, gone.new, gone.saw_deletion) == (Change.GONE, None, True)
    assert gone.old is not None
    assert gone.old.uid == "uid-of-a"
    assert (made.change, made.old) == (Change.FIRST_SEEN, None)
    assert made.new is not None
    assert made.new.needs_fetch
    assert made.new.uid == "reborn"


def test_a_successor_without_a_seen_end_is_a_re_creation(boxes: Hand[SandboxEntry]) -> None:
    """The delta holds both, and the status of the old one is not the new one's."""
    assert boxes.saw(sandbox_row("ADDED", "a", 31, uid="reborn")) == [Change.RECREATED]
    (delta,) = boxes.deltas
    assert delta.old is not None
    assert delta.new is not None
    assert (delta.old.uid, delta.new.uid) == ("uid-of-a", "reborn")
    assert delta.new.status is None
    assert boxes.learn(sandbox("a", 20))[0].uid == "reborn"


def test_the_end_of_an_object_never_seen_is_told(boxes: Hand[SandboxEntry]) -> None:
    """Its name is free now; what is known of it is what the event showed."""
    assert boxes.saw(sandbox_row("DELETED", "foreign", 30)) == [Change.GONE]
    (delta,) = boxes.deltas
    assert delta.old is not None
    assert delta.old.uid == "uid-of-foreign"
    assert not delta.saw_deletion


def test_a_late_answer_brings_nothing_back_however_much_has_ended_since(
    boxes: Hand[SandboxEntry],
) -> None:
    """A namespace of thousands ends while the answer to one status patch is on its way."""
    boxes.saw(*[sandbox_row("DELETED", f"x{number}", number) for number in range(100, 2000)])
    assert boxes.learn(sandbox("x100", 50))[1] == Change.GONE
    assert boxes.find("x100") is None


def test_tombstones_go_when_no_answer_can_be_under_way(boxes: Hand[SandboxEntry]) -> None:
    """Protection against late answers lasts longer than a request may take, and no longer."""
    boxes.saw(*[sandbox_row("DELETED", f"x{number}", number) for number in range(100, 2000)])
    boxes.clock.leap(TOMBSTONE_S + 1.0)
    boxes.saw(sandbox_row("DELETED", "last", 2000))
    assert len(boxes.cache.gate._tombstones) == 1


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_answer_of_a_restored_store_ends_what_was_learned_since(*, is_whole: bool) -> None:
    """The older store knows nothing of our DELETE, nor of the state that was fetched since."""
    hand = Hand(pod_kind())
    hand.listed(pod("a", 700))
    hand.cache.mark(hand.get("a"), is_delete_sent=True)
    item = hand.decode(pod("a", 100, phase="Pending", ready=False), hand.kind.item_type)
    apply_response(
        hand.cache, item if is_whole else item.metadata, known=hand.cache.gate.known("ns", 700)
    )
    entry: PodEntry = hand.get("a")
    assert entry.version == 100
    assert not entry.is_terminating
    assert entry.state is None or entry.state.phase == "Pending"


HISTORY: list[tuple[str, str, int]] = [
    ("ADDED", "first", 10),
    ("MODIFIED", "first", 20),
    ("DELETED", "first", 30),
    ("ADDED", "second", 40),
    ("MODIFIED", "second", 50),
]


@given(st.data())
def test_events_and_answers_in_any_interleaving_end_at_the_truth(data: st.DataObject) -> None:
    """Each answer may come as early as the state it shows or later; the last state wins."""
    hand = Hand(pod_kind())
    states = [entry for entry in HISTORY if entry[0] != "DELETED"]
    answers = data.draw(st.lists(st.sampled_from(states), max_size=6))
    steps: list[Callable[[], Any]] = []

    def event(kind: str, uid: str, version: int) -> Callable[[], Any]:
        return lambda: hand.saw(pod_row(kind, "a", version, uid=uid, first=True))

    def answer(uid: str, version: int) -> Callable[[], Any]:
        return lambda: hand.learn(pod("a", version, uid=uid))

    steps += [event(*entry) for entry in HISTORY]
    for _, uid, version in answers:
        # Answers are known to us in any order, and before or after any event.
        steps.insert(data.draw(st.integers(0, len(steps))), answer(uid, version))
    for step in steps:
        step()
    entry: PodEntry = hand.get("a")
    assert (entry.uid, entry.version) == ("second", 50)
    assert [held.uid for held in hand.cache.owned_by("ns", "uid-of-a")] == ["second"]

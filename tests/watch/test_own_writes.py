"""Two ways to learn of an object, its watch and our own answers, never lead backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters import Change
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.pod import PodEntry, pod_kind
from lean_sandbox.watch.resources.sandbox import SandboxEntry, sandbox_kind
from lean_sandbox.watch.versions import TOMBSTONE_S
from lean_sandbox.watch.writes import apply_fetched, apply_response, writing
from tests.support.names import POD_NAME, WARM_POOL
from tests.watch.hand import Hand
from tests.watch.objects import page, pod, pod_row, sandbox, sandbox_row

READY = {"Ready": "True", "Reason": "DependenciesReady"}


@pytest.fixture
def boxes() -> Hand[SandboxEntry]:
    """Sandboxes fed by hand; the columns are known already."""
    hand = Hand(sandbox_kind())
    hand.listed(sandbox("a", 10))
    assert hand.saw(sandbox_row("MODIFIED", "a", 11, first=True)) == []
    return hand


def test_the_event_of_our_own_write_is_dropped(boxes: Hand[SandboxEntry]) -> None:
    """The version that an answer returned is known when its event comes."""
    _, change = boxes.learn_metadata(
        sandbox("a", 20), {"Ready": "False", "Reason": "DependenciesNotReady"}
    )
    assert change == Change.COLUMNS
    echo = sandbox_row("MODIFIED", "a", 20, ready="False", reason="DependenciesNotReady")
    assert boxes.saw(echo) == []
    assert boxes.cache.dropped_known == 1
    later = sandbox_row("MODIFIED", "a", 21, ready="False", reason="DependenciesNotReady")
    assert boxes.saw(later) == []


def test_the_echo_of_a_write_waits_for_its_answer(boxes: Hand[SandboxEntry]) -> None:
    """The watch may be faster: what it shows wakes nobody, since the answer shows it as well."""
    columns = {"Ready": "False", "Reason": "DependenciesNotReady"}
    echo = sandbox_row("MODIFIED", "a", 20, ready="False", reason="DependenciesNotReady")
    with boxes.cache.own.writing(Key("ns", "a"), boxes.get("a").uid):
        assert boxes.saw(echo) == []
        boxes.learn_metadata(sandbox("a", 20), columns)
    assert boxes.deltas == []
    assert boxes.cache.dropped_known == 1


def test_the_echo_of_a_create_waits_for_its_answer(boxes: Hand[SandboxEntry]) -> None:
    """An object that its maker knows from the answer is new to nobody when its event comes."""
    with boxes.cache.own.writing(Key("ns", "new")):
        assert boxes.saw(sandbox_row("ADDED", "new", 20)) == []
        boxes.learn_metadata(sandbox("new", 20), READY)
    assert boxes.deltas == []
    assert boxes.get("new").version == 20


def test_what_others_create_during_a_create_that_fails_is_told_after_it(
    boxes: Hand[SandboxEntry],
) -> None:
    """Somebody else took the name: that is news once the answer has said so."""
    with boxes.cache.own.writing(Key("ns", "new")):
        assert boxes.saw(sandbox_row("ADDED", "new", 20)) == []
    assert [delta.change for delta in boxes.deltas] == [Change.FIRST_SEEN]


def test_a_list_does_not_wait_for_a_write(boxes: Hand[SandboxEntry]) -> None:
    """What a list shows is compared with what is known before the list ends."""
    with boxes.cache.own.writing(Key("ns", "a"), boxes.get("a").uid):
        boxes.listed(sandbox("a", 30, generation=5))
        assert boxes.get("a").generation == 5


def test_the_echoes_of_two_writes_wait_for_both_answers(boxes: Hand[SandboxEntry]) -> None:
    """The answer that comes first does not let go what is still the echo of the other write."""
    with boxes.cache.own.writing(Key("ns", "a"), boxes.get("a").uid):
        with boxes.cache.own.writing(Key("ns", "a"), boxes.get("a").uid):
            boxes.learn_metadata(sandbox("a", 20), READY)
        assert boxes.saw(sandbox_row("MODIFIED", "a", 21, generation=2)) == []
        boxes.learn_metadata(sandbox("a", 21, generation=2), READY)
    assert boxes.deltas == []


@pytest.mark.parametrize(
    ("written", "shown", "is_ours"),
    [
        ({"metadata": {"labels": {WARM_POOL: "x"}}}, {"labels": {WARM_POOL: "x"}}, True),
        ({"metadata": {"labels": {WARM_POOL: "x"}}}, {"labels": {WARM_POOL: "y"}}, False),
        ({"metadata": {"labels": {"b": "x"}}}, {"labels": {WARM_POOL: "x"}}, False),
        ({"metadata": {"annotations": {POD_NAME: "x"}}}, {"annotations": {POD_NAME: "x"}}, True),
        ({"metadata": {"annotations": {POD_NAME: None}}}, {"annotations": {POD_NAME: "x"}}, False),
        ({"spec": {}}, {"generation": 2}, True),
        ({"status": {}}, {"generation": 2}, False),
        ({"spec": {}}, {"deletionTimestamp": "2026-01-02T03:04:05Z"}, False),
    ],
)
def test_a_response_shows_what_others_have_written(
    boxes: Hand[SandboxEntry], written: dict[str, Any], shown: dict[str, Any], *, is_ours: bool
) -> None:
    """Whatever our own writes under way do not explain; here there is another beside the one."""
    before = boxes.get("a")
    with (
        boxes.cache.own.writing(Key("ns", "a"), before.uid, written),
        boxes.cache.own.writing(Key("ns", "a"), before.uid, {"status": {"nodeName": "n"}}),
    ):
        after, _ = boxes.learn_metadata(sandbox("a", 20, **shown), READY)
        assert boxes.cache.own.explain(before, after) is is_ours


WRITTEN = SandboxStatus(conditions=(Condition("Ready", "True", "DependenciesReady"),))


def known(hand: Hand[SandboxEntry]) -> SandboxStatus:
    """Return the status that is known of the object; fails if it has to be fetched."""
    entry = hand.get("a")
    assert not entry.needs_fetch
    assert entry.status is not None
    return entry.status


def test_a_status_is_remembered_though_another_answer_was_faster(
    boxes: Hand[SandboxEntry],
) -> None:
    """The metadata that overtook its answer say nothing of the status; nor does a patch of them."""
    entry = boxes.get("a")
    item = boxes.decode(sandbox("a", 20), boxes.kind.item_type)
    with writing(boxes.cache, entry, {"status": {}}, status=WRITTEN) as write:
        boxes.learn_metadata(sandbox("a", 30), READY)
        assert not write.applied(item, as_metadata=True).is_latest
    assert known(boxes) is WRITTEN
    with writing(boxes.cache, boxes.get("a"), {"metadata": {}}) as write:
        boxes.learn_metadata(sandbox("a", 50), READY)
        assert not write.applied(
            boxes.decode(sandbox("a", 40), boxes.kind.item_type), as_metadata=True
        ).is_latest
    assert known(boxes) is WRITTEN
    assert boxes.get("a").version == 50


def test_a_newer_status_that_was_read_meanwhile_stays(boxes: Hand[SandboxEntry]) -> None:
    """Somebody else wrote it after ours."""
    item = boxes.decode(sandbox("a", 20), boxes.kind.item_type)
    with writing(boxes.cache, boxes.get("a"), {"status": {}}, status=WRITTEN) as write:
        theirs = boxes.learn(sandbox("a", 30, reason="Forged"))[0].status
        write.applied(item, as_metadata=True)
    assert known(boxes) is theirs


def test_a_status_is_not_that_of_a_successor(boxes: Hand[SandboxEntry]) -> None:
    """Of neither object it was known when the write was sent."""
    boxes.saw(sandbox_row("MODIFIED", "a", 12, ready="True", reason="Forged"))
    item = boxes.decode(sandbox("a", 20), boxes.kind.item_type)
    with writing(boxes.cache, boxes.get("a"), {"status": {}}, status=WRITTEN) as write:
        boxes.saw(sandbox_row("DELETED", "a", 30), sandbox_row("ADDED", "a", 31, uid="other"))
        write.applied(item, as_metadata=True)
    assert (boxes.get("a").uid, boxes.get("a").status) == ("other", None)


def test_an_answer_that_shows_another_object_ends_ours(boxes: Hand[SandboxEntry]) -> None:
    """The watch is yet to show that; who wrote is told that nothing was applied."""
    item = boxes.decode(sandbox("a", 20, uid="other"), boxes.kind.item_type)
    with writing(boxes.cache, boxes.get("a"), {"status": {}}, status=WRITTEN) as write:
        assert not write.applied(item, as_metadata=True).is_latest
    assert boxes.find("a") is None
    assert [delta.change for delta in boxes.deltas] == [Change.GONE]


def test_an_answer_that_shows_another_spec_is_left_to_the_watch(boxes: Hand[SandboxEntry]) -> None:
    """If the writer says which spec it has read; the event reaches all who wait for it."""
    before = boxes.get("a")
    for generation, version in ((2, 11), (1, 20)):
        item = boxes.decode(sandbox("a", 20, generation=generation), boxes.kind.item_type)
        with writing(boxes.cache, before, {"status": {}}, status=WRITTEN, generation=1) as write:
            is_latest = write.applied(item, as_metadata=True).is_latest
        assert (is_latest, boxes.get("a").version) == (version == 20, version)
    with writing(boxes.cache, boxes.get("a"), {"status": {}}, status=WRITTEN) as write:
        item = boxes.decode(sandbox("a", 30, generation=2), boxes.kind.item_type)
        assert write.applied(item, as_metadata=True).is_latest


def test_what_others_write_during_a_write_is_told_after_it(boxes: Hand[SandboxEntry]) -> None:
    """Also when the write fails; other objects and new ones do not wait."""
    with boxes.cache.own.writing(Key("ns", "a"), boxes.get("a").uid):
        assert boxes.saw(sandbox_row("ADDED", "b", 20)) == [Change.FIRST_SEEN]
        assert boxes.saw(sandbox_row("MODIFIED", "a", 21, generation=2)) == []
        assert boxes.saw(sandbox_row("MODIFIED", "a", 22, generation=3)) == []
    assert [delta.change for delta in boxes.deltas] == [Change.GENERATION]
    assert boxes.get("a").generation == 3


def test_a_successor_does_not_wait_for_the_answer_to_a_write_of_its_predecessor(
    boxes: Hand[SandboxEntry],
) -> None:
    """It is another object, of which the answer says nothing."""
    uid = boxes.get("a").uid
    boxes.saw(sandbox_row("DELETED", "a", 20))
    with boxes.cache.own.writing(Key("ns", "a"), uid):
        assert boxes.saw(sandbox_row("ADDED", "a", 21, uid="other")) == [Change.FIRST_SEEN]


def test_an_end_during_a_write_is_told_at_once_and_stays_one(boxes: Hand[SandboxEntry]) -> None:
    """What was held back of the object does not bring it to life again."""
    with boxes.cache.own.writing(Key("ns", "a"), boxes.get("a").uid):
        assert boxes.saw(sandbox_row("MODIFIED", "a", 20, generation=2)) == []
        assert boxes.saw(sandbox_row("DELETED", "a", 21, generation=2)) == [Change.GONE]
    assert boxes.find("a") is None


def test_what_waits_for_a_create_does_not_outlive_a_list_without_it(
    boxes: Hand[SandboxEntry],
) -> None:
    """The name was taken and came free while the watch was away; no event will tell of its end."""
    with boxes.cache.own.writing(Key("ns", "new")):
        assert boxes.saw(sandbox_row("ADDED", "new", 20)) == []
        boxes.listed(sandbox("a", 11), sandbox("b", 30))
    assert boxes.find("new") is None


def test_what_waits_for_a_write_does_not_bring_back_what_a_request_found_gone(
    boxes: Hand[SandboxEntry],
) -> None:
    """A 404 is later than any event that came before it."""
    uid = boxes.get("a").uid
    with boxes.cache.own.writing(Key("ns", "a"), uid):
        assert boxes.saw(sandbox_row("MODIFIED", "a", 20, generation=2)) == []
        boxes.cache.forget(Key("ns", "a"), uid)
    assert boxes.find("a") is None


def test_what_waits_for_a_write_ends_with_its_object_though_a_successor_is_known(
    boxes: Hand[SandboxEntry],
) -> None:
    """A GET was ahead of the watch, which then tells of the end of both."""
    with boxes.cache.own.writing(Key("ns", "a"), boxes.get("a").uid):
        boxes.learn(sandbox("a", 40, uid="other"))
        boxes.saw(
            sandbox_row("MODIFIED", "a", 20),
            sandbox_row("DELETED", "a", 30),
            sandbox_row("DELETED", "a", 50, uid="other"),
        )
    assert boxes.find("a") is None


def test_what_waits_for_a_write_is_told_if_it_is_later_than_the_answer_without_the_label() -> None:
    """The Pod lost the label by which it is watched and has it again: that is the last word."""
    hand = Hand(pod_kind())
    hand.listed(pod("a", 10))
    with hand.cache.own.writing(Key("ns", "a"), hand.get("a").uid):
        hand.saw(pod_row("DELETED", "a", 20, first=True))
        hand.saw(pod_row("ADDED", "a", 30))
        hand.learn(pod("a", 21, labels={}))
    assert hand.get("a").version == 30


def test_learning_never_notifies(boxes: Hand[SandboxEntry]) -> None:
    """Who asked knows the answer already, also of an object never seen."""
    boxes.learn(sandbox("a", 20, generation=4))
    entry, change = boxes.learn(sandbox("new", 21))
    assert change == Change.FIRST_SEEN
    assert boxes.get("new") is entry
    assert boxes.deltas == []


def test_learning_tells_what_others_changed_meanwhile(boxes: Hand[SandboxEntry]) -> None:
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


def test_nor_what_a_relist_or_a_request_has_shown_to_be_gone(boxes: Hand[SandboxEntry]) -> None:
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


def test_the_watch_may_show_an_object_again_after_its_end(boxes: Hand[SandboxEntry]) -> None:
    """Events come in order: what is added after it was deleted is there."""
    assert boxes.saw(
        sandbox_row("DELETED", "a", 30), sandbox_row("ADDED", "a", 31, first=True)
    ) == [Change.GONE, Change.FIRST_SEEN]
    boxes.learn(sandbox("a", 32))
    assert boxes.get("a").version == 32


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


def test_a_foreign_status_contradicts_and_asks_for_a_get(boxes: Hand[SandboxEntry]) -> None:
    """Somebody else wrote the status: the entry admits that it no longer knows it."""
    assert not boxes.get("a").needs_fetch
    changes = boxes.saw(sandbox_row("MODIFIED", "a", 30, ready="True", reason="Forged"))
    assert changes == [Change.COLUMNS]
    assert boxes.get("a").status is None
    assert boxes.get("a").needs_fetch
    boxes.learn(sandbox("a", 30, reason="Forged"))
    assert not boxes.get("a").needs_fetch


def test_a_contradiction_passes_whatever_the_predicate_remembers(boxes: Hand[SandboxEntry]) -> None:
    """Our write was undone before its event came: the row repeats what the predicate saw last."""
    boxes.saw(sandbox_row("MODIFIED", "a", 12, ready="False", reason="Later"))
    entry, _ = boxes.learn(sandbox("a", 13))
    assert entry.status is not None
    row = sandbox_row("MODIFIED", "a", 14, ready="False", reason="Later")
    assert boxes.saw(row) == [Change.COLUMNS]


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

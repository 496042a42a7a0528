"""While a write of ours is under way, events of its object wait; its answer says what is news."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from filters import Change
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.watch.kind import Key, Representation
from lean_sandbox.watch.resources.pod import pod_kind
from lean_sandbox.watch.resources.sandbox import SandboxEntry, sandbox_kind
from lean_sandbox.watch.writes import writing
from tests.support.names import POD_NAME, WARM_POOL
from tests.watch.hand import Hand
from tests.watch.objects import event, pod, pod_row, sandbox, sandbox_row

READY = {"Ready": "True", "Reason": "DependenciesReady"}


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


def test_a_list_of_another_namespace_lets_nothing_go() -> None:
    """As of one that may never be listed, where each has a list and a watch of its own."""
    hand = Hand(sandbox_kind(Representation.FULL), namespace="ns")
    hand.cache.begin_list("other")
    with hand.cache.own.writing(Key("ns", "a"), "uid-of-a"):
        hand.feed.full_line(msgspec.json.encode(event("MODIFIED", sandbox("a", 20))))
        assert hand.find("a") is None
        hand.cache.begin_list("other")
    assert hand.get("a").version == 20


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


def test_a_newer_status_that_was_read_during_the_write_stays(boxes: Hand[SandboxEntry]) -> None:
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


def test_an_answer_that_shows_a_pod_without_its_label_ends_it_once() -> None:
    """Somebody took the label away meanwhile; nothing tells of an object that is not watched."""
    hand = Hand(pod_kind())
    hand.listed(pod("a", 10))
    item = hand.decode(pod("a", 20, labels={}), hand.kind.item_type)
    with writing(hand.cache, hand.get("a"), {"metadata": {"annotations": {}}}) as write:
        write.applied(item, as_metadata=True)
    assert [(delta.change, delta.new) for delta in hand.deltas] == [(Change.GONE, None)]


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

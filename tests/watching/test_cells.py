"""A watch of bare cells: what cells show is taken in, and what they hide is doubted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters import Change
from lean_sandbox.model.names import NAME_HASH_LABEL, name_hash
from lean_sandbox.watch.decode import UnreadableForm
from lean_sandbox.watch.objects import NEW_POD_COLUMNS, READY, PodEntry
from lean_sandbox.watch.resources import kinds
from lean_sandbox.watch.rows import row_of
from lean_sandbox.watch.store import Key
from tests.watching.hand import Hand
from tests.watching.objects import POD_COLUMNS, Json, pod, pod_cells, pod_row, table

UNSCHEDULED: Json = {"status": "Pending", "ready": "0/1", "ip": "<none>", "node": "<none>"}
STARTING: Json = {"status": "ContainerCreating", "ready": "0/1", "ip": "<none>"}


@pytest.fixture
def pods() -> Hand[PodEntry]:
    """Pods of one namespace fed by hand: ``a`` was listed, and the columns are known."""
    hand = Hand(kinds.pods(), namespace="ns")
    hand.listed(pod("a", 10))
    assert hand.saw(pod_cells("BOOKMARK", "", 11, first=True)) == []
    return hand


def created(hand: Hand[PodEntry], name: str, version: int) -> PodEntry:
    """Take the answer to a create of our own, which shows the metadata alone."""
    item = kinds.pods().item_type
    decoded = hand.decode(pod(name, version, phase="Pending", ip="", node=""), item)
    row = row_of(decoded.metadata)
    row.columns = NEW_POD_COLUMNS
    return hand.cache.apply_create_response(row)


def test_a_change_that_cells_show_is_taken_in_and_told(pods: Hand[PodEntry]) -> None:
    """Readiness is lost; labels and owner stay what they were."""
    before = pods.get("a")
    assert pods.saw(pod_cells("MODIFIED", "a", 20, ready="0/1")) == [Change.COLUMNS]
    after = pods.get("a")
    assert (after.version, after.is_stale) == (20, True)
    assert (after.uid, after.labels, after.owner) == (before.uid, before.labels, before.owner)


def test_an_event_without_a_change_in_the_cells_is_doubted_once(pods: Hand[PodEntry]) -> None:
    """Something was written that cells do not show: a look is due, and one is enough."""
    assert pods.saw(pod_cells("MODIFIED", "a", 20)) == [Change.COLUMNS]
    assert pods.get("a").is_stale
    assert pods.saw(pod_cells("MODIFIED", "a", 21)) == []
    assert pods.get("a").version == 21
    pods.learn(pod("a", 21, labels={NAME_HASH_LABEL: name_hash("a"), "app": "other"}))
    assert not pods.get("a").is_stale
    assert (pods.get("a").labels or {})["app"] == "other"


def test_the_event_of_our_own_write_raises_no_doubt(pods: Hand[PodEntry]) -> None:
    """Its version is known from the answer."""
    pods.learn(pod("a", 20, labels={NAME_HASH_LABEL: name_hash("a"), "ours": "x"}))
    assert pods.saw(pod_cells("MODIFIED", "a", 20)) == []
    assert not pods.get("a").is_stale


def test_the_echo_of_our_own_write_raises_no_doubt_before_its_answer(
    pods: Hand[PodEntry],
) -> None:
    """It waits for the answer; what somebody else wrote meanwhile is doubted after it."""
    with pods.cache.writing(Key("ns", "a")):
        assert pods.saw(pod_cells("MODIFIED", "a", 20)) == []
        pods.learn(pod("a", 20))
    assert pods.notices == []
    assert not pods.get("a").is_stale
    with pods.cache.writing(Key("ns", "a")):
        assert pods.saw(pod_cells("MODIFIED", "a", 30), pod_cells("MODIFIED", "a", 31)) == []
        pods.learn(pod("a", 30))
    assert [notice.change for notice in pods.notices] == [Change.COLUMNS]
    assert pods.get("a").is_stale


def test_what_happens_during_our_own_write_is_told_after_it(pods: Hand[PodEntry]) -> None:
    """Readiness is news whoever is writing, and an end waits for nobody."""
    with pods.cache.writing(Key("ns", "a")):
        assert pods.saw(pod_cells("MODIFIED", "a", 20, ready="0/1")) == []
        pods.learn(pod("a", 19))
    assert [notice.change for notice in pods.notices] == [Change.COLUMNS]
    assert pods.get("a").is_stale
    with pods.cache.writing(Key("ns", "a")):
        assert pods.saw(pod_cells("DELETED", "a", 30)) == [Change.GONE]


def test_deletion_shows_as_a_word_and_its_end_as_an_end(pods: Hand[PodEntry]) -> None:
    """Of a Pod that is going nothing else is asked: what cells repeat about it is dropped."""
    going: Json = {"status": "Terminating"}
    assert pods.saw(pod_cells("MODIFIED", "a", 20, **going)) == [Change.DELETING]
    assert pods.get("a").is_deleting
    assert not pods.get("a").is_stale
    assert pods.saw(pod_cells("MODIFIED", "a", 21, **going)) == []
    assert pods.saw(pod_cells("DELETED", "a", 22, **going)) == [Change.GONE]
    assert pods.notices[0].saw_deletion
    assert pods.find("a") is None


def test_an_end_without_deletion_has_only_left_the_selector(pods: Hand[PodEntry]) -> None:
    """The tracking label was taken away; the Pod may live on."""
    assert pods.saw(pod_cells("DELETED", "a", 20)) == [Change.GONE]
    assert not pods.notices[0].saw_deletion


def test_the_watch_may_be_faster_than_the_answer_to_a_create(pods: Hand[PodEntry]) -> None:
    """What it shows waits for the answer, and counts once that names the object."""
    assert (
        pods.saw(
            pod_cells("ADDED", "new", 20, **UNSCHEDULED),
            pod_cells("MODIFIED", "new", 21, **STARTING),
        )
        == []
    )
    assert pods.find("new") is None
    entry = created(pods, "new", 20)
    assert entry.version == 21
    assert [notice.change for notice in pods.notices] == [Change.COLUMNS | Change.VERSION]
    assert not pods.cache.strangers


def test_the_first_event_of_a_created_object_is_heard_after_its_answer(
    pods: Hand[PodEntry],
) -> None:
    """An ordinary one tells nothing new; one of a Pod that is held back by gates does."""
    created(pods, "new", 20)
    assert pods.saw(pod_cells("ADDED", "new", 20, **UNSCHEDULED)) == []
    created(pods, "gated", 21)
    gated: Json = {**UNSCHEDULED, "status": "SchedulingGated"}
    assert pods.saw(pod_cells("ADDED", "gated", 21, **gated)) == [Change.COLUMNS]


def test_an_answer_does_not_bring_back_what_has_ended(pods: Hand[PodEntry]) -> None:
    """Created, deleted by another and gone before the answer of the create was read."""
    assert (
        pods.saw(
            pod_cells("ADDED", "new", 20, **UNSCHEDULED),
            pod_cells("DELETED", "new", 22, status="Terminating"),
        )
        == []
    )
    created(pods, "new", 20)
    assert pods.find("new") is None
    created(pods, "new", 23)
    assert pods.get("new").version == 22


def test_a_list_introduces_what_has_waited(pods: Hand[PodEntry]) -> None:
    """A later row counts on top of what the list showed; an earlier one is known."""
    pods.saw(pod_cells("ADDED", "b", 20), pod_cells("MODIFIED", "c", 31, ready="0/1"))
    pods.listed(pod("a", 10), pod("b", 30), pod("c", 30))
    assert not pods.cache.strangers
    assert (pods.get("b").version, pods.get("b").hint) == (30, READY)
    assert (pods.get("c").version, pods.get("c").is_stale) == (31, True)


def test_a_namespace_of_another_shard_has_no_strangers() -> None:
    """Nobody would ever make them known."""
    hand = Hand(kinds.pods(), namespace="ns")
    hand.cache.narrow(lambda namespace: namespace != "ns")
    assert hand.saw(pod_cells("ADDED", "a", 20, first=True)) == []
    assert not hand.cache.strangers


@pytest.mark.parametrize("lacks", ["the name", "the columns", "the version", "cells"])
def test_cells_that_do_not_do_are_refused(lacks: str) -> None:
    """Nothing is guessed: another form is asked for."""
    hand = Hand(kinds.pods(), namespace="ns")
    event = pod_cells("ADDED", "a", 20, first=lacks != "the columns")
    body = event["object"]
    if lacks == "the name":
        body["columnDefinitions"][0]["name"] = "Title"
    if lacks == "the version":
        body["metadata"] = {}
    if lacks == "cells":
        body["rows"][0]["cells"] = ["a"]
    with pytest.raises(UnreadableForm, match="cells"):
        hand.saw(event)
    assert hand.feed.version is None


def test_a_row_of_cells_across_all_namespaces_is_skipped() -> None:
    """It would not say of which namespace it is."""
    hand = Hand(kinds.pods())
    assert hand.saw(pod_cells("ADDED", "a", 20, first=True)) == []
    assert hand.feed.statistics.undecodable == 1


_STATES: tuple[Json, ...] = (
    UNSCHEDULED,
    {**UNSCHEDULED, "status": "SchedulingGated"},
    STARTING,
    {"status": "Running", "ready": "0/1"},
    {},
    {"status": "Error", "ready": "0/1"},
    {"ip": "10.0.0.9"},
    {"status": "Terminating"},
)


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.sampled_from(["state", "label", "look", "gone", "made"]),
            st.sampled_from(_STATES),
        ),
        max_size=25,
    )
)
def test_cells_and_rows_with_metadata_come_to_the_same(
    steps: list[tuple[str, str, Json]],
) -> None:
    """Whatever happens to Pods: readiness, place, deletion and end are the same in both forms.

    What cells hide, as a label, is either the same as well, or a look is due.
    """
    bare = Hand(kinds.pods(), namespace="ns")
    rich = Hand(kinds.pods())
    for hand in (bare, rich):
        hand.listed(pod("a", 10))
    bare.saw(pod_cells("BOOKMARK", "", 10, first=True))
    rich.saw(table("BOOKMARK", {"resourceVersion": "10"}, [], POD_COLUMNS))
    alive: dict[str, tuple[Json, str]] = {"a": ({}, "web")}
    for version, (name, step, state) in enumerate(steps, start=11):
        held = alive.get(name)
        if held is None:
            if step == "made":
                alive[name] = (UNSCHEDULED, "web")
                fields: Json = {"uid": f"uid-{version}", "labels": _labels(name, "web")}
                rich.saw(pod_row("ADDED", name, version, **UNSCHEDULED, **fields))
                bare.saw(pod_cells("ADDED", name, version, **UNSCHEDULED))
                shown = pod(name, version, phase="Pending", ready=False, ip="", node="", **fields)
                bare.learn(shown)
                rich.learn(shown)
            continue
        cells, label = held
        uid = rich.get(name).uid
        if step == "gone":
            del alive[name]
            rich.saw(_rich("DELETED", name, version, cells, label, uid))
            bare.saw(pod_cells("DELETED", name, version, **cells))
            continue
        if step == "look":
            shown = _whole(name, version - 1, cells, label, uid)
            for hand in (bare, rich):
                hand.learn(shown)
            continue
        is_going = cells.get("status") == "Terminating"
        cells, label = (
            (cells if is_going else state, label) if step == "state" else (cells, f"l{version}")
        )
        alive[name] = (cells, label)
        rich.saw(_rich("MODIFIED", name, version, cells, label, uid))
        bare.saw(pod_cells("MODIFIED", name, version, **cells))
        _compare(bare.get(name), rich.get(name), label)
    assert {key.name for key in bare.store.keys(None)} == set(alive)
    assert {key.name for key in rich.store.keys(None)} == set(alive)


def _labels(name: str, app: str) -> Json:
    return {NAME_HASH_LABEL: name_hash(name), "app": app}


def _rich(event_type: str, name: str, version: int, cells: Json, label: str, uid: str) -> Json:
    deleted = "2026-01-02T03:04:06Z" if cells.get("status") == "Terminating" else None
    fields: Json = {"uid": uid, "labels": _labels(name, label), "deletionTimestamp": deleted}
    return pod_row(event_type, name, version, **cells, **fields)


def _whole(name: str, version: int, cells: Json, label: str, uid: str) -> Json:
    status = cells.get("status", "Running")
    phase = {"Running": "Running", "Terminating": "Running", "Error": "Failed"}.get(
        status, "Pending"
    )
    ip, node = cells.get("ip", "10.0.0.1"), cells.get("node", "node-1")
    return pod(
        name,
        version,
        phase=phase,
        ready=phase == "Running" and cells.get("ready", "1/1") == "1/1",
        ip="" if ip == "<none>" else ip,
        node="" if node == "<none>" else node,
        uid=uid,
        labels=_labels(name, label),
        deletionTimestamp="2026-01-02T03:04:06Z" if status == "Terminating" else None,
    )


def _compare(bare: PodEntry, rich: PodEntry, label: str) -> None:
    assert (bare.key, bare.uid, bare.version) == (rich.key, rich.uid, rich.version)
    assert (bare.hint, bare.is_deleting, bare.owner) == (rich.hint, rich.is_deleting, rich.owner)
    assert bare.is_stale or not rich.is_stale
    shows_label = (bare.labels or {}).get("app") == label
    assert shows_label or bare.is_stale or bare.is_deleting

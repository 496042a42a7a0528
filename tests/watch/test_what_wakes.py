"""Which events of which kind wake somebody, and which are dropped."""

from __future__ import annotations

from typing import Any

import pytest

from filters import Change
from lean_sandbox.model import names
from lean_sandbox.watch.kind import Representation
from lean_sandbox.watch.resources.children import pvc_kind, service_kind
from lean_sandbox.watch.resources.extensions import CLAIM_ANNOTATIONS, ClaimEntry, claim_kind
from lean_sandbox.watch.resources.pod import pod_kind
from lean_sandbox.watch.resources.sandbox import SandboxEntry, sandbox_kind
from tests.watch.hand import Hand
from tests.watch.objects import (
    meta,
    owned_by,
    partial,
    pod,
    pod_meta,
    pod_row,
    sandbox,
    sandbox_row,
)

DELETING = "2026-01-02T03:04:05Z"
TRACKING = {names.NAME_HASH_LABEL: names.name_hash("a")}
LISTED = {
    names.PROPAGATED_ANNOTATIONS_ANNOTATION: "note",
    names.PROPAGATED_LABELS_ANNOTATION: "app",
    "note": "one",
    "kubelet/foreign": "x",
}


def changes_of(before: dict[str, Any], after: dict[str, Any]) -> Change | None:
    """Return what a Pod's row told after another one, ``None`` when it was dropped."""
    hand = Hand(pod_kind())
    hand.saw(pod_row("ADDED", "a", 10, first=True, **before))
    told = hand.saw(pod_row("MODIFIED", "a", 11, **after))
    assert len(told) <= 1
    return told[0] if told else None


PENDING = {"status": "Pending", "ready": "0/1", "ip": "<none>", "node": "node-1"}


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({}, {"ready": "0/1"}, Change.COLUMNS),
        ({"ready": "0/1"}, {}, Change.COLUMNS),
        ({"gates": "2/2"}, {"gates": "1/2"}, Change.COLUMNS),
        ({"gates": "0/1"}, {"gates": "1/1"}, Change.COLUMNS),
        ({}, {"status": "Error", "ready": "0/1"}, Change.COLUMNS),
        ({}, {"status": "CrashLoopBackOff", "ready": "0/1"}, Change.COLUMNS),
        (PENDING, {**PENDING, "status": "Running"}, Change.COLUMNS),
        ({}, {"ip": "10.0.0.2"}, Change.COLUMNS),
        ({}, {"node": "node-2"}, Change.COLUMNS),
        ({**PENDING, "node": "<none>"}, PENDING, Change.COLUMNS | Change.VERSION),
        # What the scheduler reports shows in no column.
        ({**PENDING, "node": "<none>"}, {**PENDING, "node": "<none>"}, Change.VERSION),
        ({}, {"deletionTimestamp": DELETING}, Change.DELETING),
        ({}, {"labels": {**TRACKING, "app": "other"}}, Change.LABELS),
        ({}, {"ownerReferences": owned_by("a", "another")}, Change.OWNERS),
        ({}, {"ownerReferences": []}, Change.OWNERS),
        (
            {"ownerReferences": owned_by("x", controller=False)},
            {"ownerReferences": owned_by("x", controller=False) + owned_by("y", controller=False)},
            Change.OWNERS,
        ),
        ({"annotations": LISTED}, {"annotations": {**LISTED, "note": "two"}}, Change.ANNOTATIONS),
        (
            {"annotations": LISTED},
            {"annotations": {**LISTED, names.PROPAGATED_LABELS_ANNOTATION: "app,team"}},
            Change.ANNOTATIONS,
        ),
        ({"annotations": LISTED}, {"annotations": {}}, Change.ANNOTATIONS),
    ],
)
def test_rows_of_a_pod_that_pass(
    before: dict[str, Any], after: dict[str, Any], change: Change
) -> None:
    """Readiness, end, place, address, deletion, labels, owners and managed annotations."""
    assert changes_of(before, after) == change


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        (PENDING, {**PENDING, "status": "ContainerCreating"}),
        ({**PENDING, "status": "ErrImagePull"}, {**PENDING, "status": "ImagePullBackOff"}),
        ({**PENDING, "status": "Init:0/2"}, {**PENDING, "status": "Init:1/2"}),
        ({**PENDING, "status": "Init:1/2"}, {**PENDING, "status": "PodInitializing"}),
        ({"ready": "0/2"}, {"ready": "1/2"}),
        ({"ready": "1/1"}, {"ready": "2/2"}),
        ({"annotations": LISTED}, {"annotations": {**LISTED, "kubelet/foreign": "y"}}),
        ({}, {"annotations": {"somebody": "else"}}),
        ({}, {"finalizers": ["x/y"]}),
        (
            {"ownerReferences": owned_by("a")},
            {"ownerReferences": owned_by("a") + owned_by("y", controller=False)},
        ),
        ({"deletionTimestamp": DELETING}, {"deletionTimestamp": "2026-01-02T03:05:05Z"}),
    ],
)
def test_rows_of_a_pod_that_are_dropped(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Waiting words that flap, what others annotate, and everything that nobody reports."""
    assert changes_of(before, after) is None


def test_a_readiness_the_last_get_did_not_show_passes() -> None:
    """A Pod seen unready by GET whose next row says ready, as the row before did."""
    hand = Hand(pod_kind())
    hand.listed(pod("a", 10))
    assert hand.saw(pod_row("MODIFIED", "a", 11, first=True)) == []
    hand.learn(pod("a", 12, ready=False))
    assert hand.saw(pod_row("MODIFIED", "a", 13)) == [Change.COLUMNS]
    assert hand.get("a").needs_fetch


def written_by(*managers: str, at: str = DELETING) -> dict[str, Any]:
    """Return what metadata tell of those who wrote a status."""
    entries = [{"manager": one, "subresource": "status", "time": at} for one in managers]
    return {"managedFields": entries}


def test_a_status_that_the_kubelet_writes_of_a_ready_pod_passes() -> None:
    """No column shows that its deadline is over; until it is ready, what is written shows."""
    later = written_by("kubelet", at="2026-01-02T03:05:05Z")
    hand = Hand(pod_kind())
    hand.listed(pod("a", 10, **written_by("kubelet")))
    assert hand.saw(pod_row("MODIFIED", "a", 11, first=True, **later)) == [Change.COLUMNS]
    hand = Hand(pod_kind())
    hand.listed(pod("a", 10, ready=False, **written_by("kubelet")))
    assert hand.saw(pod_row("MODIFIED", "a", 11, first=True, ready="0/1", **later)) == []


def test_a_status_written_by_another_than_the_kubelet_passes() -> None:
    """No column shows a lost node or a readiness gate; the writer of the status does, once."""
    kubelet = written_by("kubelet")
    both = written_by("kubelet", "node-controller")
    hand = Hand(pod_kind())
    hand.listed(pod("a", 10, **kubelet))
    assert hand.saw(pod_row("MODIFIED", "a", 11, first=True, **kubelet)) == []
    assert hand.saw(pod_row("MODIFIED", "a", 12, **both)) == [Change.COLUMNS]
    assert hand.get("a").needs_fetch
    hand.learn(pod("a", 13, ready=False, **both))
    assert not hand.get("a").needs_fetch


def _stopped(phase: str, reason: str, *, beside: bool = False) -> dict[str, Any]:
    """Return a Pod whose container has stopped, for a reason if it gives one."""
    found = pod("a", 10, phase=phase, ready=False)
    form = "waiting" if reason == "CrashLoopBackOff" else "terminated"
    states = [{"name": "main", "state": {form: {"reason": reason}}}] if reason else []
    running = [{"name": "other", "ready": True, "state": {"running": {}}}] if beside else []
    if reason == "Evicted":
        found["status"]["reason"] = reason
    else:
        found["status"]["containerStatuses"] = states + running
    return found


def test_a_listed_pod_and_its_first_row_have_the_same_fingerprints() -> None:
    """After the list nothing passes that is as it was: full objects stand for their columns."""
    pairs = [
        (pod("a", 10), pod_row("MODIFIED", "a", 11, first=True)),
        (
            pod("a", 10, phase="Pending", ready=False, ip="", node="node-1"),
            pod_row("MODIFIED", "a", 11, first=True, **PENDING),
        ),
        *[
            (
                _stopped(phase, reason),
                pod_row("MODIFIED", "a", 11, first=True, status=reason or phase, ready="0/1"),
            )
            for phase, reason in (
                ("Succeeded", "Completed"),
                ("Failed", "Error"),
                ("Failed", "OOMKilled"),
                ("Failed", ""),
                ("Failed", "Evicted"),
                ("Running", "CrashLoopBackOff"),
            )
        ],
        (
            _stopped("Running", "Completed", beside=True),
            pod_row("MODIFIED", "a", 11, first=True, status="NotReady", ready="1/2"),
        ),
        (
            pod("a", 10, deletionTimestamp=DELETING),
            pod_row(
                "MODIFIED", "a", 11, first=True, status="Terminating", deletionTimestamp=DELETING
            ),
        ),
    ]
    for item, row in pairs:
        hand = Hand(pod_kind())
        hand.listed(item)
        assert hand.saw(row) == []
        assert not hand.get("a").needs_fetch


@pytest.mark.parametrize(
    ("row", "needs_fetch"),
    [
        ({"labels": {**TRACKING, "app": "other"}}, False),
        ({"deletionTimestamp": DELETING}, False),
        ({"ownerReferences": []}, False),
        ({"ready": "0/1"}, True),
        ({"ip": "10.0.0.2"}, True),
        ({"node": "node-2"}, True),
    ],
)
def test_only_a_hint_at_another_state_asks_for_a_fetch(
    row: dict[str, Any], *, needs_fetch: bool
) -> None:
    """What the row itself says in full is no reason to fetch the Pod."""
    hand = Hand(pod_kind())
    hand.listed(pod("a", 10))
    assert len(hand.saw(pod_row("MODIFIED", "a", 11, first=True, **row))) == 1
    assert hand.get("a").needs_fetch is needs_fetch


def test_without_columns_every_write_of_a_pod_passes() -> None:
    """Partial metadata says nothing of readiness: each version has to be fetched."""
    hand = Hand(pod_kind(Representation.METADATA))
    hand.listed(pod("a", 10))
    assert hand.saw(partial("MODIFIED", pod_meta("a", 10))) == []
    (change,) = hand.saw(partial("MODIFIED", pod_meta("a", 11)))
    assert Change.COLUMNS in change
    assert hand.get("a").needs_fetch


def test_a_pod_keeps_all_its_labels_and_its_managed_annotations() -> None:
    """Labels whole, also a tracking label that belongs to another name; annotations as listed."""
    hand = Hand(pod_kind())
    other = {names.NAME_HASH_LABEL: "0000000a", "app": "web"}
    hand.listed(
        pod("a", 10, labels={**TRACKING, "app": "web"}, annotations=LISTED),
        pod("b", 11, labels=other),
        pod("c", 12, labels={"app": "web"}),
        pod("d", 13, labels=None),
    )
    assert hand.get("a").labels == {**TRACKING, "app": "web"}
    assert hand.get("a").annotations == {
        key: value for key, value in LISTED.items() if key != "kubelet/foreign"
    }
    assert hand.get("b").labels == other
    assert hand.get("c").labels == {"app": "web"}
    assert hand.get("d").labels is None
    assert hand.get("b").annotations is None


def test_owners_without_control_are_kept_only_where_none_controls() -> None:
    """They have to be written back when the Pod is adopted."""
    hand = Hand(pod_kind())
    both = owned_by("x", controller=False) + owned_by("a")
    hand.listed(
        pod("a", 10, ownerReferences=both),
        pod("b", 11, ownerReferences=owned_by("x", controller=False)),
    )
    owned = hand.get("a")
    free = hand.get("b")
    assert owned.owner is not None
    assert (owned.owner.name, owned.others) == ("a", ())
    assert (free.owner, [owner.name for owner in free.others]) == (None, ["x"])
    assert hand.cache.owned_by("ns", "uid-of-a") == [owned]


# -- Sandboxes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "change"),
    [
        ({"generation": 2}, Change.GENERATION),
        ({"deletionTimestamp": DELETING}, Change.DELETING),
        ({"labels": {names.WARM_POOL_LABEL: "x"}}, Change.LABELS),
        ({"annotations": {names.POD_NAME_ANNOTATION: "p"}}, Change.ANNOTATIONS),
        ({"annotations": {names.TRACE_CONTEXT_ANNOTATION: "t"}}, Change.ANNOTATIONS),
        ({"ownerReferences": owned_by("claim")}, Change.OWNERS),
        ({"ready": "False"}, Change.COLUMNS),
        ({"reason": "Other"}, Change.COLUMNS),
    ],
)
def test_rows_of_a_sandbox_that_pass(
    boxes: Hand[SandboxEntry], row: dict[str, Any], change: Change
) -> None:
    """Spec, deletion, the metadata read here, owner, and a status that is not ours."""
    assert boxes.saw(sandbox_row("MODIFIED", "a", 12, **row)) == [change]


@pytest.mark.parametrize(
    "row",
    [{}, {"labels": {"team": "x"}}, {"annotations": {"somebody": "else"}}, {"finalizers": ["x/y"]}],
)
def test_rows_of_a_sandbox_that_are_dropped(boxes: Hand[SandboxEntry], row: dict[str, Any]) -> None:
    """Labels and annotations that no decision reads, finalizers, and plain repetition."""
    assert boxes.saw(sandbox_row("MODIFIED", "a", 12, **row)) == []
    assert boxes.get("a").version == 12


def test_a_sandbox_keeps_the_annotations_that_are_read(boxes: Hand[SandboxEntry]) -> None:
    """With and without the Pod's name, empty as distinct from absent."""
    pod_name = names.POD_NAME_ANNOTATION
    trace = names.TRACE_CONTEXT_ANNOTATION
    for version, noted in enumerate(
        (
            {pod_name: "a"},
            {pod_name: "other", trace: "t"},
            {pod_name: ""},
            {trace: "t", names.TEMPLATE_REF_ANNOTATION: "x"},
            {names.TEMPLATE_REF_ANNOTATION: "x"},
        ),
        start=20,
    ):
        boxes.saw(sandbox_row("MODIFIED", "a", version, annotations={**noted, "z": "z"}))
        assert boxes.get("a").annotations == noted
    boxes.saw(sandbox_row("MODIFIED", "a", 30))
    assert boxes.get("a").annotations is None


def test_a_spec_that_cannot_be_acted_upon_is_remembered_with_the_reason() -> None:
    """The words are kept until a better spec is seen, and nothing asks for another GET."""
    hand = Hand(sandbox_kind())
    broken = sandbox("a", 10)
    broken["spec"]["shutdownTime"] = "tomorrow"
    hand.listed(broken)
    held = hand.get("a")
    assert held.view is not None
    assert "shutdownTime" in held.view.refusal
    assert not held.needs_fetch
    hand.learn(sandbox("a", 11, generation=2))
    held = hand.get("a")
    assert held.view is not None
    assert not held.view.refusal


def test_sandboxes_of_one_template_share_what_they_have_in_common() -> None:
    """Views and conditions of one burst are the same objects; an end of its own is not shared."""
    hand = Hand(sandbox_kind())
    ending = sandbox("c", 12)
    ending["spec"]["shutdownTime"] = "2027-01-01T00:00:00Z"
    hand.listed(sandbox("a", 10), sandbox("b", 11), ending, sandbox("d", 13, generation=2))
    a, b, c, d = (hand.get(name) for name in "abcd")
    assert a.view is b.view
    assert a.status is not None
    assert b.status is not None
    assert a.status.conditions[0] is b.status.conditions[0]
    assert c.view is not None
    assert c.view.shutdown_time is not None
    assert d.view is not None
    assert (a.view is not c.view, d.view.generation) == (True, 2)


# -- Services and claims for volumes ---------------------------------------------------------------


def service(name: str, version: int, **fields: Any) -> dict[str, Any]:
    """Return a whole Service."""
    return {"metadata": meta(name, version, **fields), "spec": {"clusterIP": "None"}}


def test_a_service_of_a_sandbox_passes_with_every_write() -> None:
    """No generation tells its drift; the spec has to be fetched again."""
    hand = Hand(service_kind())
    ours = {"ownerReferences": owned_by("a")}
    hand.listed(service("a", 10, **ours), service("b", 11))
    assert hand.get("a").spec is not None
    assert hand.get("b").spec is None
    assert hand.saw(partial("MODIFIED", meta("a", 12, **ours))) == [Change.VERSION]
    assert hand.get("a").spec is None
    assert hand.saw(partial("MODIFIED", meta("b", 13, annotations={"x": "y"}))) == []


def test_a_service_that_becomes_somebody_elses_or_ours_passes() -> None:
    """Owner and the labels of adoption; other labels do not count."""
    hand = Hand(service_kind())
    hand.listed(service("a", 10))
    assert hand.saw(partial("MODIFIED", meta("a", 11, labels={"x": "y"}))) == []
    adoptable = {names.ADOPTABLE_LABEL: "true"}
    (change,) = hand.saw(partial("MODIFIED", meta("a", 12, labels=adoptable)))
    assert Change.LABELS in change
    (change,) = hand.saw(partial("MODIFIED", meta("a", 13, ownerReferences=owned_by("a"))))
    assert Change.OWNERS in change
    assert hand.saw(partial("DELETED", meta("a", 14))) == [Change.GONE]


def test_a_claim_for_a_volume_is_remembered_by_its_owner() -> None:
    """Metadata is all of it."""
    hand = Hand(pvc_kind())
    hand.listed(service("data-a", 10, ownerReferences=owned_by("a")))
    owner = hand.get("data-a").owner
    assert owner is not None
    assert owner.uid == "uid-of-a"
    assert hand.saw(partial("MODIFIED", meta("data-a", 11, ownerReferences=owned_by("a")))) == []
    changed = meta("data-a", 12, ownerReferences=owned_by("x", controller=False))
    assert hand.saw(partial("MODIFIED", changed)) == [Change.OWNERS]
    assert [other.name for other in hand.get("data-a").others] == ["x"]


@pytest.mark.parametrize("key", sorted(CLAIM_ANNOTATIONS))
def test_of_a_claim_what_a_tenant_writes_is_cut(key: str) -> None:
    """Like a name, and a trace only when it is longer than one is."""
    hand: Hand[ClaimEntry] = Hand(claim_kind())
    written = "x" * 300
    notes = {key: written, "other": "y"}
    hand.listed({"metadata": meta("a", 10, generation=1, annotations=notes), "spec": {}})
    is_trace = key == names.TRACE_CONTEXT_ANNOTATION
    kept = names.clipped_trace(written) if is_trace else names.clipped_name(written)
    assert hand.get("a").annotations == {key: kept}
    assert (kept == written) is is_trace

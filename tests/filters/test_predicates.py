"""Laws of the leaf predicates, and the traps they are made for."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters import (
    NO_OPINION,
    Change,
    Filter,
    annotation,
    any_of,
    column,
    computed,
    condition,
    deletion,
    generation,
    labels,
    owners,
    resource_version,
)
from filters.events import ObservedObject, Owner
from filters.predicates import Leaf
from tests.filters.objects import MODIFIED, decisions, pod, sandbox

CASES = [
    (generation(), {"generation": 2}, Change.GENERATION, "generation 1 -> 2"),
    (resource_version(), {"resource_version": "11"}, Change.VERSION, "resourceVersion 10 -> 11"),
    (labels(), {"labels": {"app": "db"}}, Change.LABELS, "labels changed"),
    (labels("app"), {"labels": {"app": "db"}}, Change.LABELS, "label app changed"),
    (labels("app", "x"), {"labels": None}, Change.LABELS, "labels app, x changed"),
    (labels("x"), {"labels": {"app": "web", "x": ""}}, Change.LABELS, "label x changed"),
    (annotation("k"), {"annotations": {"k": "v"}}, Change.ANNOTATIONS, "annotation k changed"),
    (
        annotation("k", "l"),
        {"annotations": {"l": "v"}},
        Change.ANNOTATIONS,
        "annotations k, l changed",
    ),
    (
        owners(),
        {"owners": (Owner("claim-uid", controller=True),)},
        Change.OWNERS,
        "owners pool-uid -> claim-uid",
    ),
    (owners(), {"owners": ()}, Change.OWNERS, "owners pool-uid -> none"),
    (
        deletion(),
        {"deletion_timestamp": "2026-01-01T00:00:00Z"},
        Change.DELETING,
        "deletion asked for",
    ),
    (
        column("Ready"),
        {"columns": {"Ready": "False"}},
        Change.COLUMNS,
        "column Ready True -> False",
    ),
    (
        condition("Ready"),
        {"columns": {"Ready": "False"}},
        Change.COLUMNS,
        "condition Ready True -> False",
    ),
    (
        computed("size", Change.COLUMNS, lambda o: len(o.resource_version)),
        {"resource_version": "1"},
        Change.COLUMNS,
        "size 2 -> 1",
    ),
]


@pytest.mark.parametrize(("leaf", "changes", "change", "reason"), CASES)
def test_a_leaf_passes_its_own_change_with_its_flag_and_words(
    leaf: Leaf, changes: dict[str, object], change: Change, reason: str
) -> None:
    """A change of what the leaf looks at passes, raises the flag of the leaf and can be told."""
    (decision,) = decisions(Filter(leaf), [sandbox(), sandbox(**changes)])
    assert decision.passed
    assert decision.change == change == leaf.change
    assert decision.leaves == (leaf.name,)
    assert decision.reason == reason


@pytest.mark.parametrize("leaf", dict.fromkeys(case[0] for case in CASES))
def test_a_leaf_drops_an_event_that_repeats_what_it_looks_at(leaf: Leaf) -> None:
    """The same state again is dropped, and the reason names the leaf."""
    (decision,) = decisions(Filter(leaf), [sandbox(), sandbox()])
    assert not decision
    assert decision.change == Change.NONE
    assert decision.reason == f"nothing of [{leaf.name}] changed"


@pytest.mark.parametrize(
    ("leaf", "changes"),
    [
        (generation(), {"labels": {"a": "b"}, "columns": {"Ready": "x"}}),
        (labels("app"), {"labels": {"app": "web", "other": "x"}}),
        (annotation("k"), {"annotations": {"other": "x"}}),
        (column("Ready"), {"columns": {"Ready": "True", "Age": "5m"}}),
    ],
)
def test_a_leaf_drops_a_change_of_anything_else(leaf: Leaf, changes: dict[str, object]) -> None:
    """A leaf looks at its own aspect only."""
    assert not decisions(Filter(leaf), [sandbox(), sandbox(resource_version="11", **changes)])[0]


@pytest.mark.parametrize(
    ("leaf", "missing"),
    [
        (generation(), {"generation": None}),
        (generation(), {"generation": 0}),
        (resource_version(), {"resource_version": ""}),
    ],
)
def test_what_the_server_does_not_set_passes(leaf: Leaf, missing: dict[str, object]) -> None:
    """It is no opinion: the event passes and says that it could not be judged."""
    (decision,) = decisions(Filter(leaf), [pod(**missing)] * 2)
    assert decision.passed
    assert decision.reason == f"{leaf.name} unknown"
    assert decision.change == leaf.change


def test_readiness_never_changes_generation() -> None:
    """On servers where Pods have a generation it hides readiness, which the column shows."""
    waiting = pod(generation=1, columns={"Ready": "0/1"})
    ready = pod(generation=1, columns={"Ready": "1/1"}, resource_version="2")
    assert not decisions(Filter(generation()), [waiting, ready])[0]
    (decision,) = decisions(Filter(any_of(generation(), column("Ready"))), [waiting, ready])
    assert decision.reason == "column Ready 0/1 -> 1/1"
    assert decision.change == Change.COLUMNS


def test_label_edits_do_not_raise_generation() -> None:
    """Generation alone hides such an edit; the leaf for it shows it."""
    edited = sandbox(resource_version="11", labels={"app": "x"})
    assert not decisions(Filter(generation()), [sandbox(), edited])[0]
    assert decisions(Filter(any_of(generation(), labels())), [sandbox(), edited])[0]


@pytest.mark.parametrize("columns", [None, {}, {"Reason": "x"}])
@pytest.mark.parametrize("leaf", [condition("Ready"), column("Ready", classify=str.lower)])
def test_a_missing_column_is_no_opinion(leaf: Leaf, columns: dict[str, str] | None) -> None:
    """A server without the column does not hide events, before or after it had one."""
    assert leaf.read(sandbox(columns=columns)) is NO_OPINION
    without = sandbox(columns=columns)
    assert all(decisions(Filter(leaf), [sandbox(), without, without, sandbox()]))


def test_an_empty_cell_is_an_opinion() -> None:
    """A condition not reported yet is an empty cell: it repeats, its first value is a change."""
    empty = sandbox(columns={"Ready": ""})
    repeated, reported = decisions(Filter(column("Ready")), [empty, empty, sandbox()])
    assert not repeated
    assert reported.reason == "column Ready empty -> True"


def test_words_of_one_class_are_one_state() -> None:
    """A Pod that walks through the words of starting passes once, at the next class."""
    words = ["Pending", "ContainerCreating", "Init:0/2", "Init:1/2", "PodInitializing", "Running"]

    def classify(word: str) -> str:
        return word if word == "Running" else "waiting"

    seen = decisions(
        Filter(column("Status", classify=classify)),
        [pod(columns={"Status": word}) for word in words],
    )
    assert [decision.passed for decision in seen] == [False, False, False, False, True]
    assert seen[-1].reason == "column Status waiting -> Running"


def test_a_classifier_may_have_no_opinion() -> None:
    """What the classifier cannot judge passes."""
    leaf = column("Status", classify=lambda word: NO_OPINION if word == "?" else word)
    assert decisions(Filter(leaf), [pod(columns={"Status": "?"})] * 2)[0]


def test_the_column_age_is_refused() -> None:
    """A text that changes with time alone would make every event pass."""
    with pytest.raises(ValueError, match="changes with time"):
        column("Age")


def test_annotations_need_keys() -> None:
    """There is no predicate on all annotations, which tools write for themselves."""
    with pytest.raises(ValueError, match="keys"):
        annotation()


def test_a_shorter_grace_period_is_not_a_second_deletion() -> None:
    """Only the presence of the deletion time counts."""
    first, second = (sandbox(deletion_timestamp=time) for time in ("2026-01-01", "2026-01-02"))
    assert not decisions(Filter(deletion()), [first, second])[0]


@pytest.mark.parametrize("keys", [("k",), ("k", "l")])
def test_a_long_annotation_is_remembered_by_digest(keys: tuple[str, ...]) -> None:
    """A change at the end of a long value passes, and neither memory nor words hold the value."""
    long = "x" * 5000 + "a"
    other = "x" * 5000 + "b"
    leaf = annotation(*keys)
    assert isinstance(leaf.read(sandbox(annotations={"k": long})), int)
    first = sandbox(annotations={"k": long})
    same, changed = decisions(Filter(leaf), [first, first, sandbox(annotations={"k": other})])
    assert not same
    assert changed.passed
    assert changed.reason == f"{leaf.name} changed"


def test_an_error_inside_a_predicate_is_not_swallowed() -> None:
    """A faulty function must not drop events in silence."""

    def fault(_obj: object) -> Hashable:
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        Filter(computed("fault", Change.COLUMNS, fault)).admit(MODIFIED, sandbox())


texts = st.dictionaries(st.sampled_from("abcd"), st.text(max_size=80), max_size=4)


@given(before=texts, after=texts, keys=st.sets(st.sampled_from("abcd"), min_size=1))
def test_chosen_labels_pass_exactly_when_one_of_them_differs(
    before: dict[str, str], after: dict[str, str], keys: set[str]
) -> None:
    """The leaf agrees with comparing the chosen values one by one, whatever else changes."""
    differs = any(before.get(key) != after.get(key) for key in keys)
    objects = [ObservedObject("u", labels=labels) for labels in (before, after)]
    assert decisions(Filter(labels(*sorted(keys))), objects)[0].passed is differs


@given(before=texts, after=texts)
def test_all_labels_pass_exactly_when_the_mapping_differs(
    before: dict[str, str], after: dict[str, str]
) -> None:
    """The digest agrees with comparing the mappings."""
    objects = [ObservedObject("u", labels=labels) for labels in (before, after)]
    assert decisions(Filter(labels()), objects)[0].passed is (before != after)


def test_a_value_is_told_with_80_characters() -> None:
    """Of the column alone, whose text others write."""
    leaf = column("Ready")
    told = leaf.describe(leaf.name, "x" * 81, None)
    assert told == f"{leaf.name} {'x' * 80} -> none"


@pytest.mark.parametrize(
    ("before", "after", "is_change"),
    [
        ([], [("a", False)], True),
        ([("a", False)], [("b", False)], True),
        ([("a", False), ("b", False)], [("a", False)], True),
        ([("a", False), ("c", True)], [("b", False), ("c", True)], False),
        ([("a", True)], [("b", True)], True),
        ([], [], False),
    ],
)
def test_the_controller_counts_or_else_all_owners(
    before: list[tuple[str, bool]], after: list[tuple[str, bool]], *, is_change: bool
) -> None:
    """An object without any has none."""

    def read(listed: list[tuple[str, bool]]) -> object:
        references = tuple(Owner(uid, controller=controls) for uid, controls in listed)
        return owners().read(sandbox(owners=references))

    assert (read(before) != read(after)) is is_change
    assert read([]) is None

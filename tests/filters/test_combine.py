"""Laws of the combinations: three-valued logic, and words that name what decided."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters import (
    NO_OPINION,
    Change,
    EventType,
    Filter,
    Leaf,
    ObservedObject,
    Predicate,
    all_of,
    any_of,
    column,
    computed,
    finalizers,
    first_known,
    generation,
    if_known,
    labels,
    named,
    not_,
    resource_version,
)
from filters.combine import AllOf, AnyOf, FirstKnown, IfKnown, Named, Not
from tests.filters.objects import sandbox, verdicts

State = bool | None


def cell(index: int) -> Leaf:
    """Return a leaf that reads the column of its number; "?" there is no opinion."""

    def read(obj: object) -> object:
        assert isinstance(obj, ObservedObject)
        assert obj.columns is not None
        found = obj.columns[str(index)]
        return NO_OPINION if found == "?" else found

    return computed(f"cell {index}", Change.COLUMNS, read)


LEAVES = [cell(index) for index in range(4)]

predicates: st.SearchStrategy[Predicate] = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: any_of(*parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: all_of(*parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: first_known(*parts)),
        inner.map(not_),
        inner.map(if_known),
        inner.map(lambda part: named("part", part)),
    ),
    max_leaves=8,
)


def meaning(predicate: Predicate, states: Sequence[State]) -> State:
    """Say what the table in the documentation says, in the plainest way."""
    match predicate:
        case Leaf():
            return states[LEAVES.index(predicate)]
        case Named(_, part):
            return meaning(part, states)
        case Not(part):
            inner = meaning(part, states)
            return None if inner is None else not inner
        case IfKnown(part):
            return meaning(part, states) is True
        case AnyOf(parts):
            found = [meaning(part, states) for part in parts]
            return True if True in found else None if None in found else False
        case AllOf(parts):
            found = [meaning(part, states) for part in parts]
            return False if False in found else None if None in found else True
        case FirstKnown(parts):
            found = [meaning(part, states) for part in parts]
            return next((state for state in found if state is not None), None)


def row(texts: Sequence[str]) -> ObservedObject:
    """Return an object with the texts as columns."""
    return ObservedObject("u", columns={str(index): text for index, text in enumerate(texts)})


@given(
    predicate=predicates,
    states=st.lists(st.sampled_from([True, False, None]), min_size=4, max_size=4),
)
def test_an_event_passes_unless_the_combination_is_unchanged(
    predicate: Predicate, states: list[State]
) -> None:
    """Filter and table agree on every combination of changed, unchanged and unknown leaves."""
    after = ["?" if state is None else "new" if state else "old" for state in states]
    (verdict,) = verdicts(Filter(predicate), [row(["old"] * 4), row(after)])
    assert verdict.passed is (meaning(predicate, states) is not False)
    flagged = any(states[LEAVES.index(leaf)] is not False for leaf in predicate.leaves)
    assert bool(verdict.change) is flagged


@given(
    predicate=predicates,
    states=st.lists(st.sampled_from([True, False, None]), min_size=4, max_size=4),
)
def test_every_verdict_can_say_why(predicate: Predicate, states: list[State]) -> None:
    """The words are never empty; a drop says so; a pass names leaves of the predicate."""
    after = ["?" if state is None else "new" if state else "old" for state in states]
    (verdict,) = verdicts(Filter(predicate), [row(["old"] * 4), row(after)])
    assert verdict.reason
    assert verdict.reason.startswith("dropped: ") is not verdict.passed
    if verdict.passed:
        assert set(verdict.leaves) <= {leaf.name for leaf in predicate.leaves}
        assert all(name in verdict.reason for name in verdict.leaves)
        assert verdict.leaves


def reason(predicate: Predicate, **changes: object) -> str:
    """Return the words for one change of a Sandbox."""
    return verdicts(Filter(predicate), [sandbox(), sandbox(**changes)])[0].reason


def test_any_of_names_the_parts_that_changed() -> None:
    """Unchanged parts are not mentioned."""
    some = any_of(generation(), labels("app"), finalizers())
    assert reason(some, generation=2) == "generation 1 -> 2"
    both = reason(some, generation=2, labels={"app": "db"})
    assert both == "generation 1 -> 2; label app web -> db"
    assert reason(some) == "dropped: nothing of [generation, label app, finalizers] changed"


def test_all_of_names_what_held_it_back() -> None:
    """A drop in spite of a change names the part that did not change."""
    both = all_of(generation(), labels("app"))
    assert reason(both, generation=2) == "dropped: label app unchanged"
    assert reason(both, generation=2, labels={}) == "generation 1 -> 2; label app web -> none"


def test_not_names_the_change_that_held_it_back() -> None:
    """A part under not_ that changed is the reason for the drop; one that did not, for the pass."""
    quiet = all_of(resource_version(), not_(finalizers()))
    held = reason(quiet, resource_version="11", finalizers=("f",))
    assert held == "dropped: finalizers empty -> f"
    assert reason(quiet, resource_version="11") == "resourceVersion 10 -> 11; finalizers unchanged"


def test_a_name_stands_before_what_its_part_says() -> None:
    """Names of nested parts are written from the outside in."""
    predicate = named("outer", any_of(generation(), named("inner", labels("app"))))
    assert reason(predicate, labels={}) == "outer: inner: label app web -> none"


def test_first_known_asks_the_next_part_only_without_an_opinion() -> None:
    """A column that exists decides alone; where it is missing the version decides."""
    predicate = first_known(column("Ready"), resource_version())
    assert reason(predicate, resource_version="11").startswith("dropped: ")
    bare = [
        sandbox(columns=None),
        sandbox(columns=None),
        sandbox(columns=None, resource_version="11"),
    ]
    same, changed = verdicts(Filter(predicate), bare)
    assert not same
    assert changed.reason == "resourceVersion 10 -> 11"


def test_if_known_takes_missing_evidence_for_no_change() -> None:
    """An optional column lets nothing pass where it does not exist."""
    predicate = any_of(generation(), if_known(column("Gates")))
    assert reason(predicate, resource_version="11").startswith("dropped: nothing of")


def test_not_passes_a_repeated_state_unless_told_otherwise() -> None:
    """A relist repeats states: not_ alone passes them, with resource_version() it does not."""
    assert verdicts(Filter(not_(labels())), [sandbox(), sandbox()])[0]
    guarded = all_of(resource_version(), not_(labels()))
    assert not verdicts(Filter(guarded), [sandbox(), sandbox()])[0]


def test_changed_means_since_the_event_before() -> None:
    """Two halves of all_of that change one after the other pass neither."""
    steps = [sandbox(), sandbox(generation=2), sandbox(generation=2, labels={})]
    assert not any(verdicts(Filter(all_of(generation(), labels())), steps))


@pytest.mark.parametrize("combination", [any_of, all_of, first_known])
def test_a_combination_of_nothing_is_refused(combination: object) -> None:
    """An empty combination has no sensible meaning."""
    assert callable(combination)
    with pytest.raises(ValueError, match="at least one"):
        combination()


def test_words_are_made_only_when_asked_for() -> None:
    """Judging never describes: the words of a leaf are not computed on the hot path."""
    asked = []

    def describe(name: str, _before: object, _after: object) -> str:
        asked.append(name)
        return "told"

    leaf = Leaf("mine", Change.COLUMNS, lambda obj: obj.generation, describe=describe)
    subject = Filter(leaf)
    subject.admit(EventType.ADDED, sandbox())
    verdict = subject.admit(EventType.MODIFIED, sandbox(generation=2))
    assert asked == []
    assert verdict.reason == "told"
    assert asked == ["mine"]

"""Laws of combined predicates: three-valued logic, and words that name what decided."""

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
    Predicate,
    any_of,
    column,
    computed,
    generation,
    if_known,
    labels,
)
from filters.events import ObservedObject
from filters.predicates import Leaf
from tests.filters.objects import decisions, sandbox

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
NAMES = [leaf.name for leaf in LEAVES]

predicates: st.SearchStrategy[Predicate] = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: any_of(*parts)),
        inner.map(if_known),
    ),
    max_leaves=8,
)
STATES = st.lists(st.sampled_from([True, False, None]), min_size=4, max_size=4)


def row(texts: Sequence[str]) -> ObservedObject:
    """Return an object with the texts as columns."""
    return ObservedObject("u", columns={str(index): text for index, text in enumerate(texts)})


def after(states: list[State]) -> ObservedObject:
    """Return what follows an object of old cells, so that the leaves have these states."""
    return row(["?" if state is None else "new" if state else "old" for state in states])


@given(predicate=predicates, states=STATES)
def test_an_event_passes_unless_no_leaf_changed_or_lacks_an_opinion(
    predicate: Predicate, states: list[State]
) -> None:
    """A leaf that changed passes; so does one without an opinion, unless that is optional."""
    (decision,) = decisions(Filter(predicate), [row(["old"] * 4), after(states)])
    found = [(states[NAMES.index(leaf.name)], leaf.is_optional) for leaf in predicate.leaves]
    wanted = any(state or (state is None and not optional) for state, optional in found)
    assert decision.passed is wanted
    assert bool(decision.change) is wanted


@given(predicate=predicates)
def test_a_part_is_optional_only_where_every_place_of_it_is(predicate: Predicate) -> None:
    """Inside ``if_known`` everything is optional; beside it a leaf counts as it did."""
    assert all(leaf.is_optional for leaf in if_known(predicate).leaves)
    both = any_of(if_known(predicate), predicate).leaves
    assert set(predicate.leaves) <= set(both)
    assert {leaf.name for leaf in both} == {leaf.name for leaf in predicate.leaves}


@given(predicate=predicates, states=STATES)
def test_every_decision_can_say_why(predicate: Predicate, states: list[State]) -> None:
    """The words are never empty; a pass names the leaves that let it, a drop all of them."""
    (decision,) = decisions(Filter(predicate), [row(["old"] * 4), after(states)])
    assert decision.reason
    assert set(decision.leaves) <= {leaf.name for leaf in predicate.leaves}
    assert bool(decision.leaves) is decision.passed
    assert decision.reason.startswith("nothing of [") is not decision.passed
    named = decision.leaves or {leaf.name for leaf in predicate.leaves}
    assert all(name in decision.reason for name in named)


def reason(predicate: Predicate, **changes: object) -> str:
    """Return the words for one change of a Sandbox."""
    return decisions(Filter(predicate), [sandbox(), sandbox(**changes)])[0].reason


def test_any_of_names_the_parts_that_changed() -> None:
    """Unchanged parts are not mentioned."""
    some = any_of(generation(), labels("app"), column("Ready"))
    assert reason(some, generation=2) == "generation 1 -> 2"
    both = reason(some, generation=2, labels={"app": "db"})
    assert both == "generation 1 -> 2; label app changed"
    assert reason(some) == "nothing of [generation, label app, column Ready] changed"


def test_a_combination_of_nothing_is_refused() -> None:
    """An empty combination has no sensible meaning."""
    with pytest.raises(ValueError, match="at least one"):
        any_of()


@given(predicate=predicates, text=st.sampled_from(["?", "old"]))
def test_a_new_object_passes_every_predicate(predicate: Predicate, text: str) -> None:
    """No combination can hide a first sight or a delete."""
    subject = Filter(predicate)
    assert subject.admit(EventType.ADDED, row([text] * 4))
    assert subject.admit(EventType.DELETED, row([text] * 4))

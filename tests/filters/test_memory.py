"""Laws of the memory: what always passes, what is dropped, what eviction costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters import Change, EventType, Filter, any_of, column, computed, generation, labels
from filters.events import ObservedObject
from tests.filters.objects import ADDED, DELETED, MODIFIED, sandbox


def test_a_first_sight_always_passes() -> None:
    """Whatever the type of the event, an object never seen passes."""
    for event_type in (ADDED, MODIFIED):
        decision = Filter(generation()).admit(event_type, sandbox())
        assert (decision.passed, decision.change) == (True, Change.FIRST_SEEN)
        assert (decision.reason, decision.leaves) == ("first sight", ())


def test_a_delete_always_passes_and_is_forgotten() -> None:
    """A delete passes without any change, also of an unknown object, and what follows is new."""
    subject = Filter(generation())
    assert subject.admit(DELETED, sandbox()).change == Change.GONE
    subject.admit(ADDED, sandbox())
    gone = subject.admit(DELETED, sandbox())
    assert (gone.passed, gone.change, gone.reason) == (True, Change.GONE, "deleted")
    assert len(subject._objects) == 0
    assert subject.admit(ADDED, sandbox()).change == Change.FIRST_SEEN


def test_the_same_name_with_another_uid_always_passes() -> None:
    """A re-created object with equal fingerprints is told from the old one and replaces it."""
    subject = Filter(generation())
    subject.admit(ADDED, sandbox(uid="old"))
    decision = subject.admit(MODIFIED, sandbox(uid="new"))
    assert (decision.passed, decision.change) == (True, Change.RECREATED)
    assert decision.reason == "re-created: uid old -> new"
    assert len(subject._objects) == 1
    assert not subject.admit(MODIFIED, sandbox(uid="new"))


def test_a_late_delete_of_the_old_uid_leaves_the_new_object_alone() -> None:
    """After a re-creation the delete of the predecessor passes and forgets nothing else."""
    subject = Filter(generation())
    subject.admit(ADDED, sandbox(uid="old"))
    subject.admit(ADDED, sandbox(uid="new"))
    assert subject.admit(DELETED, sandbox(uid="old")).change == Change.GONE
    assert not subject.admit(MODIFIED, sandbox(uid="new"))
    assert subject.admit(ADDED, sandbox(uid="third")).change == Change.RECREATED


def test_the_same_name_in_another_namespace_is_another_object() -> None:
    """Names are compared within their namespace."""
    subject = Filter(generation())
    subject.admit(ADDED, sandbox(uid="a", namespace="one"))
    assert subject.admit(ADDED, sandbox(uid="b", namespace="two")).change == Change.FIRST_SEEN
    assert len(subject._objects) == 2


def test_a_relist_drops_equal_fingerprints() -> None:
    """What a relist repeats as ADDED is dropped, what changed in the gap passes."""
    subject = Filter(any_of(generation(), labels(), column("Ready")))
    objects = [sandbox(uid=f"u{n}", name=f"n{n}") for n in range(10)]
    assert all(subject.admit(ADDED, obj) for obj in objects)
    objects[3] = sandbox(uid="u3", name="n3", generation=2)
    passed = [obj.uid for obj in objects if subject.admit(ADDED, obj)]
    assert passed == ["u3"]


def test_an_object_without_uid_passes_and_is_not_remembered() -> None:
    """Two objects without uid are never taken for one."""
    subject = Filter(generation())
    for _ in range(2):
        assert subject.admit(MODIFIED, sandbox(uid="")).reason == "no uid"
    assert len(subject._objects) == 0


def test_the_memory_is_bounded_and_evicts_the_quietest() -> None:
    """Beyond the bound the object not heard of for longest is forgotten, dropped events count."""
    subject = Filter(generation(), max_objects=2)
    one, two, three = (sandbox(uid=f"u{n}", name=f"n{n}") for n in range(3))
    subject.admit(ADDED, one)
    subject.admit(ADDED, two)
    assert not subject.admit(MODIFIED, one)
    subject.admit(ADDED, three)
    assert len(subject._objects) == 2
    assert not subject.admit(MODIFIED, three)
    assert not subject.admit(MODIFIED, one)
    assert subject.admit(MODIFIED, two).change == Change.FIRST_SEEN


def test_a_bound_below_one_is_refused() -> None:
    """A memory that remembers nothing would pass everything without saying so."""
    with pytest.raises(ValueError, match="at least 1"):
        Filter(generation(), max_objects=0)


events = st.lists(
    st.tuples(
        st.sampled_from(list(EventType)),
        st.sampled_from("abcd"),
        st.integers(0, 2),
        st.integers(1, 2),
    ),
    max_size=60,
)


@given(stream=events, bound=st.integers(1, 12))
def test_no_relevant_event_is_ever_dropped(
    stream: list[tuple[EventType, str, int, int]], bound: int
) -> None:
    """Whatever the order of events and however small the memory, a dropped event repeats the state.

    A model that never forgets is the judge: eviction may add passes, never drops.
    """
    subject = Filter(generation(), max_objects=bound)
    model: dict[str, tuple[str, int]] = {}
    for event_type, name, incarnation, value in stream:
        uid = f"{name}{incarnation}"
        obj = ObservedObject(uid, name=name, namespace="n", generation=value)
        decision = subject.admit(event_type, obj)
        if not decision:
            assert event_type is not DELETED
            assert model.get(name) == (uid, value)
        elif bound == 12 and event_type is not DELETED:
            assert model.get(name) != (uid, value)
        if event_type is not DELETED:
            model[name] = (uid, value)
        elif model.get(name, ("", 0))[0] == uid:
            del model[name]
        assert len(subject._objects) <= bound


def test_what_a_predicate_raises_leaves_the_memory_whole() -> None:
    """The event that it failed for is seen again as it would have been the first time."""
    subject = Filter(computed("odd", Change.COLUMNS, lambda obj: 1 // obj.generation))
    subject.admit(ADDED, sandbox(uid="old"))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            subject.admit(ADDED, sandbox(uid="new", generation=0))
    assert subject.admit(ADDED, sandbox(uid="new")).change == Change.RECREATED

"""Laws of the change detector: a filter whose memory is the caller's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from filters import (
    Change,
    ChangeDetector,
    Filter,
    Predicate,
    annotation,
    any_of,
    column,
    computed,
    generation,
    if_known,
    labels,
)
from filters.events import ObservedObject
from tests.filters.objects import ADDED, MODIFIED, sandbox

STATES = st.builds(
    sandbox,
    generation=st.integers(0, 2),
    labels=st.dictionaries(st.sampled_from(["app", "team"]), st.sampled_from(["x", "y"])),
    columns=st.one_of(st.none(), st.fixed_dictionaries({"Ready": st.sampled_from(["", "True"])})),
)
PREDICATES: st.SearchStrategy[Predicate] = st.sampled_from(
    [
        any_of(generation(), labels(), if_known(column("Ready"))),
        any_of(generation(), column("Ready")),
        any_of(labels("app"), generation()),
        if_known(generation()),
    ]
)


@given(PREDICATES, st.lists(STATES, min_size=1, max_size=8))
def test_a_detector_with_remembered_fingerprints_is_a_filter(
    predicate: Predicate, states: list[ObservedObject]
) -> None:
    """Event by event both decide the same, and for the same reason."""
    whole = Filter(predicate)
    bare = ChangeDetector(predicate)
    whole.admit(ADDED, states[0])
    _, held = bare.examine((), states[0])
    for state in states[1:]:
        expected = whole.admit(MODIFIED, state)
        decision, held = bare.examine(held, state)
        assert (decision.passed, decision.change) == (expected.passed, expected.change)
        assert decision.reason == expected.reason
        assert held == bare.examine((), state)[1]


def test_what_did_not_change_stays_the_same_object() -> None:
    """A fingerprint that is equal is kept, so that its text stays shared with its holder."""
    name = computed("name", Change.COLUMNS, lambda obj: obj.name)
    bare = ChangeDetector(any_of(generation(), name))
    first, second = (b"web".decode() for _ in range(2))
    _, held = bare.examine((), sandbox(generation=1, name=first))
    decision, after = bare.examine(held, sandbox(generation=2, name=second))
    assert decision.change == Change.GENERATION
    assert after[1] is held[1]
    quiet, again = bare.examine(after, sandbox(generation=2, name=second))
    assert not quiet
    assert again is after


def test_a_new_baseline_tells_the_change_and_counts_no_event() -> None:
    """A state that came by another way is compared, and is no event of the watch."""
    bare = ChangeDetector(generation())
    decision, held = bare.examine((), sandbox(generation=1), is_event=False)
    assert decision.change == Change.FIRST_SEEN
    decision, held = bare.examine(held, sandbox(generation=2), is_event=False)
    assert decision.change == Change.GENERATION
    decision, held = bare.examine(held, sandbox(generation=2), is_event=False)
    assert decision.change == Change.NONE
    assert bare.passed_by_leaf == {"generation": 0}
    assert not bare.examine(held, sandbox(generation=2))[0]


def test_a_baseline_without_columns_costs_one_pass_and_hides_nothing() -> None:
    """The next event passes, for nothing is known to compare; the one after is judged again."""
    bare = ChangeDetector(column("Ready"))
    _, held = bare.examine((), sandbox(columns=None), is_event=False)
    decision, held = bare.examine(held, sandbox())
    assert decision.reason == "column Ready unknown"
    assert not bare.examine(held, sandbox())[0]


def test_leaves_count_the_passed_events_in_which_they_changed() -> None:
    """One event may count for several leaves; first sights and drops count for none."""
    bare = ChangeDetector(any_of(generation(), labels(), if_known(column("Ready"))))
    _, held = bare.examine((), sandbox())
    for state in (
        sandbox(),
        sandbox(generation=2),
        sandbox(generation=3, labels={}),
        sandbox(generation=3, labels={}, columns=None),
    ):
        _, held = bare.examine(held, state)
    assert bare.passed_by_leaf == {"generation": 2, "labels": 1, "column Ready": 0}


def test_a_digest_tells_chosen_keys_from_others() -> None:
    """A digest passes what the pairs would pass; without any of the keys it is nothing at all."""
    leaf = annotation("a", "b")
    states = [{}, {"z": "1"}, {"a": "1"}, {"b": "1"}, {"a": "1", "b": "1"}, {"a": "1", "z": "2"}]
    digests = [leaf.read(sandbox(annotations=state)) for state in states]
    assert digests[:2] == [None, None]
    assert digests[2] == digests[5]
    assert len(set(digests)) == 4
    subject = Filter(leaf)
    subject.admit(ADDED, sandbox(annotations={"a": "1"}))
    decision = subject.admit(MODIFIED, sandbox(annotations={"a": "2"}))
    assert decision.reason == "annotations a, b changed"

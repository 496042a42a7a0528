"""Laws of the change detector: a filter whose memory is the caller's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from filters import (
    Change,
    ChangeDetector,
    Filter,
    annotation,
    any_of,
    column,
    generation,
    if_known,
    labels,
    not_,
)
from tests.filters.objects import ADDED, MODIFIED, sandbox

STATES = st.builds(
    sandbox,
    generation=st.integers(0, 2),
    labels=st.dictionaries(st.sampled_from(["app", "team"]), st.sampled_from(["x", "y"])),
    columns=st.one_of(st.none(), st.fixed_dictionaries({"Ready": st.sampled_from(["", "True"])})),
)
PREDICATES = st.sampled_from(
    [
        any_of(generation(), labels(), if_known(column("Ready"))),
        any_of(generation(), column("Ready")),
        any_of(labels("app", brief=True), generation()),
        not_(generation()),
    ]
)


@given(PREDICATES, st.lists(STATES, min_size=1, max_size=8))
def test_a_detector_with_remembered_fingerprints_is_a_filter(predicate, states) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Event by event both say the same, and count the same."""
    whole, bare = Filter(predicate), ChangeDetector(predicate, objects=lambda: 1)
    whole.admit(ADDED, states[0])
    _, held = bare.first_seen(states[0])
    for state in states[1:]:
        expected = whole.admit(MODIFIED, state)
        verdict, held = bare.examine(held, state)
        assert (verdict.passed, verdict.change) == (expected.passed, expected.change)
        assert verdict.reason == expected.reason
        assert held == bare.read(state)
    assert bare.statistics() == whole.statistics()


def test_what_did_not_change_stays_the_same_object() -> None:
    """A fingerprint that is equal is kept, so that its text stays shared with its holder."""
    bare = ChangeDetector(any_of(generation(), labels("app")))
    first, second = (b"web".decode() for _ in range(2))
    _, held = bare.first_seen(sandbox(generation=1, labels={"app": first}))
    verdict, after = bare.examine(held, sandbox(generation=2, labels={"app": second}))
    assert verdict.change == Change.GENERATION
    assert after[1] is held[1]
    quiet, again = bare.examine(after, sandbox(generation=2, labels={"app": second}))
    assert not quiet
    assert again is after


def test_observing_tells_the_change_and_counts_no_event() -> None:
    """A state that came by another way is compared, not judged."""
    bare = ChangeDetector(generation())
    change, held = bare.update_baseline(None, sandbox(generation=1))
    assert change == Change.FIRST_SEEN
    change, held = bare.update_baseline(held, sandbox(generation=2))
    assert change == Change.GENERATION
    assert bare.update_baseline(held, sandbox(generation=2)) == (Change(0), held)
    assert (bare.statistics().seen, bare.statistics().observed) == (0, 3)


def test_re_creations_and_ends_are_counted_as_passed() -> None:
    """As a filter counts them."""
    bare = ChangeDetector(generation())
    verdict, _ = bare.recreated("old", sandbox(uid="new"))
    assert (verdict.change, verdict.reason) == (Change.RECREATED, "re-created: uid old -> new")
    assert bare.deleted().change == Change.GONE
    found = bare.statistics()
    assert (found.passed, found.recreated, found.gone) == (2, 1, 1)


def test_brief_leaves_tell_chosen_keys_from_others() -> None:
    """A digest passes what the pairs would pass; without any of the keys it is nothing at all."""
    leaf = annotation("a", "b", brief=True)
    states = [{}, {"z": "1"}, {"a": "1"}, {"b": "1"}, {"a": "1", "b": "1"}, {"a": "1", "z": "2"}]
    digests = [leaf(sandbox(annotations=state)) for state in states]
    assert digests[:2] == [None, None]
    assert digests[2] == digests[5]
    assert len(set(digests)) == 4
    subject = Filter(leaf)
    subject.admit(ADDED, sandbox(annotations={"a": "1"}))
    verdict = subject.admit(MODIFIED, sandbox(annotations={"a": "2"}))
    assert verdict.reason == "annotations a, b changed"

"""Laws of pruning: what is kept of mappings, and of who wrote what."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from filters import keep, status_writers


class Writer(NamedTuple):
    """One entry of managedFields."""

    manager: str
    subresource: str
    time: str


@given(
    mapping=st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
    keys=st.lists(st.text(max_size=3)),
)
def test_keeping_keeps_exactly_the_chosen_entries(
    mapping: dict[str, str] | None, keys: list[str]
) -> None:
    """Kept is what is both present and chosen; nothing left is None."""
    expected = {key: value for key, value in (mapping or {}).items() if key in keys}
    assert keep(mapping, keys) == (expected or None)


def test_what_is_kept_has_the_texts_of_the_chosen_keys() -> None:
    """So that thousands of objects share them."""
    key, decoded = (b"app".decode() for _ in range(2))
    kept = keep({decoded: "web"}, (key,))
    assert kept is not None
    assert next(iter(kept)) is key


WRITERS = st.lists(
    st.builds(
        Writer,
        st.sampled_from(["me", "kubelet", "other"]),
        st.sampled_from(["", "status", "scale"]),
        st.sampled_from(["09:00:00", "09:00:01"]),
    ),
    max_size=4,
)


@given(before=WRITERS, after=WRITERS)
def test_the_digest_changes_with_foreign_writes_of_the_status_alone(
    before: list[Writer], after: list[Writer]
) -> None:
    """Our own writes, and writes of anything else, say nothing of the status."""

    def foreign(writers: list[Writer]) -> list[Writer]:
        return [one for one in writers if one.subresource == "status" and one.manager != "me"]

    digests = [status_writers(writers, besides="me") for writers in (before, after)]
    assert (digests[0] == digests[1]) is (foreign(before) == foreign(after))
    assert bool(digests[0]) is bool(foreign(before))


def test_nobody_is_zero() -> None:
    """Objects without managedFields, or with our own writes alone."""
    assert status_writers((), besides="me") == 0
    assert status_writers([Writer("me", "status", "t")], besides="me") == 0

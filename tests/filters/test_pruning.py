"""Laws of pruning: what is kept of mappings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from filters import keep


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

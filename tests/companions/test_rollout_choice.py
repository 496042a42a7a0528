"""Which members a step of a rollout chooses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.companions.freemembers import COMPLETE, FreeMembers, choose, read_share, state_of
from lean_sandbox.companions.kinds import CompanionSandboxEntry
from lean_sandbox.watch.kind import Key
from tests.support.world import NS


def entries(kind: str, count: int) -> list[CompanionSandboxEntry]:
    """Return members of a kind."""
    return [
        CompanionSandboxEntry(Key(NS, f"{kind}-{number}"), f"{kind}-{number}", 1)
        for number in range(count)
    ]


COUNTS = st.integers(0, 6)


@given(
    wanted=st.integers(0, 12),
    renewed=COUNTS,
    starting=COUNTS,
    old=COUNTS,
    unready=COUNTS,
    permitted=st.integers(1, 12),
)
def test_no_choice_leaves_more_missing_than_permitted(
    wanted: int, renewed: int, starting: int, old: int, unready: int, permitted: int
) -> None:
    """Unless they are missing without it; and while any old member is left, some time one goes."""
    census = FreeMembers(
        wanted,
        entries("renewed", renewed),
        entries("starting", starting),
        entries("old", old),
        entries("unready", unready),
    )
    chosen = choose(census, permitted)
    assert all(one in census.old + census.old_unready for one in chosen)
    gone = [one for one in chosen if one in census.old]
    after = max(0, wanted - renewed - (old - len(gone)))
    assert after <= max(permitted, census.missing)
    if gone:
        assert after <= permitted
    if len(chosen) > len(gone):
        assert max(0, wanted - renewed - old - unready) + len(chosen) - len(gone) <= permitted
    if old + unready and census.missing == 0:
        assert chosen
    is_over = state_of(census, permitted, is_stuck=False) == COMPLETE
    assert not (is_over and (chosen or census.missing >= permitted))


@pytest.mark.parametrize(
    "wish", ["0%", "101%", "-1", "25 %", "a quarter", "", "1.5", "%", "1000000000"]
)
def test_what_is_neither_a_number_nor_a_part_is_refused(wish: str) -> None:
    """The error says what it may be."""
    with pytest.raises(ValueError, match="from 1% to 100%"):
        read_share(wish)

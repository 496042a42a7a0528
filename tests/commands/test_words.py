"""What the commands tell people is English."""

from __future__ import annotations

import pytest

from lean_sandbox.words import counted


@pytest.mark.parametrize(
    ("count", "told"), [(0, "0 claims"), (1, "1 claim"), (2, "2 claims"), (2000, "2,000 claims")]
)
def test_a_noun_agrees_with_its_number(count: int, told: str) -> None:
    """One has the singular, all others the plural; thousands are set apart."""
    assert counted(count, "claim", "claims") == told

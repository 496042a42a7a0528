"""What is recorded of the tests, and which of them are asked."""

from __future__ import annotations

import pytest

from tests.mutants.copies import ROOT
from tests.mutants.reach import LEFT_OUT


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_what_is_not_asked_is_there(name: str) -> None:
    """A file or a folder that has another name now would be asked."""
    assert list((ROOT / "tests").glob(f"**/{name}"))

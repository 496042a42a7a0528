"""The list of mutants, which ``.ci/tasks mutants`` judges, keeps up with the code."""

from __future__ import annotations

import pytest

from tests.faults.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_every_mutant_has_its_place_in_the_code(mutant: Mutant) -> None:
    """What it replaces stands there exactly once."""
    assert (ROOT / "lean_sandbox" / mutant.path).read_text(encoding="utf-8").count(mutant.old) == 1

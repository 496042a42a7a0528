"""Which tests a run takes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tiers import EXTENDED, NAMED, left_out

ROOT = Path(__file__).resolve().parent.parent


def passed_over(*args: str, marks: str = "", where: Path = ROOT) -> set[str]:
    """Return what a run with these arguments leaves out."""
    config: Any = SimpleNamespace(
        args=list(args),
        rootpath=ROOT,
        invocation_params=SimpleNamespace(dir=where),
        getoption={"markexpr": marks}.get,
    )
    return {str(path.relative_to(ROOT)) for path in left_out(config)}


def test_every_extended_file_and_folder_is_there() -> None:
    """One that moved would run in each run, unnoticed."""
    assert [path for path in (*EXTENDED, *NAMED) if not (ROOT / path).exists()] == []
    assert list(EXTENDED) == sorted(set(EXTENDED))


@pytest.mark.parametrize("args", [["tests"], ["tests/faults"], ["tests/test_tiers.py"]])
def test_a_run_leaves_out_what_it_does_not_name(args: list[str]) -> None:
    """Naming a folder above is not naming what is extended in it."""
    assert passed_over(*args) == {*EXTENDED, *NAMED}


def test_a_run_takes_what_it_names() -> None:
    """The folder, a file within, one test; from whatever folder it is started."""
    assert set(EXTENDED) - passed_over("tests/local") == {"tests/local"}
    assert set(EXTENDED) - passed_over("tests/local/test_plane.py::test_a") == {"tests/local"}
    assert set(EXTENDED) - passed_over("test_up.py", where=ROOT / "tests/local") == {"tests/local"}


def test_an_expression_decides_alone() -> None:
    """Whatever ``-m`` says is asked of all tests but those that only a name selects."""
    assert (
        passed_over("tests", marks="extended") == passed_over("tests", marks="case") == set(NAMED)
    )
    assert passed_over("tests/integrations", marks="case") == set()

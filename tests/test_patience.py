"""How long a test waits for what does not come."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent
_LIMITS = ("fail_after", "move_on_after", "wait_for")
"""What ends a block after so many real seconds."""


def limits(source: str) -> Iterator[ast.expr]:
    """Return the limits that a module gives to waits: to blocks, processes, sockets and tests."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name.rpartition(".")[2] in _LIMITS or name.endswith("mark.timeout"):
            yield from node.args[-1:]
        yield from (one.value for one in node.keywords if one.arg == "timeout")


@pytest.mark.parametrize(
    "source", ["anyio.fail_after(5)", "wait_for(x, 2.0)", "run(x, timeout=60)", "p.mark.timeout(9)"]
)
def test_a_limit_is_found_wherever_it_stands(source: str) -> None:
    """Around a block, at a process, above a test."""
    assert [type(one) for one in limits(source)] == [ast.Constant]


def test_no_test_has_a_limit_of_its_own() -> None:
    """A number of seconds fails on a machine that is slow enough: all waits have one patience."""
    numbers = [
        f"{path.relative_to(ROOT)}:{one.lineno}"
        for path in sorted(ROOT.rglob("*.py"))
        for one in limits(path.read_text(encoding="utf-8"))
        if isinstance(one, ast.Constant) and one.value is not None
    ]
    assert numbers == []


def test_a_test_ends_after_its_waits(pytestconfig: pytest.Config) -> None:
    """So that they can say what they waited for."""
    limit_s = pytestconfig.getoption("timeout")
    assert limit_s == 0 or limit_s > PATIENCE_S

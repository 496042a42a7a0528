"""The table of attacks tells the truth: complete, and every test that it names is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.totals import ATTACKS

TESTS = Path(__file__).resolve().parent.parent
_ROW = re.compile(r"^\| (?P<number>\d\.\d+) \| (?P<law>[^|]+) \| (?P<proof>[^|]+) \|$")
# How many attacks each part has.
_PARTS = {1: 38, 2: 26, 3: 19, 4: 6, 5: 2}


def rows() -> dict[str, list[str]]:
    """Return what is behind each attack: names of tests in backticks, or a reason."""
    found: dict[str, list[str]] = {}
    for line in (TESTS / "tenancy" / "attacks.md").read_text().splitlines():
        if row := _ROW.match(line):
            assert row["number"] not in found, line
            assert len(row["law"].split()) >= 4, line
            found[row["number"]] = row["proof"].split("<br>")
        else:
            assert not re.match(r"\| *\d", line), f"not a row: {line}"
    return found


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of the tests in a file."""
    tree = ast.parse((TESTS / path).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {node.name for node in tree.body if isinstance(node, functions)}
    return frozenset(name for name in names if name.startswith("test_"))


def test_every_attack_has_one_row_in_order() -> None:
    """None is left out, none stands twice."""
    wanted = [f"{part}.{number + 1}" for part, last in _PARTS.items() for number in range(last)]
    assert list(rows()) == wanted


def test_every_test_that_is_named_is_there(record_property: Callable[[str, object], None]) -> None:
    """A row names tests, the whole of a file by a star, or says in words why it is open."""
    shown = 0
    for number, proofs in rows().items():
        named = [proof for proof in proofs if proof.startswith("`")]
        reasons = [proof for proof in proofs if not proof.startswith("`")]
        for proof in named:
            path, _, name = proof.strip("`").partition("::")
            assert name in names_in(path) or (name == "*" and names_in(path)), f"{number}: {proof}"
        for reason in reasons:
            wanted = "partly open: " if named else "open: "
            assert reason.startswith(wanted), f"{number}: {reason}"
            assert len(reason.split()) >= 5, f"{number}: {reason}"
        shown += bool(named)
    record_property(ATTACKS, shown)

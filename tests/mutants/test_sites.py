"""What is changed in a module, and what is left alone; the lists keep up with the code."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.mutants.__main__ import DEADLY
from tests.mutants.sites import blocks, equivalent, sites, sites_of


def changes(source: str) -> list[str]:
    """Return what becomes of a module, as ``operator old => new``."""
    return [site.name.partition(": ")[2] for site in sites("m.py", dedent(source))]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a < b", ["flip a < b => (a <= b)"]),
        ("not a", ["flip not a => (a)"]),
        ("True", ["flip True => False"]),
        ("a and b", ["drop a and b => (a)", "drop a and b => (b)", "flip a and b => (a or b)"]),
        ("f(a, b)", ["swap f(a, b) => (f(b, a))"]),
        ("f(b=c)", ["drop f(b=c) => (f())"]),
        ("zip(a, strict=True)", []),
        ("a if b else c", ["swap a if b else c => (c if b else a)"]),
        ("a - b", ["swap a - b => (a + b)"]),
        ("max(a, b)", ["swap max(a, b) => (min(a, b))"]),
        ("{a, b}", ["drop {a, b} => ({a})", "drop {a, b} => ({b})"]),
        ("a[:b]", ["drop a[:b] => (a[:])"]),
        ("7", ["constant 7 => 8"]),
        ("0.5", ["constant 0.5 => 1.0"]),
        ("'word'", ["constant 'word' => 'word~'"]),
    ],
)
def test_an_expression_is_changed_in_each_way(line: str, expected: list[str]) -> None:
    """By each operator, once for each operand."""
    assert changes(f"x = {line}") == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("f()", ["drop f() => pass"]),
        ("a.b = c", ["drop a.b = c => pass"]),
        ("raise a", ["drop raise a => pass"]),
        ("if a:\n    b", ["drop a => (False)", "flip a => (not a)"]),
        ("if a:\n    b\nelse:\n    c", ["swap a => (not a)"]),
    ],
)
def test_a_statement_is_left_out_or_its_branches_are_swapped(
    lines: str, expected: list[str]
) -> None:
    """What makes nothing but a name is left: without it, nothing would run at all."""
    assert sorted(changes(lines)) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        "x: int | None",
        "x = 'what a person reads'",
        "log.info('started', of=3)",
        "@decorated(True)\nclass A(B, frozen=True):\n    pass",
        "assert a < b",
        "x = f'{a < b}'",
    ],
)
def test_what_no_law_is_about_is_left_alone(source: str) -> None:
    """Types, texts for people, lines of the log, options of classes."""
    assert changes(source) == []


def test_a_change_changes_its_place_alone() -> None:
    """Its name tells places apart that read the same, and says nothing of lines."""
    source = "def f(a):\n    é = 1\n    return a + 1\n"
    first, swap, second = sites("m.py", source)
    assert (first.name, second.name) == ("m.py f: constant 1 => 2", "m.py f: constant 1 => 2 (2)")
    assert second.apply(source.encode()).decode() == source.replace("a + 1", "a + 2")
    assert swap.apply(source.encode()).decode() == source.replace("a + 1", "(a - 1)")
    assert first.block == second.block == "m.py:f:0"


def test_each_branch_is_a_block_of_its_own() -> None:
    """What is run together is one."""
    source = dedent("""
        def f():
            if a:
                b = 1
            else:
                c = 2
        x = 3
        """)
    found = {site.new: site.block for site in sites("m.py", source) if site.operator == "constant"}
    assert found == {"2": "m.py:f:1", "3": "m.py:f:2", "4": ""}
    assert [name for name, _ in blocks("m.py", ast.parse(source))] == [
        "m.py:f:0",
        "m.py:f:1",
        "m.py:f:2",
    ]


def test_what_a_limit_defines_is_known() -> None:
    """The tests of a constant are those of what uses it."""
    (site,) = sites("m.py", "_MOST = 7\n")
    assert site.defines == ("_MOST",)
    assert site.name == "m.py _MOST: constant 7 => 8"


@pytest.mark.parametrize("name", sorted({DEADLY, *equivalent()}))
def test_every_change_that_is_listed_has_its_place_in_the_code(name: str) -> None:
    """The reasons are reasons of this code."""
    assert name in [site.name for site in sites_of(name)]

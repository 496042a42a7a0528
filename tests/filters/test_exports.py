"""Laws of the package itself: what it exports and what it needs."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import ModuleType

import filters

PACKAGE = Path(filters.__file__).parent


def test_exactly_the_listed_names_are_exported() -> None:
    """``__all__`` is complete, sorted in groups, and every name exists."""
    public = {
        name
        for name, value in vars(filters).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(filters.__all__)
    assert len(filters.__all__) == len(set(filters.__all__))


def test_every_exported_name_has_a_user() -> None:
    """What neither the controller nor the operator of the page needs is no part of the package."""
    root = PACKAGE.parent
    pages = [*(root / "lean_sandbox").rglob("*.py"), root / "docs" / "filters.md"]
    used = {word for page in pages for word in re.findall(r"\w+", page.read_text())}
    assert set(filters.__all__) <= used


def imported() -> set[str]:
    """Return the top names of everything that the package imports."""
    found = set()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                found.add(str(node.module).partition(".")[0])
    assert "filters" in found
    return found


def test_the_package_needs_nothing_but_the_standard_library() -> None:
    """Every import in every module is its own or the interpreter's."""
    allowed = {"filters", *sys.stdlib_module_names}
    assert {name for name in imported() if name not in allowed} == set()


def test_logic_reads_no_clock_and_no_dice() -> None:
    """Time is handed in, so that every law can be tested without waiting."""
    assert imported() & {"time", "random", "datetime", "secrets"} == set()


def test_types_ship_with_the_package() -> None:
    """Type checkers of other projects see the annotations."""
    assert (PACKAGE / "py.typed").exists()

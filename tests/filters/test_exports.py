"""Laws of the package itself: what it exports and what it needs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import filters

PACKAGE = Path(filters.__file__).parent


def test_exactly_the_listed_names_are_exported() -> None:
    """``__all__`` is complete, sorted in groups, and every name exists, imported late or not."""
    public = {
        name
        for name, value in vars(filters).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public | filters._EXPLAINING == set(filters.__all__)
    assert len(filters.__all__) == len(set(filters.__all__))
    for name in filters.__all__:
        assert not isinstance(getattr(filters, name), ModuleType), name
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = filters.nothing


def test_who_filters_does_not_load_what_explains_logs() -> None:
    """The module that explains recorded logs comes with the first of its names."""
    program = (
        "import sys, filters\n"
        "before = 'filters.explaining' in sys.modules\n"
        "from filters import replay\n"
        "print(before, 'filters.explaining' in sys.modules, replay.__name__)\n"
    )
    done = subprocess.run(  # noqa: S603 -- the text above
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["False", "True", "replay"]


def test_the_package_needs_nothing_but_the_standard_library() -> None:
    """Every import in every module is its own or the interpreter's."""
    for path in sorted(PACKAGE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [node.module or ""]
            for name in names:
                root = name.partition(".")[0]
                assert root == "filters" or root in sys.stdlib_module_names, f"{path.name}: {name}"


def test_logic_reads_no_clock_and_no_dice() -> None:
    """Time is handed in, so that every law can be tested without waiting."""
    for path in sorted(PACKAGE.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert not imported & {"time", "random", "datetime"}, path.name


def test_types_ship_with_the_package() -> None:
    """Type checkers of other projects see the annotations."""
    assert (PACKAGE / "py.typed").exists()

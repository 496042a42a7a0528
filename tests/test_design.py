"""docs/design.md names functions that exist, and so few that its two traces stay short."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "design.md").read_text()
HOPS = re.findall(r"`((?:lean_sandbox|filters)/[\w/]+\.py):([\w.]+)`", PAGE)
TO_THE_QUEUE = PAGE.split("### One Pod event", 1)[-1].split("### ", 1)[0].split("**queue**")[0]


def defined(path: Path) -> set[str]:
    """Return the functions, classes and methods of a module, methods as ``Class.method``."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return found


@pytest.mark.parametrize(("path", "name"), sorted(set(HOPS)))
def test_every_function_on_the_way_exists(path: str, name: str) -> None:
    """A function that is renamed or moved is renamed on the page too."""
    assert name in defined(ROOT / path)


def test_an_event_reaches_its_queue_in_few_steps() -> None:
    """From bytes to queue: at most 14 functions in 8 modules."""
    hops = re.findall(r"`((?:lean_sandbox|filters)/[\w/]+\.py):([\w.]+)`", TO_THE_QUEUE)
    assert hops
    assert len(set(hops)) <= 14
    assert len({path for path, _ in hops}) <= 8

"""The numbered cases of each kind's behaviour, and the tests that prove them.

The laws stand in ``cases.md``; the tests are found by their markers (``@pytest.mark.case(...)`` and
its three brothers), which are read from the syntax trees: nothing is imported.
``python -m tests.cases`` prints both, ``python -m tests.cases claim_case 12`` of one case.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["LAWS", "MarkerError", "found_tests", "laws", "main", "table"]

ROOT = Path(__file__).parent
_HEADING = re.compile(r"^## \w+ \(`(?P<marker>\w+)`\)$")
_LAW = re.compile(r"^(?P<number>\d+)\. (?P<law>\S.*)$")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class MarkerError(Exception):
    """A marker that cannot be read from the syntax tree, or that names no case."""


def laws(text: str) -> dict[str, dict[int, str]]:
    """Return the laws by marker and number. Raises ValueError where they are not 1, 2, 3..."""
    found: dict[str, dict[int, str]] = {}
    of_kind: dict[int, str] = {}
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            of_kind = found.setdefault(heading["marker"], {})
        elif law := _LAW.match(line):
            if int(law["number"]) != len(of_kind) + 1:
                raise ValueError(f"case {len(of_kind) + 1} is expected: {line}")
            of_kind[int(law["number"])] = law["law"]
    return found


LAWS = laws((ROOT / "cases.md").read_text(encoding="utf-8"))


def found_tests(marker: str, root: Path = ROOT) -> dict[int, tuple[str, ...]]:
    """Return the tests of each case, by path below ``root`` and name. Raises MarkerError."""
    found: dict[int, list[str]] = {}
    for path in sorted(root.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if f".{marker}(" not in source:
            continue
        place = path.relative_to(root).as_posix()
        for name, numbers in _marked(ast.parse(source), place, marker):
            for number in numbers:
                names = found.setdefault(number, [])
                if name not in names:
                    names.append(name)
    return {number: tuple(names) for number, names in sorted(found.items())}


def _marked(tree: ast.Module, place: str, marker: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    read_calls: set[ast.AST] = set()
    for test, names in _tests(tree, ()):
        for decorator in test.decorator_list:
            if _is_marker(decorator, marker):
                assert isinstance(decorator, ast.Call)
                read_calls.add(decorator)
                yield "::".join((place, *names)), _numbers(decorator, place, marker)
    for node in ast.walk(tree):
        if _is_marker(node, marker) and node not in read_calls:
            line = getattr(node, "lineno", 0)
            raise MarkerError(f"{place}:{line}: put the marker above the test function itself")


def _tests(
    node: ast.Module | ast.ClassDef, names: tuple[str, ...]
) -> Iterator[tuple[_Function, tuple[str, ...]]]:
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _tests(child, (*names, child.name))
        elif isinstance(child, _Function) and child.name.startswith("test"):
            yield child, (*names, child.name)


def _is_marker(node: ast.AST, marker: str) -> bool:
    """Tell whether a node is a call of the marker."""
    match node:
        case ast.Call(func=ast.Attribute(attr=attr, value=ast.Attribute(attr="mark"))):
            return attr == marker
    return False


def _numbers(call: ast.Call, place: str, marker: str) -> tuple[int, ...]:
    numbers = [
        argument.value
        for argument in call.args
        if isinstance(argument, ast.Constant) and type(argument.value) is int
    ]
    if not numbers or len(numbers) != len(call.args) or call.keywords:
        raise MarkerError(f"{place}:{call.lineno}: a marker lists numbers and nothing else")
    unknown = [number for number in numbers if number not in LAWS[marker]]
    if unknown:
        raise MarkerError(f"{place}:{call.lineno}: there is no case {unknown[0]}")
    return tuple(numbers)


def table(marker: str, number: int | None = None) -> str:
    """Return the cases of a marker, or one of them, each with the tests that prove it below it."""
    tests = found_tests(marker)
    lines = []
    for case, law in LAWS[marker].items():
        if number in (None, case):
            lines.append(f"{marker} {case}: {law}")
            lines.extend(f"    {name}" for name in tests.get(case, ("no test",)))
    return "\n".join(lines)


def main(argv: Sequence[str]) -> None:
    """Print all cases, or those of a marker, or one case."""
    markers = argv[:1] or list(LAWS)
    number = int(argv[1]) if len(argv) > 1 else None
    sys.stdout.writelines(f"{table(marker, number)}\n" for marker in markers)


if __name__ == "__main__":
    main(sys.argv[1:])

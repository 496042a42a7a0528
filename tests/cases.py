"""The maps from the numbered cases of each kind's behaviour to the tests that prove them.

``python -m tests.cases`` rewrites the last column of the four tables beside this module from the
markers of the tests (``@pytest.mark.case(...)`` and its three brothers), which are read from the
syntax trees: nothing is imported. A row without a test says ``open:`` and why; ``partly open:`` may
follow the tests of a row.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["TABLES", "MarkerError", "Row", "Table", "found_tests", "read", "render", "updated"]

ROOT = Path(__file__).parent
_NO_TEST = "no test yet"
_BETWEEN = "<br>"
_ROW = re.compile(r"^\| (?P<number>\d+) \| (?P<law>.+?) \| (?P<proof>.+?) \|$")
_OPEN = re.compile(r"^(?P<partly>partly )?open: (?P<reason>\S.*)$")


@dataclass(frozen=True, slots=True)
class Table:
    """The cases of one kind: their marker, the file of their table, and how many there are."""

    marker: str
    kind: str
    file: str
    last: int

    @property
    def path(self) -> Path:
        """Where the table is."""
        return ROOT / self.file

    @property
    def cases(self) -> range:
        """The numbers of the cases."""
        return range(1, self.last + 1)

    @property
    def header(self) -> str:
        """What stands above the rows."""
        return f"""\
# The cases of a {self.kind}'s behaviour and the tests that prove them

Written by `python -m tests.cases` from the markers of the tests; only the second column, and the
reasons after `open:`, are written by hand. Paths are those below `tests/`.

| Case | Law | Proved by |
| ---: | --- | --- |
"""


TABLES = (
    Table("case", "Sandbox", "sandbox-cases.md", 152),
    Table("claim_case", "SandboxClaim", "claim-cases.md", 121),
    Table("pool_case", "SandboxWarmPool", "pool-cases.md", 104),
    Table("template_case", "SandboxTemplate", "template-cases.md", 52),
)


class MarkerError(Exception):
    """A marker that cannot be read from the syntax tree, or a row that cannot be understood."""


@dataclass(frozen=True, slots=True)
class Row:
    """One case: its law, the tests that prove it, and why it is open in whole or in part."""

    number: int
    law: str
    tests: tuple[str, ...] = ()
    open: str = ""

    @property
    def proof(self) -> str:
        """The last column."""
        parts = [f"`{name}`" for name in self.tests]
        if self.open:
            parts.append(f"{'partly open' if self.tests else 'open'}: {self.open}")
        return _BETWEEN.join(parts)


# -- the markers of the tests ----------------------------------------------------------------------


def found_tests(table: Table, root: Path = ROOT) -> dict[int, tuple[str, ...]]:
    """Return the tests of each case, by path below ``root`` and name. Raises MarkerError."""
    found: dict[int, list[str]] = {}
    for path in sorted(root.rglob("test_*.py")):
        source = path.read_text()
        if f".{table.marker}(" not in source:
            continue
        place = path.relative_to(root).as_posix()
        for name, numbers in _marked(ast.parse(source), place, table):
            for number in numbers:
                names = found.setdefault(number, [])
                if name not in names:
                    names.append(name)
    return {number: tuple(names) for number, names in sorted(found.items())}


def _marked(tree: ast.Module, place: str, table: Table) -> Iterator[tuple[str, tuple[int, ...]]]:
    read_calls: set[ast.AST] = set()
    for test, names in _tests(tree, ()):
        for decorator in test.decorator_list:
            if _is_marker(decorator, table):
                assert isinstance(decorator, ast.Call)
                read_calls.add(decorator)
                yield "::".join((place, *names)), _numbers(decorator, place, table)
    for node in ast.walk(tree):
        if _is_marker(node, table) and node not in read_calls:
            line = getattr(node, "lineno", 0)
            raise MarkerError(f"{place}:{line}: put the marker above the test function itself")


def _tests(
    node: ast.Module | ast.ClassDef, names: tuple[str, ...]
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, tuple[str, ...]]]:
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _tests(child, (*names, child.name))
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and (
            child.name.startswith("test")
        ):
            yield child, (*names, child.name)


def _is_marker(node: ast.AST, table: Table) -> bool:
    """Tell whether a node is a call of the table's marker."""
    match node:
        case ast.Call(func=ast.Attribute(attr=attr, value=ast.Attribute(attr="mark"))):
            return attr == table.marker
    return False


def _numbers(call: ast.Call, place: str, table: Table) -> tuple[int, ...]:
    numbers = [
        argument.value
        for argument in call.args
        if isinstance(argument, ast.Constant) and type(argument.value) is int
    ]
    if not numbers or len(numbers) != len(call.args) or call.keywords:
        raise MarkerError(f"{place}:{call.lineno}: a marker lists numbers and nothing else")
    unknown = [number for number in numbers if number not in table.cases]
    if unknown:
        raise MarkerError(f"{place}:{call.lineno}: there is no case {unknown[0]}")
    return tuple(numbers)


# -- the table -------------------------------------------------------------------------------------


def read(table: Table, text: str) -> list[Row]:
    """Return the rows of a table. Raises MarkerError for a line that is no row of it."""
    if not text.startswith(table.header):
        raise MarkerError("the head of the table is not the generated one")
    return [_row(line) for line in text[len(table.header) :].splitlines()]


def _row(line: str) -> Row:
    parsed = _ROW.match(line)
    if parsed is None:
        raise MarkerError(f"not a row: {line}")
    tests = []
    reason = ""
    for part in parsed["proof"].split(_BETWEEN):
        said = _OPEN.match(part)
        if said is not None:
            reason = said["reason"]
        elif part.startswith("`") and part.endswith("`"):
            tests.append(part[1:-1])
        else:
            raise MarkerError(f"case {parsed['number']}: neither a test nor open: {part}")
    row = Row(int(parsed["number"]), parsed["law"], tuple(tests), reason)
    if row.proof != parsed["proof"]:
        raise MarkerError(f"case {row.number}: tests come first, then what is partly open")
    return row


def updated(rows: list[Row], tests: dict[int, tuple[str, ...]]) -> list[Row]:
    """Return the rows with the tests that exist; one that was wholly open is not any more."""
    return [_refreshed(row, tests.get(row.number, ())) for row in rows]


def _refreshed(row: Row, tests: tuple[str, ...]) -> Row:
    was_wholly_open = not row.tests
    reason = "" if tests and was_wholly_open else row.open
    return replace(row, tests=tests, open=reason if tests else row.open or _NO_TEST)


def render(table: Table, rows: list[Row]) -> str:
    """Return the table as text."""
    lines = [f"| {row.number} | {row.law} | {row.proof} |" for row in rows]
    return table.header + "\n".join(lines) + "\n"


def main() -> None:
    """Rewrite the tables."""
    for table in TABLES:
        rows = updated(read(table, table.path.read_text()), found_tests(table))
        table.path.write_text(render(table, rows))
        left = [row.number for row in rows if not row.tests]
        proved = len(rows) - len(left)
        print(f"{table.kind}: {proved} of {len(rows)} cases have tests; open: {left}")  # noqa: T201


if __name__ == "__main__":
    main()

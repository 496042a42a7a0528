"""Modules in which each of many changes is chosen by a number while they run.

A process that has imported them, and has collected the tests, tries one change after another.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from tests.mutants.sites import Site

__all__ = ["CHANGE", "switched", "write_switches"]

CHANGE = "SANDBOX_TESTS_CHANGE"
#: Processes that tests start are told the number by the environment.
_MODULE = f"""
import os
on = int(os.environ.get("{CHANGE}", "0"))
met = set()
def is_on(number):
    met.add(number)
    return number == on
"""
_IMPORT = "from changed import is_on as _is_on"


def write_switches(root: Path, changes: Mapping[int, Site]) -> None:
    """Let a number choose each of some changes in the copy below a root; none is chosen."""
    (root / "changed.py").write_text(_MODULE, encoding="utf-8")
    by_path = sorted(changes.items(), key=lambda one: one[1].path)
    for path, some in groupby(by_path, key=lambda one: one[1].path):
        (root / path).write_bytes(switched((root / path).read_bytes(), dict(some)))


def switched(source: bytes, changes: Mapping[int, Site]) -> bytes:
    """Return the source of a module in which a number chooses each of some changes of it."""
    inside = sorted(changes.items(), key=lambda one: (one[1].start, -one[1].end))
    text = _between(source, 0, len(source), inside)
    tree = ast.parse(source)
    place = 1 if tree.body and isinstance(tree.body[0], ast.Expr) else 0
    if len(tree.body) > place and getattr(tree.body[place], "module", "") == "__future__":
        place += 1
    lines = text.split(b"\n")
    at = (tree.body[place - 1].end_lineno or 0) if place else 0
    if at:
        # Lines keep their numbers.
        lines[at - 1] += f"; {_IMPORT}".encode()
    else:
        lines[0] = f"{_IMPORT}; ".encode() + lines[0]
    return b"\n".join(lines)


def _between(source: bytes, start: int, end: int, inside: Sequence[tuple[int, Site]]) -> bytes:
    """Return a part of the source; the changes inside of it are sorted, outer ones first."""
    parts = []
    place = start
    left = list(inside)
    while left:
        first = left[0][1]
        same = [one for one in left if (one[1].start, one[1].end) == (first.start, first.end)]
        within = [one for one in left if one[1].start < first.end][len(same) :]
        left = left[len(same) + len(within) :]
        parts.append(source[place : first.start])
        parts.append(_chosen(_between(source, first.start, first.end, within), same))
        place = first.end
    return b"".join([*parts, source[place:end]])


def _chosen(text: bytes, changes: Sequence[tuple[int, Site]]) -> bytes:
    """Return a statement or an expression that can be changed in each of some ways."""
    is_dropped = []
    for number, site in changes:
        if site.new == "pass":
            is_dropped.append(f"if not _is_on({number}): ".encode())
        else:
            text = f"(({site.new}) if _is_on({number}) else (".encode() + text + b"))"
    return b"".join(is_dropped) + text

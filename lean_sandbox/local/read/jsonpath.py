"""The JSONPath of printer columns and of scales: members, items of lists, and filters."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

JsonPath = Callable[[Any], list[Any]]

_PIECE: Final = re.compile(
    r"""
    \.(?!\.)(?P<name>(?:\\.|[^\s.,\[\]$@{}\\*])*)             # .member
  | \['(?P<path>[^']*)'\]                                     # ['member']
  | \[(?P<index>-?\d+|\*)\]                                   # [0], [-1], [*]
  | \[\?\(\s*@(?P<left>(?:[^\s=!<>()'"]|\['[^']*'\])*)\s*     # [?(@.member)]
    (?:(?P<sign>[=!]=)\s*(?P<right>'[^']*'|"[^"]*"|true|false|\d+)\s*)?\)\]   # == 'text'
    """,
    re.VERBOSE,
)


@lru_cache(maxsize=1024)
def parse_path(text: str) -> JsonPath:
    """Return the function that finds all values at a path.

    Raises:
        ValueError: the path is no JSONPath, or has slices, unions, ``..`` or other comparisons.

    """
    steps: list[JsonPath] = []
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            raise ValueError(f"cannot read JSONPath {text!r}")
        steps.append(_step(match))
        at = match.end()

    def find(value: Any) -> list[Any]:
        values = [value]
        for step in steps:
            values = [after for before in values for after in step(before)]
        return values

    return find


def _step(match: re.Match[str]) -> JsonPath:
    name, path, index, left, sign, right = match.groups()
    if name is not None:
        return _member(re.sub(r"\\(.?)", r"\1", name))
    if path is not None:
        return parse_path(f".{path}")
    if index is not None:
        return _item(index)
    wanted = parse_path(left)
    if sign is None:
        return lambda value: [item for item in _listed(value) if wanted(item)]
    other = right[1:-1] if right[0] in "'\"" else msgspec.json.decode(right)

    def holds(item: Any) -> bool:
        found = wanted(item)
        is_like = bool(found) and type(found[0]) is type(other)
        return is_like and (found[0] == other) is (sign == "==")

    return lambda value: [item for item in _listed(value) if holds(item)]


def _member(name: str) -> JsonPath:
    def step(value: Any) -> list[Any]:
        return [value[name]] if isinstance(value, dict) and name in value else []

    return step


def _item(index: str) -> JsonPath:
    if index == "*":
        return _listed
    at = int(index)

    def step(value: Any) -> list[Any]:
        items = _listed(value)
        return [items[at]] if -len(items) <= at < len(items) else []

    return step


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

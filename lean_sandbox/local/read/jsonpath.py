"""The JSONPath of printer columns, as kubectl reads it: fields, lists, wildcards and filters."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

JsonPath = Callable[[Any], list[Any]]

_NAME: Final = r"(?:\\.|[^\s.,\[\]$@{}\\])*"
_PIECE: Final = re.compile(
    rf"""
    \.\.(?P<deep>{_NAME})                                   # ..member, at any depth
  | \.(?P<name>{_NAME})                                     # .member
  | \[\?\((?P<filter>(?:'[^']*'|"[^"]*"|[^'")])*)\)\]       # [?(@.a == 'b')]
  | \[(?P<inside>[^\]\n]+)\]                                # [0], [0:2], [*], ['a'], [0,2]
    """,
    re.VERBOSE,
)
_SLICE: Final = re.compile(r"(-?\d+)?(?:(:)(-?\d+)?(?::(-?\d+)?)?)?")
_TERM: Final = re.compile(r"([^!<>=]+)([!<>=]+)(.+)")
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d*)?")
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class _NothingError(Exception):
    """A path does not fit the value: it finds nothing, not even elsewhere."""


@lru_cache(maxsize=1024)
def parse_path(text: str) -> JsonPath:
    """Return the function that finds all values at a path.

    Raises:
        ValueError: the path is no JSONPath.

    """
    follow = _steps(text)

    def find(value: Any) -> list[Any]:
        try:
            return follow(value)
        except _NothingError:
            return []

    return find


def _steps(text: str) -> JsonPath:
    """Return what follows a path, step by step."""
    steps: list[JsonPath] = []
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            raise ValueError(f"cannot read JSONPath {text!r}")
        deep, name, condition, inside = match.groups()
        if deep is not None:
            steps.append(_descendants)
        if deep or name is not None:
            steps.append(_field(deep or name))
        elif condition is not None:
            steps.append(_filter(condition))
        elif inside is not None:
            steps.append(_inside(inside))
        at = match.end()

    def follow(value: Any) -> list[Any]:
        values = [value]
        for step in steps:
            values = [after for before in values for after in step(before)]
        return values

    return follow


def _field(written: str) -> JsonPath:
    name = re.sub(r"\\(.?)", r"\1", written)

    def step(value: Any) -> list[Any]:
        if not isinstance(value, dict):
            return []
        if written == "*":
            return list(value.values())
        return [value[name]] if name in value else []

    return step


def _descendants(value: Any) -> list[Any]:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(found for each in below for found in _descendants(each))]


def _inside(text: str) -> JsonPath:
    parts = text.split(",")
    if len(parts) > 1:
        steps = [_inside(part.strip(" ")) for part in parts]
        return lambda value: [found for step in steps for found in step(value)]
    if len(text) > 1 and text[0] == text[-1] == "'":
        return _steps("." + text[1:-1])
    match = _SLICE.fullmatch(":" if text == "*" else text)
    if match is None:
        raise ValueError(f"cannot read [{text}] of a JSONPath")
    first, is_slice, last, stride = match.groups()

    def step(value: Any) -> list[Any]:
        size = len(_listed(value))
        start = int(first or 0) + (size if first and first[0] == "-" else 0)
        end = start + 1 if not is_slice else size if last is None else int(last)
        if is_slice and end < 0:
            end += size
        by = int(stride or 1)
        if not 0 <= start <= end <= size or by <= 0 or (start == end and value):
            raise _NothingError
        return list(value[start:end:by])

    return step


def _filter(text: str) -> JsonPath:
    match = _TERM.fullmatch(text)
    if match is None:
        wanted = _operand(text)
        return lambda value: [item for item in _listed(value) if wanted(item)]
    left, right = _operand(match[1]), _operand(match[3])
    compared = _COMPARED.get(match[2])
    if compared is None:
        raise ValueError(f"cannot read the filter {text!r} of a JSONPath")

    def holds(item: Any) -> bool:
        one, other = left(item), right(item)
        if not one or not other:
            return False
        if type(one[0]) is not type(other[0]) or isinstance(one[0], dict | list):
            raise _NothingError
        return compared(one[0], other[0])

    return lambda value: [item for item in _listed(value) if holds(item)]


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _NothingError
    return value


def _operand(written: str) -> JsonPath:
    text = written.strip()
    if text.startswith("@"):
        return _steps(text[1:].partition(" ")[0])
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return lambda _: [text[1:-1]]
    if text in ("true", "false"):
        return lambda _: [text == "true"]
    if _NUMBER.fullmatch(text):
        return lambda _: [float(text) if "." in text else int(text)]
    if not text.isidentifier():
        raise ValueError(f"cannot read {text!r} in the filter of a JSONPath")
    return lambda _: []

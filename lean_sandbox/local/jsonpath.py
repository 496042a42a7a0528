"""The JSONPath of printer columns, as kubectl reads it: fields, lists, wildcards and filters."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

JsonPath = Callable[[Any], list[Any]]
_Step = Callable[[Any], Iterator[Any]]

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
    steps = _steps(text)

    def find(value: Any) -> list[Any]:
        try:
            return _follow(steps, value)
        except _NothingError:
            return []

    return find


def _follow(steps: list[_Step], value: Any) -> list[Any]:
    values = [value]
    for step in steps:
        values = [after for before in values for after in step(before)]
    return values


def _steps(text: str) -> list[_Step]:
    steps: list[_Step] = []
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            raise ValueError(f"cannot read JSONPath {text!r}")
        found = match.groupdict()
        if found["deep"] is not None:
            steps.append(_descendants)
            if found["deep"]:
                steps.append(_field(found["deep"]))
        elif found["name"] is not None:
            steps.append(_field(found["name"]))
        elif found["filter"] is not None:
            steps.append(_filter(found["filter"]))
        else:
            steps.append(_inside(found["inside"]))
        at = match.end()
    return steps


def _field(written: str) -> _Step:
    name = re.sub(r"\\(.?)", r"\1", written)

    def step(value: Any) -> Iterator[Any]:
        if not isinstance(value, dict):
            return
        if written == "*":
            yield from value.values()
        elif name in value:
            yield value[name]

    return step


def _descendants(value: Any) -> Iterator[Any]:
    yield value
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in below:
        yield from _descendants(each)


def _inside(text: str) -> _Step:
    parts = text.split(",")
    if len(parts) > 1:
        steps = [_inside(part.strip(" ")) for part in parts]
        return lambda value: (found for step in steps for found in step(value))
    if len(text) > 1 and text[0] == text[-1] == "'":
        names = _steps("." + text[1:-1])
        return lambda value: iter(_follow(names, value))
    match = _SLICE.fullmatch(":" if text == "*" else text)
    if match is None:
        raise ValueError(f"cannot read [{text}] of a JSONPath")
    first, is_slice, last, stride = match.groups()

    def step(value: Any) -> Iterator[Any]:
        if not isinstance(value, list):
            raise _NothingError
        start = int(first or 0) + (len(value) if first and first[0] == "-" else 0)
        end = start + 1 if not is_slice else len(value) if last is None else int(last)
        if is_slice and end < 0:
            end += len(value)
        by = int(stride or 1)
        if not 0 <= start <= end <= len(value) or by <= 0 or (start == end and value):
            raise _NothingError
        yield from value[start:end:by]

    return step


def _filter(text: str) -> _Step:
    match = _TERM.fullmatch(text)
    if match is None:
        wanted = _operand(text)
        return lambda value: (item for item in _listed(value) if wanted(item))
    left, right = _operand(match[1]), _operand(match[3])
    compared = _COMPARED.get(match[2])
    if compared is None:
        raise ValueError(f"cannot read the filter {text!r} of a JSONPath")

    def step(value: Any) -> Iterator[Any]:
        for item in _listed(value):
            one, other = left(item), right(item)
            if not one or not other:
                continue
            if type(one[0]) is not type(other[0]) or isinstance(one[0], dict | list):
                raise _NothingError
            if compared(one[0], other[0]):
                yield item

    return step


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _NothingError
    return value


def _operand(written: str) -> Callable[[Any], list[Any]]:
    text = written.strip()
    if text.startswith("@"):
        steps = _steps(text[1:].partition(" ")[0])
        return lambda item: _follow(steps, item)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return lambda _: [text[1:-1]]
    if text in ("true", "false"):
        return lambda _: [text == "true"]
    if _NUMBER.fullmatch(text):
        return lambda _: [float(text) if "." in text else int(text)]
    if not text.isidentifier():
        raise ValueError(f"cannot read {text!r} in the filter of a JSONPath")
    return lambda _: []

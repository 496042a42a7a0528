"""The JSONPath of printer columns: members, indexes, wildcards and the filter ``[?(@.a=='b')]``."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

JsonPath = Callable[[Any], list[Any]]
_Step = Callable[[Any], list[Any]]

_PIECE: Final = re.compile(
    r"""
    \.(?P<name>(?:\\.|[^.\[\\])+)                            # .member, dots escaped by a backslash
  | \[\?\(\s*@(?P<path>[^=!<>)]*?)\s*(?P<op>==|!=)\s*(?P<value>'[^']*'|"[^"]*"|[^)\s]+)\s*\)\]
  | \['(?P<quoted>[^']*)'\]
  | \[(?P<index>-?\d+)\]
  | \[(?P<all>\*)\]
    """,
    re.VERBOSE,
)


def _member(name: str) -> _Step:
    def step(value: Any) -> list[Any]:
        if name == "*":
            return list(value.values()) if isinstance(value, dict) else []
        return [value[name]] if isinstance(value, dict) and name in value else []

    return step


def _index(position: int) -> _Step:
    def step(value: Any) -> list[Any]:
        if isinstance(value, list) and -len(value) <= position < len(value):
            return [value[position]]
        return []

    return step


def _every(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return list(value.values()) if isinstance(value, dict) else []


def _literal(text: str) -> Any:
    if text[:1] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def _filter(path: str, operator: str, wanted: Any) -> _Step:
    find = parse_path(path)

    def step(value: Any) -> list[Any]:
        if not isinstance(value, list):
            return []
        if operator == "==":
            return [item for item in value if wanted in find(item)]
        return [item for item in value if find(item) and wanted not in find(item)]

    return step


@cache
def parse_path(text: str) -> JsonPath:
    """Return the function that finds all values at a path.

    Raises:
        ValueError: the path uses something else than members, indexes, wildcards and filters.

    """
    path = text.strip()
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1]
    path = path.removeprefix("$")
    if path and path[0] not in ".[":
        path = "." + path
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        match = _PIECE.match(path, at)
        if match is None:
            raise ValueError(f"cannot read JSONPath {text!r}")
        found = match.groupdict()
        if found["name"] is not None:
            steps.append(_member(found["name"].replace("\\", "")))
        elif found["quoted"] is not None:
            steps.append(_member(found["quoted"]))
        elif found["index"] is not None:
            steps.append(_index(int(found["index"])))
        elif found["all"] is not None:
            steps.append(_every)
        else:
            steps.append(_filter(found["path"], found["op"], _literal(found["value"])))
        at = match.end()

    def find(value: Any) -> list[Any]:
        values = [value]
        for step in steps:
            values = [after for before in values for after in step(before)]
        return values

    return find

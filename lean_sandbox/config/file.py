"""The config file: one ``flag: value`` a line, or a folder with one file for each flag.

The file is YAML, of which this much is read: comments, ``---`` at the start, plain and quoted
values (in double quotes only a backslash and a quote may be escaped), and lists of them as
``[a, b]`` or as lines that begin with ``-``. What this reads it reads as any YAML parser does,
without the memory of one. A folder is read as a mounted ConfigMap: names that begin with a dot are
not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from lean_sandbox.kube.errors import ConfigError

_HELP = "write one `flag: value` a line; lists as [a, b]"
_ENTRY = re.compile(r"(?P<key>[A-Za-z0-9][\w.-]{0,200})[ ]*:(?:[ ]+(?P<value>.*))?", re.ASCII)
_ITEM = re.compile(r"(?P<indent>[ ]*)-(?:[ ]+(?P<value>.*))?")
_COMMENT = re.compile(r"(?:^|(?<=[ ]))#.*$")
# The start of a plain value; what else stands there has a meaning in YAML.
_PLAIN = re.compile(r"(?:[^-?:,\[\]{}#&*!|>'\"%@`\s]|[-?:](?=[^\s,\[\]{}])).*")
_SINGLE = re.compile(r"'(?P<text>(?:[^']|'')*)'")
_DOUBLE = re.compile(r'"(?P<text>(?:[^"\\]|\\["\\])*)"')
_NOTHING = frozenset(("", "~", "null", "Null", "NULL"))


class Entry(msgspec.Struct, frozen=True):
    """One flag of a file: its name, its value as the command line would have it, and its place."""

    name: str
    text: str
    place: str


def read(path: Path) -> list[Entry]:
    """Return the entries of a config file or folder. Raises ConfigError naming file and line."""
    if path.is_dir():
        return list(_folder(path))
    return _Document(path).entries()


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"it cannot be read: {error}", source=str(path), way_out="point --config at another"
        ) from error


def _folder(path: Path) -> Iterator[Entry]:
    for file in sorted(path.iterdir()):
        if not file.name.startswith("."):
            text = _text_of(file).strip("\r\n")
            yield Entry(file.name, ",".join(text.splitlines()), str(file))


class _Document:
    """One file while it is read, line by line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, Entry] = {}
        # A key whose value has not come yet: the lines that begin with - belong to it.
        self._open: tuple[str, int, list[str]] | None = None
        self._indent = ""
        self._has_begun = False

    def entries(self) -> list[Entry]:
        lines = _text_of(self._path).replace("\r\n", "\n").split("\n")
        for number, line in enumerate(lines, start=1):
            if not line.isprintable():
                raise self._error(number, "it has a tab or another character that cannot be seen")
            self._line(number, line)
        self._close()
        return list(self._entries.values())

    def _line(self, number: int, line: str) -> None:
        if not _COMMENT.sub("", line).strip(" "):
            return
        is_first, self._has_begun = not self._has_begun, True
        if is_first and line.rstrip(" ") == "---":
            return
        item = _ITEM.fullmatch(line)
        if item is not None and self._open is not None:
            items = self._open[2]
            if items and item["indent"] != self._indent:
                raise self._error(number, "it is not indented as the line before")
            self._indent = item["indent"]
            items.append(self._scalar(number, item["value"] or ""))
            return
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise self._error(number, "it is no `flag: value`")
        self._close()
        key, value = entry["key"], (entry["value"] or "").strip(" ")
        if key in self._entries:
            raise self._error(number, f"{key} stands there twice", field=key)
        if not _COMMENT.sub("", value):
            self._open = (key, number, [])
        elif value.startswith("["):
            self._put(key, number, ",".join(self._flow(number, value)))
        else:
            self._put(key, number, self._scalar(number, value))

    def _close(self) -> None:
        if self._open is None:
            return
        key, number, items = self._open
        if not items:
            raise self._error(number, 'it has no value; write "" for an empty one', field=key)
        self._open = None
        self._put(key, number, ",".join(items))

    def _put(self, key: str, number: int, text: str) -> None:
        self._entries[key] = Entry(key, text, f"{self._path} line {number}")

    def _flow(self, number: int, value: str) -> list[str]:
        inner = _COMMENT.sub("", value).rstrip(" ").removeprefix("[")
        if not inner.endswith("]"):
            raise self._error(number, "the list has no end on this line")
        items = [item.strip(" ") for item in inner.removesuffix("]").split(",")]
        if items == [""]:
            return []
        if any(re.search(r"[\[\]{}'\"]", item) or item[:1] in "-?:" for item in items):
            raise self._error(number, "in brackets only plain values are read")
        return [self._scalar(number, item) for item in items]

    def _scalar(self, number: int, value: str) -> str:
        quote = value[:1]
        if quote in ("'", '"'):
            found = (_SINGLE if quote == "'" else _DOUBLE).match(value)
            if found is None or _COMMENT.sub("", value[found.end() :]).strip(" "):
                raise self._error(number, "the quotes are not closed, or have an escape")
            text = found["text"]
            return text.replace("''", "'") if quote == "'" else re.sub(r"\\(.)", r"\1", text)
        text = _COMMENT.sub("", value).strip(" ")
        if text in _NOTHING:
            raise self._error(number, 'it has no value; write "" for an empty one')
        if not _PLAIN.fullmatch(text) or re.search(r":(?: |$)", text):
            raise self._error(number, f"{text!r} needs quotes")
        return text

    def _error(self, number: int, problem: str, field: str = "") -> ConfigError:
        source = f"{self._path} line {number}"
        return ConfigError(problem, source=source, field=field, way_out=_HELP)

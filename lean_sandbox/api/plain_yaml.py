"""The YAML that programs write into kubeconfigs, read without a YAML library.

kubectl and the tools of the clouds write mappings and lists in block style with short texts, or
JSON. That much is read here, exactly as PyYAML reads it; for everything else the answer is that it
was not understood, and a caller asks a real parser. Not understood are comments behind values,
escapes, texts over several lines, anchors, tags, numbers, dates and whatever else might be more
than it seems.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

__all__ = ["NotPlainError", "parse"]


class NotPlainError(ValueError):
    """The text may be YAML, but not of the kind that is read here."""


_PRINTABLE: Final = re.compile(r"[\n\x20-\x7e]*")
_KEY: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_./-]{0,99}):(?: +(.*))?")
# Words parted by single spaces: no colon ends one and no # begins one.
_WORDS: Final = re.compile(
    r"(?:--?[A-Za-z]|[A-Za-z0-9/._])(?:[A-Za-z0-9/._+=@%,()-]|:(?=[^ ])| (?=[A-Za-z0-9/(]))*"
)
_QUOTED: Final = re.compile(r"\"[^\"\\]*\"|'[^']*'")
# What PyYAML, of YAML 1.1, makes no texts of.
_CONSTANTS: Final = {"true": True, "false": False, "null": None, "{}": dict, "[]": list}
_AMBIGUOUS: Final = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
# What begins like a number or a date and is none: no notation has these letters behind a digit, and
# behind a dot there may be ``inf`` and ``nan``.
_NO_NUMBER: Final = re.compile(r"[0-9].*[g-su-wyG-SU-WY/].*|\..*/.*")


def parse(text: str) -> Any:
    """Return what PyYAML's safe loader would; raises NotPlainError where that is not certain."""
    if not _PRINTABLE.fullmatch(text):
        raise NotPlainError
    if text.startswith("{"):
        return _json(text)
    reader = _Blocks(text)
    found = reader.block(reader.indent)
    if reader.indent >= 0:
        raise NotPlainError
    return found


def _json(text: str) -> Any:
    if "\\" in text:
        raise NotPlainError
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise NotPlainError from None
    _refuse_floats(found)
    return found


def _refuse_floats(value: Any) -> None:
    """Refuse numbers that YAML 1.1 may take for texts."""
    if isinstance(value, float):
        raise NotPlainError
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _refuse_floats(item)


class _Blocks:
    """The lines of a text, as they are used up."""

    def __init__(self, text: str) -> None:
        lines = [line.rstrip(" ") for line in text.split("\n")]
        lines = [line for line in lines if line and not line.lstrip(" ").startswith("#")]
        self._lines = [(len(line) - len(line.lstrip(" ")), line.lstrip(" ")) for line in lines]
        self._at = 0

    @property
    def indent(self) -> int:
        """How far the next line is indented; -1 at the end."""
        return self._lines[self._at][0] if self._at < len(self._lines) else -1

    @property
    def _is_item(self) -> bool:
        return self._lines[self._at][1].startswith("- ")

    def block(self, indent: int) -> Any:
        """Read the mapping or the list that begins with the next line."""
        if indent < 0:
            raise NotPlainError
        return self._list(indent) if self._is_item else self._mapping(indent)

    def _mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.indent == indent and not self._is_item:
            match = _KEY.fullmatch(self._lines[self._at][1])
            if match is None or match[1].lower() in _AMBIGUOUS:
                raise NotPlainError
            self._at += 1
            found[match[1]] = self._value(match[2], indent)
        self._require_end(indent)
        return found

    def _value(self, text: str | None, indent: int) -> Any:
        """Read what belongs to a key: the rest of its line, or the lines below."""
        if text is not None:
            return self._scalar(text, indent)
        if self.indent > indent:
            return self.block(self.indent)
        if self.indent == indent and self._is_item:
            return self._list(indent, is_below_key=True)
        return None

    def _list(self, indent: int, *, is_below_key: bool = False) -> list[Any]:
        found: list[Any] = []
        while self.indent == indent and self._is_item:
            text = self._lines[self._at][1][2:]
            if _KEY.fullmatch(text):
                # The mapping begins behind the dash; its other keys stand below.
                self._lines[self._at] = (indent + 2, text)
                found.append(self._mapping(indent + 2))
            else:
                self._at += 1
                found.append(self._scalar(text, indent))
        if not is_below_key:
            self._require_end(indent)
        return found

    def _require_end(self, indent: int) -> None:
        if self.indent >= indent:
            raise NotPlainError

    def _scalar(self, text: str, indent: int) -> Any:
        if self.indent > indent:
            raise NotPlainError
        if text in _CONSTANTS:
            constant = _CONSTANTS[text]
            return constant() if isinstance(constant, type) else constant
        if _QUOTED.fullmatch(text):
            return text[1:-1]
        if not _WORDS.fullmatch(text) or text.lower() in _AMBIGUOUS:
            raise NotPlainError
        if text[0] in "0123456789." and not _NO_NUMBER.fullmatch(text):
            raise NotPlainError
        return text

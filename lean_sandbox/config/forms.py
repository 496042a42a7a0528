"""The forms of values, read and written back as on the reference's command line, which is Go's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from filters import LabelSelector, exclude_namespaces, parse_labels
from lean_sandbox.model.shard import Shard, parse_shard
from lean_sandbox.model.times import format_duration, parse_duration
from lean_sandbox.watch.kind import Representation

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_BLANK = re.compile(r"\s")
_INT64_LIMIT = 2**63


class Form(msgspec.Struct, frozen=True):
    """How values of one form are read and written.

    ``parse`` raises ValueError for an invalid text; ``write`` returns a text that ``parse`` reads
    as the same value. A default may be ``None``, which is written in words. ``metavar`` stands for
    the value in help; ``words`` are all valid values.
    """

    metavar: str
    parse: Callable[[str], Any] = str
    write: Callable[[Any], str] = str
    words: tuple[str, ...] = ()


def choice(
    *words: str, metavar: str, is_case_ignored: bool = False, read: Callable[[str], str] = str
) -> Form:
    """Return the form of one out of several lower-case words."""

    def parse(text: str) -> str:
        word = text.lower() if is_case_ignored else text
        if word not in words:
            raise ValueError(f"it is not one of {', '.join(words)}")
        return read(word)

    return Form(metavar, parse, words=words)


def address(empty: str) -> Form:
    """Return the form of the address of a listener; an empty text means ``empty``."""
    return Form("ADDRESS", lambda text: text or empty)


def _boolean(text: str) -> bool:
    if text not in _TRUE and text not in _FALSE:
        raise ValueError("it is neither true nor false")
    return text in _TRUE


def _integer(text: str) -> int:
    try:
        # A base of 0 reads 0x10 and 1_000. It refuses 017, which Go takes for octal, a person not.
        value = int(_without_blanks(text), 0)
    except ValueError:
        raise ValueError("it is not a whole number such as 17, without a 0 in front") from None
    if not -_INT64_LIMIT <= value < _INT64_LIMIT:
        raise ValueError("it does not fit into 64 bits")
    return value


def _number(text: str) -> float:
    try:
        return float(_without_blanks(text.replace("_", " ")))
    except ValueError:
        raise ValueError("it is not a number") from None


def _without_blanks(text: str) -> str:
    # int() and float() would overlook them.
    if _BLANK.search(text):
        raise ValueError(text)
    return text


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        raise ValueError("it is not a duration such as 300ms, 1m30s or 0") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _domains(text: str) -> tuple[str, ...]:
    """Read names as the reference's file of domains has them: by comma or line, in any case."""
    return _names(re.sub(r"[\r\n]", ",", text.lower()))


def _namespaces(text: str) -> tuple[str, ...]:
    names = _names(text)
    exclude_namespaces(*names)
    return tuple(dict.fromkeys(names))


def _label_selector(text: str) -> LabelSelector:
    try:
        return parse_labels(text)
    except ValueError as error:
        raise ValueError(f"it is not a label selector: {error}") from None


def _shard(text: str) -> Shard | None:
    return parse_shard(text) if text else None


TEXT = Form("TEXT")
BOOLEAN = Form("BOOL", _boolean, {True: "true", False: "false", None: "automatic"}.__getitem__)
INTEGER = Form("N", _integer)
NUMBER = Form("RATE", _number, lambda value: repr(value).removesuffix(".0"))
DURATION = Form("DURATION", _duration, format_duration)
NAMES = Form("A,B", _names, ",".join)
DOMAINS = Form("A,B", _domains, ",".join)
NAMESPACES = Form("A,B", _namespaces, ",".join)
LABEL_SELECTOR = Form("SELECTOR", _label_selector, str)
SHARD = Form("INDEX/COUNT", _shard, lambda shard: str(shard or ""))
REPRESENTATION = choice(*Representation, metavar="FORM", read=Representation)

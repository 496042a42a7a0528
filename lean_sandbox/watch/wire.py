"""The Structs into which list pages and watch lines are decoded.

They name only the fields that a decision may read. Of ``managedFields``, which are most of a
metadata watch, only writer and time are allocated. The metadata of all three forms of an object is
an :class:`ObjectMeta`:

* a Table (``as=Table``): metadata and printer columns,
* PartialObjectMetadata: metadata alone,
* the full object, as the kind's own Struct.

A Table watch may also send errors, which the server never transforms, and objects that it could not
transform; so :class:`WatchObject` accepts all of these.
"""

from __future__ import annotations

import re
from typing import Any, Final, Generic, TypeVar

import msgspec

from lean_sandbox.model.meta import ObjectMeta

T = TypeVar("T")

# Half of the depth that msgspec decodes; objects of Kubernetes have about thirty levels.
_DEEPEST = 500
#: Replaces values that msgspec cannot decode.
CUT: Final = b"\\u0000unreadable"
_SURROGATES = re.compile(rb"\\u[dD](?:[89abAB]..\\u[dD][c-fC-F]..|[89a-fA-F]..)")
_PAIR = 12
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{\]}]', re.DOTALL)


class PartialItem(msgspec.Struct, gc=False):
    """An object of which only the metadata is decoded."""

    metadata: ObjectMeta


class TableRow(msgspec.Struct, gc=False):
    """One row of a Table: the printed cells and the object's metadata."""

    object: PartialItem | None = None
    cells: list[str | int | float | bool | None] = []


class ColumnDefinition(msgspec.Struct, gc=False):
    """The definition of one column; only its name is read."""

    name: str = ""


class WatchObject(msgspec.Struct, rename="camel", gc=False):
    """The object of a watch event: a Table, one object's metadata, or a Status."""

    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    column_definitions: list[ColumnDefinition] | None = None
    rows: list[TableRow] | None = None
    code: int = 0
    reason: str = ""
    message: str = ""
    details: Any = None


class RawLine(msgspec.Struct, gc=False):
    """One line of a watch whose object is not decoded."""

    type: str
    object: msgspec.Raw


class FullLine(msgspec.Struct, Generic[T], gc=False):
    """One line of a watch of full objects."""

    type: str
    object: T


class WatchLine(msgspec.Struct, gc=False):
    """One line of a watch of Tables or metadata."""

    type: str
    object: WatchObject


def column_positions(definitions: list[ColumnDefinition]) -> dict[str, int]:
    """Return the position of each column by its name."""
    return {definition.name: position for position, definition in enumerate(definitions)}


def readable(text: bytes) -> bytes:
    """Return JSON with :data:`CUT` in place of values that msgspec cannot decode.

    These are values that are nested too deeply, and halves of surrogate pairs. One of them, even in
    a field that is skipped, makes msgspec refuse the whole text; without them the metadata can be
    read, and with it which object it is.
    """
    text = _SURROGATES.sub(lambda found: found[0] if len(found[0]) == _PAIR else CUT, text)
    kept: list[bytes] = []
    depth = at = 0
    for token in _TOKENS.finditer(text):
        mark = text[token.start()]
        if mark in b"[{":
            depth += 1
            if depth == _DEEPEST + 1:
                kept += (text[at : token.start()], b'"' + CUT + b'"')
        elif mark in b"]}":
            if depth == _DEEPEST + 1:
                at = token.end()
            depth -= 1
    kept.append(text[at:])
    return b"".join(kept)

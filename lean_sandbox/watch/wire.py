"""What a list or a watch sends, decoded into as little as possible.

One decoder pass over the bytes of a line gives exactly the fields a decision may read;
of ``managedFields``, which is most of what a metadata watch carries, only who wrote and when is
allocated. Three forms of the same kind share :class:`ObjectMeta`:

* a Table with metadata rows (``as=Table``): the row's metadata plus the printer columns,
* PartialObjectMetadata: the metadata alone,
* the full object, of which the kind's own Struct keeps what it names.

An error sent inside a stream is never transformed by the server, and an object whose transformation
failed is sent as it is; so a line of a Table watch may hold either, and :class:`WatchObject`
accepts both.
"""

from __future__ import annotations

import re
from typing import Any, Final, Generic, TypeVar

import msgspec

from lean_sandbox.model.meta import ObjectMeta

T = TypeVar("T")

# Half of what the decoder can follow; objects of Kubernetes nest about thirty levels.
_DEEPEST = 500
#: What stands in the place of what the decoder cannot follow.
CUT: Final = b"\\u0000unreadable"
_SURROGATES = re.compile(rb"\\u[dD](?:[89abAB]..\\u[dD][c-fC-F]..|[89a-fA-F]..)")
_PAIR = 12
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{\]}]', re.DOTALL)


class PartialItem(msgspec.Struct, gc=False):
    """An object of which only the metadata is kept."""

    metadata: ObjectMeta


class TableRow(msgspec.Struct, gc=False):
    """One row of a Table: the printed cells and the object's metadata."""

    object: PartialItem | None = None
    cells: list[str | int | float | bool | None] = []


class ColumnDefinition(msgspec.Struct, gc=False):
    """The head of one column; only its name is read."""

    name: str = ""


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    """The metadata of a list: its version and the token of the next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


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


class Page(msgspec.Struct, Generic[T]):
    """One page of a list."""

    metadata: ListMeta
    items: list[T] | None = None


class RawLine(msgspec.Struct, gc=False):
    """One line of a watch whose object stays the bytes the server sent."""

    type: str
    object: msgspec.Raw


class FullLine(msgspec.Struct, Generic[T], gc=False):
    """One line of a watch of full objects."""

    type: str
    object: T


class WatchLine(msgspec.Struct, gc=False):
    """One line of a watch."""

    type: str
    object: WatchObject


def column_positions(definitions: list[ColumnDefinition]) -> dict[str, int]:
    """Return the position of each column by its name."""
    return {definition.name: position for position, definition in enumerate(definitions)}


def readable(text: bytes) -> bytes:
    """Return JSON in which :data:`CUT` stands for what the decoder cannot follow.

    That are values that are nested too deeply and escaped halves of characters. The decoder gives
    up on the whole text where there is one, be it in a part that is skipped. What is left after
    this can be read, and tells which object it was.
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

"""Rows of cells that name objects of which nothing is remembered.

Mostly the answer to a create of our own is on its way, and the watch was faster: the row waits for
it. What stays unknown was made by somebody else and has to be looked at.
"""

from __future__ import annotations

from collections import OrderedDict

import anyio
import msgspec

from filters import EventType
from lean_sandbox.watch.store import Key

__all__ = ["CellsRow", "Strangers"]

_ENDED_REMEMBERED = 512


class CellsRow(msgspec.Struct, frozen=True, gc=False):
    """An event that carried nothing but cells; ``version`` is the number of its version."""

    event_type: EventType
    version: int
    resource_version: str
    columns: dict[str, str]


class Strangers:
    """The newest row of each unknown object, and the ends of some that were never known.

    ``arrived`` is set while any row waits.
    """

    def __init__(self) -> None:
        self._waiting: dict[Key, CellsRow] = {}
        self._ended: OrderedDict[Key, int] = OrderedDict()
        self.arrived = anyio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, key: Key, row: CellsRow) -> None:
        """Keep a row until its object is known."""
        if row.event_type is EventType.DELETED:
            self.drop(key)
            self._ended[key] = row.version
            self._ended.move_to_end(key)
            if len(self._ended) > _ENDED_REMEMBERED:
                self._ended.popitem(last=False)
            return
        self._ended.pop(key, None)
        self._waiting[key] = row
        self.arrived.set()

    def take(self, key: Key) -> CellsRow | None:
        """Return the row that waits for an object which has become known, and forget it."""
        row = self._waiting.get(key)
        if row is not None:
            self.drop(key)
        return row

    def drop(self, key: Key) -> None:
        """Forget the row of an object, if any waits."""
        self._waiting.pop(key, None)
        if not self._waiting:
            self.arrived = anyio.Event()

    def of(self, namespace: str) -> dict[Key, CellsRow]:
        """Return the rows that wait in a namespace."""
        return {key: row for key, row in self._waiting.items() if key.namespace == namespace}

    def has_seen_end(self, key: Key, version: int) -> bool:
        """Tell whether an unknown object of this name ended after ``version``."""
        return self._ended.get(key, 0) > version

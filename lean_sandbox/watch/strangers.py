"""Rows of cells that name objects of which nothing is remembered.

Mostly the answer to a create of our own is on its way, and the watch was faster: the row waits for
it. What stays unknown was made by somebody else and has to be looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import msgspec

from filters import EventType
from lean_sandbox.watch.store import Key
from lean_sandbox.watch.tombstones import Tombstones
from lean_sandbox.watch.wire import as_version


class CellsRow(msgspec.Struct, frozen=True, gc=False):
    """An event that carried nothing but cells."""

    event_type: EventType
    resource_version: str
    columns: dict[str, str]


class Strangers:
    """The newest row of each unknown object, and the ends of some that were never known.

    One that is expected is made known by the answer to a create that is under way. Any other is
    due: somebody has to look at it.
    """

    def __init__(self) -> None:
        self._waiting: dict[Key, CellsRow] = {}
        self._ended: Tombstones[Key] = Tombstones()
        #: What is just being made or written by ourselves, and by how many requests.
        self.expected: Counter[Key] = Counter()
        self._arrivals: dict[str, anyio.Event] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def expecting(self, key: Key) -> Iterator[None]:
        """Expect an object for the body of the ``with``; if it stays unknown, it is due then."""
        self.expected[key] += 1
        try:
            yield
        finally:
            self.expected[key] -= 1
            if not self.expected[key]:
                del self.expected[key]
            if key in self._waiting and key not in self.expected:
                self._arrived(key)

    def note(self, key: Key, row: CellsRow) -> None:
        """Keep a row until its object is known."""
        if row.event_type is EventType.DELETED:
            self.take(key)
            # Without a number nothing says that it came before: the name may be taken again.
            if version := as_version(row.resource_version):
                self._ended.add(key, version)
            return
        self._ended.discard(key)
        self._waiting[key] = row
        if key not in self.expected:
            self._arrived(key)

    def _arrived(self, key: Key) -> None:
        arrival = self._arrivals.get(key.namespace)
        if arrival is not None:
            arrival.set()

    def take(self, key: Key) -> CellsRow | None:
        """Return the row that waits for an object, if any, and forget it."""
        return self._waiting.pop(key, None)

    def of(self, namespace: str) -> list[Key]:
        """Return who waits in a namespace."""
        return [key for key in self._waiting if key.namespace == namespace]

    async def due(self, namespace: str) -> list[Key]:
        """Return who has to be looked at in a namespace, as soon as there is anybody."""
        while True:
            found = [key for key in self.of(namespace) if key not in self.expected]
            if found:
                return found
            arrival = self._arrivals[namespace] = anyio.Event()
            await arrival.wait()

    def has_seen_end(self, key: Key, version: int) -> bool:
        """Tell whether an unknown object of this name, of this version, has ended since."""
        return self._ended.covers(key, version)

"""Tombstones: objects that ended a short time ago, so that a late answer does not bring one back.

Only an answer that was under way when the end was seen can show the object alive. So a tombstone is
kept for longer than a request may take; how many there are is not bounded, because an end that is
forgotten too early leaves an object in the cache that nothing ever removes. An answer of a later
version than the end shows an object that had only stopped matching the watch's selector.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
KEPT_S = 60.0


class Tombstones(Generic[T]):
    """Tombstones by uid, or by name for rows that carry no uid.

    ``monotonic`` tells the time, ``kept_s`` is how long a tombstone stays.
    """

    __slots__ = ("_kept_s", "_monotonic", "_tombstones")

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, *, kept_s: float = KEPT_S
    ) -> None:
        self._monotonic = monotonic
        self._kept_s = kept_s
        # In the order of their age: version of the end, and when it was seen.
        self._tombstones: OrderedDict[T, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tombstones)

    def add(self, key: T, version: int) -> None:
        """Remember an end and its version, 0 for one after which nothing can follow."""
        now = self._monotonic()
        self._tombstones[key] = (version, now)
        self._tombstones.move_to_end(key)
        while now - next(iter(self._tombstones.values()))[1] > self._kept_s:
            self._tombstones.popitem(last=False)

    def discard(self, key: T) -> None:
        """Forget an end: the object has been shown alive."""
        self._tombstones.pop(key, None)

    def covers(self, key: T, version: int) -> bool:
        """Tell whether a state of this version is one from before the end."""
        tombstone = self._tombstones.get(key)
        return tombstone is not None and (tombstone[0] == 0 or version <= tombstone[0])

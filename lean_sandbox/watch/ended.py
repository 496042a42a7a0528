"""The objects that ended last, so that a late answer does not bring one back.

Only answers under way when the end was seen are at risk, so few suffice. An answer of a later
version than the end shows an object that had only stopped matching the watch's selector.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Ended"]

T = TypeVar("T", bound=Hashable)
_REMEMBERED = 512


class Ended(Generic[T]):
    """Ends by what tells the objects apart: their uid, or the name where no more is known."""

    __slots__ = ("_versions",)

    def __init__(self) -> None:
        self._versions: OrderedDict[T, int] = OrderedDict()

    def add(self, key: T, version: int) -> None:
        """Remember an end and its version, 0 for one after which nothing can follow."""
        self._versions[key] = version
        self._versions.move_to_end(key)
        if len(self._versions) > _REMEMBERED:
            self._versions.popitem(last=False)

    def discard(self, key: T) -> None:
        """Forget an end: the object has been shown alive."""
        self._versions.pop(key, None)

    def covers(self, key: T, version: int) -> bool:
        """Tell whether a state of this version is one from before the end."""
        ended_at = self._versions.get(key)
        return ended_at is not None and (ended_at == 0 or version <= ended_at)

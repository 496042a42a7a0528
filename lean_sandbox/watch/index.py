"""Finds the cached objects that have something in common, without a walk over the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from lean_sandbox.watch.kind import Entry, Key

E = TypeVar("E", bound=Entry)


class Index(Generic[E]):
    """The keys of entries by namespace and by one value of each, such as the uid of its owner.

    A value never finds objects of other namespaces: anybody may write one.
    """

    def __init__(self, value_of: Callable[[E], str | None]) -> None:
        """``value_of`` returns the value of an entry, ``None`` for one that is not to be found."""
        self._value_of = value_of
        # By namespace, then by value: a key of both would be one more tuple for each object. Where
        # a value has one object, as most owners have, its key is stored bare.
        self._keys: dict[str, dict[str, Key | dict[Key, None]]] = {}

    def find(self, namespace: str, value: str) -> list[Key]:
        """Return the keys of the entries that have a value, in the order in which they got it."""
        found = self._keys.get(namespace, {}).get(value, ())
        return [found] if isinstance(found, Key) else list(found)

    def follow(self, old: E | None, new: E | None) -> None:
        """Note that an entry was added, replaced or removed."""
        before = None if old is None else self._value_of(old)
        after = None if new is None else self._value_of(new)
        if before == after:
            return
        if old is not None and before is not None:
            self._remove(old.key, before)
        if new is not None and after is not None:
            self._add(new.key, after)

    def _add(self, key: Key, value: str) -> None:
        here = self._keys.setdefault(key.namespace, {})
        held = here.get(value)
        if held is None:
            here[value] = key
        elif isinstance(held, Key):
            here[value] = {held: None, key: None}
        else:
            held[key] = None

    def _remove(self, key: Key, value: str) -> None:
        here = self._keys[key.namespace]
        held = here[value]
        if isinstance(held, Key):
            del here[value]
            if not here:
                del self._keys[key.namespace]
        else:
            del held[key]
            if len(held) == 1:
                here[value] = next(iter(held))

"""The entries of one kind, which only their store changes, and who listens to that."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

from msgspec.structs import force_setattr, replace

from lean_sandbox.watch.index import Index
from lean_sandbox.watch.kind import Entry, Key

E = TypeVar("E", bound=Entry)


class Store(Generic[E]):
    """The tiny cache: entries by namespace and name, with an index by the uid of the owner.

    An entry holds what decisions need of an object, never the object. A uid never finds objects of
    other namespaces: anybody may write an owner reference.
    """

    def __init__(self, owner_of: Callable[[E], str | None]) -> None:
        self._entries: dict[Key, E] = {}
        self._owners = Index(owner_of)
        #: Called in this order with the entry before and after each change, whatever it comes from.
        self.listeners: list[Callable[[E | None, E | None], None]] = [self._owners.follow]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[E]:
        return iter(self._entries.values())

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def get(self, key: Key) -> E | None:
        """Return the entry, if there is one."""
        return self._entries.get(key)

    def latest(self, entry: E) -> E | None:
        """Return the current entry of exactly this entry's object; ``None`` when it is gone."""
        held = self._entries.get(entry.key)
        return held if held is not None and held.uid == entry.uid else None

    def keys(self, namespace: str | None = None) -> list[Key]:
        """Return the keys, of one namespace when it is given."""
        if namespace is None:
            return list(self._entries)
        return [key for key in self._entries if key.namespace == namespace]

    def owned_by(self, namespace: str, uid: str) -> list[E]:
        """Return the entries of a namespace that are controlled by the owner ``uid``."""
        return [self._entries[key] for key in self._owners.find(namespace, uid)]

    def index(self, value_of: Callable[[E], str | None]) -> Index[E]:
        """Return an index of the entries by another value, which follows from now on.

        ``value_of`` returns the value of an entry, ``None`` for one that is not to be found.
        """
        made = Index(value_of)
        self.listeners.append(made.follow)
        return made

    def put(self, entry: E) -> None:
        """Insert or replace an entry."""
        old = self._entries.get(entry.key)
        self._entries[entry.key] = entry
        for follow in self.listeners:
            follow(old, entry)

    def mark(self, entry: E, **changes: Any) -> E:
        """Change fields of the latest entry of an object, and return that.

        For what no event or response shows. An object that is gone stays so.
        """
        latest = self.latest(entry)
        new = replace(latest or entry, **changes)
        if latest is not None:
            self.put(new)
        return new

    def advance(self, entry: E, version: int, seen: tuple[Hashable, ...]) -> None:
        """Note a version at which an object is as its entry says, without a new entry.

        Most events end here. Version 0 without fingerprints forgets both: the next event is then
        news.
        """
        force_setattr(entry, "version", version)
        force_setattr(entry, "seen", seen)

    def remove(self, key: Key) -> E | None:
        """Remove and return an entry; or return ``None``."""
        old = self._entries.pop(key, None)
        if old is not None:
            for follow in self.listeners:
                follow(old, None)
        return old

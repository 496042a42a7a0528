"""The tiny cache: what is remembered of each watched object, by namespace and name.

An entry is a small Struct that a kind builds from what it saw. A second index leads from an owner's
namespace and uid to the entries it controls there, which is how the Pods of a Sandbox are found
without scanning. An owner reference is text that anybody may write, and a uid is no secret: objects
of other namespaces are never found by it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar


class Key(NamedTuple):
    """Identifies an object of one kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def key_of(namespace: str, name: str) -> Key:
    """Return the key with the namespace interned: thousands of objects share a few namespaces."""
    return Key(sys.intern(namespace), name)


class Entry(Protocol):
    """What every cached value has; ``seen`` are the fingerprints of its last event."""

    key: Key
    uid: str
    version: int
    seen: tuple[Hashable, ...]


E = TypeVar("E", bound=Entry)


class Store(Generic[E]):
    """Entries by key, with an index by namespace and owner uid.

    ``owner_of`` names the uid of the controlling owner of an entry, ``None`` for no index entry;
    the owner is in the namespace of the entry.
    Nothing here waits; all methods are O(1) in the number of entries.
    """

    __slots__ = ("_by_owner", "_entries", "_owner_of", "on_change")

    def __init__(self, owner_of: Callable[[E], str | None] = lambda _: None) -> None:
        self._entries: dict[Key, E] = {}
        # By namespace, then by uid: a key of both would be one more tuple for each object. Almost
        # every owner controls one object of a kind, so a single key is stored bare.
        self._by_owner: dict[str, dict[str, Key | set[Key]]] = {}
        self._owner_of = owner_of
        #: Called with the entry before and after each change, however the change was learned: by a
        #: watch or by an answer to a request of our own. For indexes that must follow the store.
        self.on_change: Callable[[E | None, E | None], None] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[E]:
        return iter(self._entries.values())

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def get(self, key: Key) -> E | None:
        """Return the entry, or ``None``."""
        return self._entries.get(key)

    def keys(self, namespace: str | None = None) -> list[Key]:
        """Return the keys, of one namespace when it is given."""
        if namespace is None:
            return list(self._entries)
        return [key for key in self._entries if key.namespace == namespace]

    def owned_by(self, namespace: str, uid: str) -> list[E]:
        """Return the entries of a namespace that are controlled by the owner ``uid``, by name."""
        found = self._by_owner.get(namespace, {}).get(uid)
        if found is None:
            return []
        if isinstance(found, Key):
            return [self._entries[found]]
        return [self._entries[key] for key in sorted(found)]

    def put(self, entry: E) -> None:
        """Insert or replace an entry."""
        old = self._entries.get(entry.key)
        if old is not None:
            self._unindex(old)
        self._entries[entry.key] = entry
        self._index(entry)
        if self.on_change is not None:
            self.on_change(old, entry)

    def remove(self, key: Key) -> E | None:
        """Remove and return the entry, or return ``None``."""
        old = self._entries.pop(key, None)
        if old is not None:
            self._unindex(old)
            if self.on_change is not None:
                self.on_change(old, None)
        return old

    def _index(self, entry: E) -> None:
        owner = self._owner_of(entry)
        if owner is None:
            return
        here = self._by_owner.setdefault(entry.key.namespace, {})
        held = here.get(owner)
        if held is None:
            here[owner] = entry.key
        elif isinstance(held, set):
            held.add(entry.key)
        elif held != entry.key:
            here[owner] = {held, entry.key}

    def _unindex(self, entry: E) -> None:
        owner = self._owner_of(entry)
        if owner is None:
            return
        here = self._by_owner.get(entry.key.namespace, {})
        held = here.get(owner)
        if isinstance(held, set):
            held.discard(entry.key)
            if len(held) == 1:
                here[owner] = held.pop()
        elif held == entry.key:
            del here[owner]
            if not here:
                del self._by_owner[entry.key.namespace]

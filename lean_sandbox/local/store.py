"""Objects in memory: one version counter, one sorted collection and one event log for each kind.

An object is kept as its encoded bytes; whoever wants to change it decodes a copy of its own. That
costs microseconds, needs a fraction of the memory of dicts, and no reader can disturb another.
A file can keep them over a restart: it is written whole and put in place in one step.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import Any, Final

import anyio
import msgspec

from lean_sandbox.errors import ConfigError
from lean_sandbox.local.errors import expired
from lean_sandbox.local.files import replace_private
from lean_sandbox.local.kinds import Registry, read_definition
from lean_sandbox.local.request import UserInfo

Json = dict[str, Any]
HISTORY: Final = 5000
"""Events kept for each kind; an older version is answered with 410."""
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_PARTIAL_HEAD: Final = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Entry:
    """One version of one object; never changed once made."""

    __slots__ = (
        "_metadata",
        "deleting",
        "fields",
        "key",
        "labels",
        "name",
        "namespace",
        "owners",
        "tail",
        "uid",
        "version",
    )

    def __init__(self, key: str, obj: Json, version: int, fields: Mapping[str, str]) -> None:
        metadata = obj["metadata"]
        if version:
            metadata["resourceVersion"] = str(version)
        else:  # a dry run: the object is shown but was never stored
            metadata.pop("resourceVersion", None)
        self.key = key
        self.version = version
        self.namespace: str = metadata.get("namespace", "")
        self.name: str = metadata["name"]
        self.uid: str = metadata["uid"]
        self.labels: dict[str, str] = metadata.get("labels") or {}
        self.deleting = bool(metadata.get("deletionTimestamp"))
        references = metadata.get("ownerReferences") or ()
        self.owners: tuple[str, ...] = tuple(each["uid"] for each in references)
        """The uids of its owners."""
        self.fields = fields
        body = {"metadata": metadata, **obj}
        body.pop("kind", None)
        body.pop("apiVersion", None)
        self.tail: bytes = _encode(body)[1:]
        """The encoded object without its opening brace, kind and apiVersion."""
        self._metadata: bytes | None = None

    def load(self) -> Json:
        """Return the object, without kind and apiVersion, as a fresh dict of the caller's own."""
        loaded: Json = _decode(b"{" + self.tail)
        return loaded

    def members(self) -> dict[str, msgspec.Raw]:
        """Return the members of the object, each still encoded."""
        return _decode_members(b"{" + self.tail)

    def metadata_raw(self) -> bytes:
        """Return the encoded `metadata`, cut out of the object without building it."""
        if self._metadata is None:
            self._metadata = bytes(self.members()["metadata"])
        return self._metadata

    def partial(self) -> bytes:
        """Return the object as an encoded PartialObjectMetadata."""
        return _PARTIAL_HEAD + self.metadata_raw() + b"}"


class Event:
    """One change; carries the encoded forms that watchers share."""

    __slots__ = ("_left", "encoded", "entry", "prev", "type", "version")

    def __init__(self, type_: str, entry: Entry, prev: Entry | None, version: int) -> None:
        self.type = type_
        self.entry = entry
        """The object after the change; for a deletion its last state with the new version."""
        self.prev = prev
        self.version = version
        self.encoded: dict[Any, bytes] = {}
        self._left: Entry | None = None

    def left(self) -> Entry:
        """Return the previous object with the new version, for watchers it no longer concerns."""
        if self._left is None:
            if self.prev is None:
                raise ValueError("an added object has no previous state")
            self._left = Entry(self.prev.key, self.prev.load(), self.version, self.prev.fields)
        return self._left


def at(obj: Mapping[str, Any], path: str, default: Any = "") -> Any:
    """Return the member at a path, ``default`` where it is absent or empty text."""
    value: Any = obj
    for part in path.removeprefix(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return default if value is None or value == "" else value


def field_cells(obj: Mapping[str, Any], paths: tuple[str, ...]) -> dict[str, str]:
    """Return the values field selectors can ask for, as text, without those that are absent."""
    cells = {}
    for path in paths:
        value = at(obj, path, None)
        if isinstance(value, str | int):
            cells[path] = str(value).lower() if isinstance(value, bool) else str(value)
    return cells


def key_of(namespace: str, name: str) -> str:
    """Return the key of an object in its collection."""
    return f"{namespace}/{name}" if namespace else name


class Collection:
    """The objects of one kind in key order, and what happened to them."""

    def __init__(self, storage: str) -> None:
        self.storage = storage
        self.entries: dict[str, Entry] = {}
        self._order: list[str] = []
        self._events: deque[Event] = deque()
        self.floor = 0
        """Version of the newest forgotten event: history is complete after it."""
        self.changed: int = 0
        """Version of the newest event."""
        self.watchers: dict[Callable[[Event], None], Callable[[], None]] = {}
        """Who is told of each change, and what ends it when the kind is served no more."""

    def _range(self, namespace: str) -> tuple[int, int]:
        if not namespace:
            return 0, len(self._order)
        return (
            bisect_left(self._order, namespace + "/"),
            bisect_left(self._order, namespace + "0"),
        )

    def scan(self, namespace: str = "") -> list[Entry]:
        """Return the present entries, of one namespace if given, in key order."""
        start, end = self._range(namespace)
        entries = self.entries
        return [entries[key] for key in self._order[start:end]]

    def is_empty(self, namespace: str = "") -> bool:
        """Say whether nothing is present, in one namespace if given."""
        start, end = self._range(namespace)
        return start == end

    def snapshot(self, version: int, namespace: str = "") -> list[Entry]:
        """Return the entries as they were at ``version``.

        Raises StatusError: 410 when history does not reach that far back.
        """
        if version >= self.changed:
            return self.scan(namespace)
        if version < self.floor:
            raise expired("The resourceVersion for the provided list is too old.")
        then = dict(self.entries)
        for event in takewhile(lambda event: event.version > version, reversed(self._events)):
            if event.prev is None:
                then.pop(event.entry.key, None)
            else:
                then[event.entry.key] = event.prev
        prefix = namespace + "/" if namespace else ""
        return [then[key] for key in sorted(then) if key.startswith(prefix)]

    def since(self, version: int) -> list[Event]:
        """Return the events after ``version``, oldest first.

        Raises StatusError: 410 when some of them are forgotten.
        """
        if version < self.floor:
            raise expired(f"too old resource version: {version} ({self.floor})")
        newest_first = takewhile(lambda event: event.version > version, reversed(self._events))
        return list(newest_first)[::-1]

    def record(self, event: Event) -> None:
        """Take one change into the present state, the log and every watcher."""
        key = event.entry.key
        if event.type == "DELETED":
            del self.entries[key]
            del self._order[bisect_left(self._order, key)]
        else:
            if key not in self.entries:
                insort(self._order, key)
            self.entries[key] = event.entry
        self._events.append(event)
        self.changed = event.version
        self.compact(HISTORY)
        for deliver in list(self.watchers):
            deliver(event)

    def compact(self, keep_last: int) -> None:
        """Forget all but the newest ``keep_last`` events."""
        while len(self._events) > keep_last:
            self.floor = self._events.popleft().version

    def close(self, version: int) -> None:
        """End every watcher, and forget what was before ``version``."""
        self.compact(0)
        self.floor = version
        self.end_watches()

    def end_watches(self) -> None:
        """End every watcher once it has seen everything."""
        for end in list(self.watchers.values()):
            end()

    def restore(self, entries: list[Entry], floor: int) -> None:
        """Start from saved objects; versions before ``floor`` count as forgotten."""
        self.entries = {entry.key: entry for entry in entries}
        self._order = sorted(self.entries)
        self.floor = self.changed = floor


class Store:
    """All collections under one version counter."""

    def __init__(self) -> None:
        self.version = 1
        self.floor = 0
        """Version before which nothing is remembered, for collections still to be made."""
        self._collections: dict[str, Collection] = {}
        self.uids: dict[str, tuple[Collection, str]] = {}
        """Where each living object is, by uid."""
        self.listeners: list[Callable[[Collection, Event], None]] = []
        """Called after every change, in order; they must not block."""
        self.writer: UserInfo | None = None
        """The user whose request is carried out; None for the server's own work and for tests."""
        self._untold: deque[tuple[Collection, Event]] = deque()
        self._is_telling = False

    def collection(self, storage: str) -> Collection:
        """Return the collection of a kind, made on first use."""
        found = self._collections.get(storage)
        if found is None:
            found = self._collections[storage] = Collection(storage)
            found.floor = self.floor
        return found

    def __iter__(self) -> Iterator[Collection]:
        return iter(list(self._collections.values()))

    def put(self, collection: Collection, key: str, obj: Json, fields: Mapping[str, str]) -> Entry:
        """Write an object (new or changed) under the next version."""
        prev = collection.entries.get(key)
        self.version += 1
        entry = Entry(key, obj, self.version, fields)
        self.uids[entry.uid] = (collection, key)
        self._publish(
            collection, Event("ADDED" if prev is None else "MODIFIED", entry, prev, self.version)
        )
        return entry

    def remove(self, collection: Collection, key: str, last: Json | None = None) -> Entry:
        """Delete an object; ``last`` is its final state when that differs from the stored one."""
        prev = collection.entries[key]
        self.version += 1
        entry = Entry(key, last or prev.load(), self.version, prev.fields)
        self.uids.pop(prev.uid, None)
        self._publish(collection, Event("DELETED", entry, prev, self.version))
        return entry

    def _publish(self, collection: Collection, event: Event) -> None:
        collection.record(event)
        self._untold.append((collection, event))
        # A change that a listener makes is told after the present one.
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._untold:
                change = self._untold.popleft()
                for listener in self.listeners:
                    listener(*change)
        finally:
            self._is_telling = False

    def compact(self, keep_last: int = 0) -> None:
        """Forget all but the newest events of every kind, so that older versions get 410.

        A version counts as forgotten even where nothing happened after it in a kind, as after a
        compaction of a real store.
        """
        if keep_last == 0:
            self.floor = self.version
        for collection in self._collections.values():
            collection.compact(keep_last)
            collection.floor = max(collection.floor, self.floor)


# ------------------------------------------------------------------ the file


class _State(msgspec.Struct):
    version: int
    key: bytes
    collections: dict[str, list[msgspec.Raw]]


_decode_state = msgspec.json.Decoder(_State).decode
_WAY_OUT: Final = "name another file with --state"
_DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"


class StateFile:
    """The file that keeps a store over a restart."""

    def __init__(self, path: Path, store: Store) -> None:
        self._path = path
        self._store = store
        # A save in a thread may still be on its way when the last one is made.
        self._writing = Lock()
        self._written = 0

    def save(self, key: bytes) -> None:
        """Write objects, version and signing key; a crash leaves the old file.

        Raises ConfigError.
        """
        self._write(self._store.version, key, self._entries())

    async def save_changes(self, key: bytes) -> None:
        """Do the same in a thread, if anything has changed since; the server goes on meanwhile."""
        version = self._store.version
        if version != self._written:
            await anyio.to_thread.run_sync(self._write, version, key, self._entries())

    def _entries(self) -> dict[str, list[Entry]]:
        return {collection.storage: collection.scan() for collection in self._store}

    def _write(self, version: int, key: bytes, entries: dict[str, list[Entry]]) -> None:
        with self._writing:
            if version < self._written:
                return
            collections = {
                storage: [msgspec.Raw(b"{" + entry.tail) for entry in present]
                for storage, present in entries.items()
            }
            try:
                replace_private(self._path, _encode(_State(version, key, collections)))
            except OSError as error:
                problem = f"the state cannot be saved: {error.strerror}"
                raise ConfigError(problem, source=str(self._path), way_out=_WAY_OUT) from error
            self._written = version

    def load(self, registry: Registry) -> bytes | None:
        """Read what was saved; return the signing key, None without a file.

        History does not survive: versions from before the restart are answered with 410.
        Raises ConfigError for another file.
        """
        try:
            state = _decode_state(self._path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            problem = f"the state cannot be read: {error.strerror}"
            raise ConfigError(problem, source=str(self._path), way_out=_WAY_OUT) from error
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"this is not a saved state: {error}", source=str(self._path), way_out=_WAY_OUT
            ) from error
        store = self._store
        store.version = store.floor = self._written = state.version
        _restore(store, registry, _DEFINITIONS, state.collections.pop(_DEFINITIONS, []))
        for entry in store.collection(_DEFINITIONS).scan():
            registry.define(entry.name, read_definition(bytes(entry.members()["spec"])))
        for storage, raws in state.collections.items():
            _restore(store, registry, storage, raws)
        return state.key


def _restore(store: Store, registry: Registry, storage: str, raws: list[msgspec.Raw]) -> None:
    kind = registry.of_storage(storage)
    if kind is None:
        return
    collection = store.collection(storage)
    entries = []
    for raw in raws:
        obj = msgspec.json.decode(raw)
        metadata = obj["metadata"]
        key = key_of(metadata.get("namespace", ""), metadata["name"])
        fields = field_cells(obj, kind.selectable)
        entry = Entry(key, obj, int(metadata["resourceVersion"]), fields)
        entries.append(entry)
        store.uids[entry.uid] = (collection, key)
    collection.restore(entries, store.version)

"""State that survives a restart: one file, written whole and put in place in one step."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Final

import anyio
import msgspec

from lean_sandbox.errors import ConfigError
from lean_sandbox.local.kinds.registry import Registry, read_definition
from lean_sandbox.local.kubeconfig import replace_private
from lean_sandbox.local.store.store import Entry, Store, field_cells


class _State(msgspec.Struct):
    version: int
    key: bytes
    collections: dict[str, list[msgspec.Raw]]


_decode = msgspec.json.Decoder(_State).decode
_encode = msgspec.json.Encoder().encode
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
        if not self._path.exists():
            return None
        try:
            state = _decode(self._path.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
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
        namespace = metadata.get("namespace", "")
        name = metadata["name"]
        key = f"{namespace}/{name}" if namespace else name
        fields = field_cells(obj, kind.selectable)
        entry = Entry(key, obj, int(metadata["resourceVersion"]), fields)
        entries.append(entry)
        store.uids[entry.uid] = (collection, key)
    collection.restore(entries, store.version)

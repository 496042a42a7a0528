"""State that survives a restart: one file, written whole and put in place in one step."""

from __future__ import annotations

from pathlib import Path

import msgspec

from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.local.kubeconfig import replace_private
from lean_sandbox.local.registry import Registry, read_definition
from lean_sandbox.local.store import Entry, Store, field_cells


class _State(msgspec.Struct):
    version: int
    key: bytes
    collections: dict[str, list[msgspec.Raw]]


_decode = msgspec.json.Decoder(_State).decode
_encode = msgspec.json.Encoder().encode
_WAY_OUT = "name another file with --state"
_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


def save_state(path: Path, store: Store, key: bytes) -> None:
    """Write objects, version and signing key; a crash leaves the old file. Raises ConfigError."""
    collections = {
        collection.storage: [msgspec.Raw(b"{" + entry.tail) for entry in collection.scan()]
        for collection in store
    }
    data = _encode(_State(store.version, key, collections))
    try:
        replace_private(path, data)
    except OSError as error:
        problem = f"the state cannot be saved: {error.strerror}"
        raise ConfigError(problem, source=str(path), way_out=_WAY_OUT) from error


def load_state(path: Path, store: Store, registry: Registry) -> bytes | None:
    """Read what :func:`save_state` wrote; return the signing key, None without a file.

    History does not survive: versions from before the restart are answered with 410.
    Raises ConfigError for another file.
    """
    if not path.exists():
        return None
    try:
        state = _decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"this is not a saved state: {error}", source=str(path), way_out=_WAY_OUT
        ) from error
    store.version = store.floor = state.version
    for raw in state.collections.pop(_DEFINITIONS, []):
        _restore(store, registry, _DEFINITIONS, [raw])
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
    entries = list(collection.entries.values())
    for raw in raws:
        obj = msgspec.json.decode(raw)
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        key = f"{namespace}/{name}" if namespace else name
        fields = field_cells(obj, kind.selectable)
        entry = Entry(key, obj, int(metadata["resourceVersion"]), fields)
        entries.append(entry)
        store.uids[entry.uid] = (collection, key)
    collection.restore(entries, store.version)

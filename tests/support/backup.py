"""A backup of a control plane's store, and its restoration under the server that runs."""

from __future__ import annotations

from lean_sandbox.local.controlplane import ControlPlane
from tests.faults.history import history_of

__all__ = ["Backup"]


class Backup:
    """The objects of a control plane, and its version, as of now."""

    def __init__(self, plane: ControlPlane, *, since: int = 1_000_000) -> None:
        """Remember everything that is stored; so much else is written afterwards.

        So versions that were known by then are not reached again soon after it is restored.
        """
        store = plane._store
        self._entries = {one.storage: list(one.entries.values()) for one in store}
        self._version = store.version
        store.version += since

    def restore(self, plane: ControlPlane) -> None:
        """Put everything back, break all watches, and forget what happened since."""
        store = plane._store
        history_of(plane).end()
        plane.drop_watches()
        store.version = store.floor = self._version
        store.uids.clear()
        for collection in store:
            entries = self._entries.get(collection.storage, [])
            collection.compact(0)
            collection.restore(entries, self._version)
            store.uids |= {entry.uid: (collection, entry.key) for entry in entries}
        plane._collector._dependents.clear()
        for follower in (plane._lifecycle, plane._protection, plane._collector):
            follower.rebuild()

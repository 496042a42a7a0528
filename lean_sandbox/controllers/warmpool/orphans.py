"""Sandboxes with the label of a pool and no owner: a pool adopts or deletes them (pools, 5.3).

They are remembered from what the watch shows, so that no pass has to search all Sandboxes.
"""

from __future__ import annotations

from lean_sandbox.model import names
from lean_sandbox.model.warmpool import PoolView
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry


class OrphanIndex:
    """Where ownerless Sandboxes are, by namespace and value of the pool label."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._keys: dict[tuple[str, str], set[Key]] = {}

    def saw(self, entry: SandboxEntry) -> str | None:
        """Take in a Sandbox as it is now; return its pool label if it is an orphan."""
        label = orphaned_from(entry)
        if label is not None:
            self._keys.setdefault((entry.key.namespace, label), set()).add(entry.key)
        return label

    def of(self, pool: PoolView) -> list[SandboxEntry]:
        """Return the orphans of a pool; what is no orphan any more is forgotten."""
        place = (pool.namespace, pool.pool_hash)
        keys = self._keys.get(place, set())
        found = []
        for key in sorted(keys):
            entry = self._caches.sandboxes.get(key)
            if entry is not None and orphaned_from(entry) == pool.pool_hash:
                found.append(entry)
            else:
                keys.discard(key)
        if not keys:
            self._keys.pop(place, None)
        return found

    def forget(self, entry: SandboxEntry) -> None:
        """Drop a Sandbox that is gone or has changed."""
        place = (entry.key.namespace, (entry.labels or {}).get(names.WARM_POOL_LABEL, ""))
        keys = self._keys.get(place)
        if keys is not None:
            keys.discard(entry.key)
            if not keys:
                del self._keys[place]


def orphaned_from(entry: SandboxEntry) -> str | None:
    """Return the pool label of an orphan, ``None`` for any other Sandbox."""
    if entry.owner is not None or entry.is_deleting:
        return None
    return (entry.labels or {}).get(names.WARM_POOL_LABEL) or None

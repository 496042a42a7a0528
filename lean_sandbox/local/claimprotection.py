"""PersistentVolumeClaims in use outlive their deletion until the last Pod that mounts them is gone.

An API server puts a finalizer on every claim; a controller beside it takes it away from those that
are being deleted and that no Pod on a node mounts, be it finished or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.options import WriteOptions
from lean_sandbox.local.registry import Registry
from lean_sandbox.local.store import Collection, Entry, Event, Store
from lean_sandbox.local.verbs import PROTECTED, Verbs

Json = dict[str, Any]

_CLAIMS: Final = "persistentvolumeclaims"


class ClaimProtection:
    """Follows claims and Pods, and lets claims go at once when nothing uses them."""

    def __init__(self, store: Store, registry: Registry, verbs: Verbs) -> None:
        self._store = store
        self._registry = registry
        self._verbs = verbs
        # Names of the claims that are being deleted, by namespace.
        self._waiting: dict[str, set[str]] = {}
        store.listeners.append(self._follow)

    def rebuild(self) -> None:
        """Take in everything that is already stored, as after a restart."""
        for entry in self._store.collection(_CLAIMS).scan():
            if entry.deleting:
                self._waiting.setdefault(entry.namespace, set()).add(entry.name)
                self._look(entry.namespace)

    def _follow(self, collection: Collection, event: Event) -> None:
        entry = event.entry
        if collection.storage == _CLAIMS:
            if event.type == "DELETED":
                self._waiting.get(entry.namespace, set()).discard(entry.name)
            elif entry.deleting:
                self._waiting.setdefault(entry.namespace, set()).add(entry.name)
                self._look(entry.namespace)
        elif event.type == "DELETED" and collection.storage == "pods":
            self._look(entry.namespace)

    def _look(self, namespace: str) -> None:
        """Let the claims of a namespace go that wait and are not used."""
        kind = self._registry.get("", "v1", _CLAIMS)
        if kind is None:
            return
        for name in sorted(self._waiting.get(namespace, ())):
            if not self._is_used(namespace, name):
                self._waiting[namespace].discard(name)
                options = WriteOptions(trusted=True)
                self._verbs.update(kind, namespace, name, _released, options)

    def _is_used(self, namespace: str, name: str) -> bool:
        return any(
            pod.fields.get("spec.nodeName") and name in _claims_of(pod)
            for pod in self._store.collection("pods").scan(namespace)
        )


def _claims_of(pod: Entry) -> Iterator[str]:
    for volume in pod.load()["spec"].get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim:
            yield claim["claimName"]
        elif volume.get("ephemeral"):
            yield f"{pod.name}-{volume['name']}"


def _released(obj: Json) -> Json:
    held = obj["metadata"].get("finalizers") or ()
    obj["metadata"]["finalizers"] = [item for item in held if item != PROTECTED]
    return obj

"""What follows from single objects: namespaces that end, definitions that bring kinds."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from lean_sandbox.local.control.definitions import Definitions
from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.kinds.registry import Registry
from lean_sandbox.local.store.store import Collection, Event, Store
from lean_sandbox.local.write.admission import DEFINITIONS
from lean_sandbox.local.write.options import Deletion, WriteOptions
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]
_MANAGER: Final = "kube-controller-manager"
_ROOT_CA: Final = "kube-root-ca.crt"


class Lifecycle:
    """Follows Namespaces and CustomResourceDefinitions."""

    def __init__(self, store: Store, registry: Registry, verbs: Verbs) -> None:
        self._store = store
        self._registry = registry
        self._verbs = verbs
        self._definitions = Definitions(store, registry, verbs)
        self._ending: set[str] = set()
        self._wake = anyio.Event()
        self._new: list[str] = []
        self.ca_pem = ""
        """Shown in each namespace's ``kube-root-ca.crt``."""
        store.listeners.append(self._follow)

    def rebuild(self) -> None:
        """Take in everything that is already stored, as after a restart."""
        self._definitions.rebuild()
        for entry in self._store.collection("namespaces").scan():
            if entry.fields.get("status.phase") == "Terminating":
                self._ending.add(entry.name)
        self._wake.set()

    def _follow(self, collection: Collection, event: Event) -> None:
        storage, entry = collection.storage, event.entry
        if storage == "namespaces":
            if event.type == "ADDED":
                self._new.append(entry.name)
                self._furnish()
            elif entry.fields.get("status.phase") == "Terminating" and event.type != "DELETED":
                self._ending.add(entry.name)
                self._wake.set()
        elif storage == DEFINITIONS:
            self._definitions.follow(event)
            if self._registry.ending:
                self._wake.set()
        if event.type == "DELETED" and (entry.namespace in self._ending or self._registry.ending):
            self._wake.set()

    @property
    def is_idle(self) -> bool:
        """Say whether nothing can be done now; what waits for finalizers counts as idle."""
        return not self._wake.is_set()

    # ------------------------------------------------------------------ namespaces

    def _furnish(self) -> None:
        """Give new namespaces what the controllers of a cluster put into each."""
        while self._new:
            name = self._new.pop()
            options = WriteOptions(manager=_MANAGER)
            account = self._registry.get("", "v1", "serviceaccounts")
            config = self._registry.get("", "v1", "configmaps")
            if account is None or config is None:
                continue
            self._verbs.create(account, name, {"metadata": {"name": "default"}}, options)
            data = {"ca.crt": self.ca_pem}
            root = {"metadata": {"name": _ROOT_CA}, "data": data}
            self._verbs.create(config, name, root, options)

    def _end_namespace(self, name: str) -> None:
        namespace = self._store.collection("namespaces").entries.get(name)
        if namespace is None:
            self._ending.discard(name)
            return
        empty = True
        for collection in self._store:
            kind = self._registry.of_storage(collection.storage)
            if kind is not None and kind.namespaced:
                for entry in collection.scan(name):
                    if not entry.deleting:
                        self._verbs.delete(kind, name, entry.name, Deletion(policy="Background"))
                empty = empty and collection.is_empty(name)
        kind = self._registry.get("", "v1", "namespaces")
        if empty and kind is not None:
            self._ending.discard(name)

            def finish(obj: Json) -> Json:
                kept = obj.setdefault("spec", {}).get("finalizers") or ()
                obj["spec"]["finalizers"] = [item for item in kept if item != "kubernetes"]
                return obj

            self._verbs.rewrite(kind, "", name, finish)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            # What is refused is tried again after the next deletion.
            for name in sorted(self._ending):
                with suppress(StatusError):
                    self._end_namespace(name)
            for name in sorted(self._registry.ending):
                with suppress(StatusError):
                    self._definitions.remove_instances(name)
            await checkpoint()

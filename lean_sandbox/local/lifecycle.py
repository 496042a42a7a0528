"""What follows from single objects: namespaces that end, definitions that bring kinds."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from lean_sandbox.local.builtin import ClusterIPs
from lean_sandbox.local.deletion import CLEANUP, DEFINITIONS
from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.options import Deletion, WriteOptions
from lean_sandbox.local.registry import Definition, Kind, Registry, read_definition
from lean_sandbox.local.store import Collection, Entry, Event, Store
from lean_sandbox.local.verbs import Verbs

Json = dict[str, Any]
_TRUSTED: Final = WriteOptions(trusted=True)
_MANAGER: Final = "kube-controller-manager"
_ROOT_CA: Final = "kube-root-ca.crt"


class Lifecycle:
    """Follows Namespaces, CustomResourceDefinitions and Services."""

    def __init__(
        self, store: Store, registry: Registry, verbs: Verbs, addresses: ClusterIPs
    ) -> None:
        self._store = store
        self._registry = registry
        self._verbs = verbs
        self._addresses = addresses
        self._ending: set[str] = set()
        self._wake = anyio.Event()
        self._new: list[str] = []
        self.ca_pem = ""
        """Shown in each namespace's ``kube-root-ca.crt``."""
        store.listeners.append(self._follow)

    def rebuild(self) -> None:
        """Take in everything that is already stored, as after a restart."""
        for entry in self._store.collection(DEFINITIONS).scan():
            self._registry.define(entry.name, _definition(entry))
            if entry.deleting:
                self._registry.ending.add(entry.name)
        for entry in self._store.collection("services").scan():
            address = (entry.load().get("spec") or {}).get("clusterIP")
            if address and address != "None":
                self._addresses.note(address)
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
            self._follow_definition(event)
        elif storage == "services" and event.type == "DELETED":
            address = (entry.load().get("spec") or {}).get("clusterIP")
            if address and address != "None":
                self._addresses.give_back(address)
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
                self._delete_all(kind, collection, name)
                empty = empty and collection.is_empty(name)
        kind = self._registry.get("", "v1", "namespaces")
        if empty and kind is not None:
            self._ending.discard(name)

            def finish(obj: Json) -> Json:
                kept = obj.setdefault("spec", {}).get("finalizers") or ()
                obj["spec"]["finalizers"] = [item for item in kept if item != "kubernetes"]
                return obj

            self._verbs.update(kind, "", name, finish, _TRUSTED)

    def _delete_all(self, kind: Kind, collection: Collection, namespace: str = "") -> None:
        for entry in collection.scan(namespace):
            if not entry.deleting:
                how = Deletion(policy="Background")
                self._verbs.delete(kind, entry.namespace, entry.name, how)

    # ------------------------------------------------------------------ definitions

    def _follow_definition(self, event: Event) -> None:
        entry, name = event.entry, event.entry.name
        if event.type == "DELETED":
            if not self._registry.is_built_in(name):
                self._store.collection(name).close(event.version)
            self._registry.withdraw(name)
            self._registry.ending.discard(name)
            return
        definition = _definition(entry)
        is_changed = event.prev is None or _definition(event.prev).spec != definition.spec
        if is_changed:
            self._registry.define(name, definition)
            # Who watched what was served before comes back to what is now.
            self._store.collection(name).end_watches()
        if entry.deleting:
            self._registry.ending.add(name)
            self._wake.set()
        if is_changed or entry.deleting:
            self._establish(entry, definition.spec)

    def _establish(self, entry: Entry, spec: Json) -> None:
        """Say in the status of a definition, at once, that its names are accepted or that it ends.

        Only the status is decoded and changed; the spec is written again as the bytes it has.
        """
        members = entry.members()
        metadata: Json = msgspec.json.decode(entry.metadata_raw())
        before: Json = msgspec.json.decode(members["status"])
        now = self._verbs.now()
        words = [
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]
        if entry.deleting:
            why = "CustomResource deletion is in progress"
            words.append(("Terminating", "InstanceDeletionInProgress", why))
        known = {item["type"]: item for item in before.get("conditions") or ()}
        conditions = [
            known.get(type_)
            or {
                "type": type_,
                "status": "True",
                "lastTransitionTime": now,
                "reason": reason,
                "message": message,
            }
            for type_, reason, message in words
        ]
        storage = [version["name"] for version in spec["versions"] if version.get("storage")]
        stored = before.get("storedVersions") or []
        status = {
            **before,
            "conditions": conditions,
            "acceptedNames": spec["names"],
            "storedVersions": stored + [name for name in storage if name not in stored],
        }
        if status != before:
            changed = {**members, "metadata": metadata, "status": status}
            collection = self._store.collection(DEFINITIONS)
            self._store.put(collection, entry.key, changed, entry.fields)

    def _remove_instances(self, name: str) -> None:
        """Delete the objects of a definition that ends, then let it go."""
        collection = self._store.collection(name)
        if not self._registry.is_built_in(name):
            definition = _definition(self._store.collection(DEFINITIONS).entries[name])
            self._delete_all(definition.stored, collection)
            if not collection.is_empty():
                return

        def change(obj: Json) -> Json:
            kept = [item for item in obj["metadata"].get("finalizers") or () if item != CLEANUP]
            obj["metadata"]["finalizers"] = kept
            return obj

        own = self._registry.by_resource(DEFINITIONS)
        self._verbs.update(own, "", name, change, _TRUSTED)

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
                    self._remove_instances(name)
            await checkpoint()


def _definition(entry: Entry) -> Definition:
    return read_definition(bytes(entry.members()["spec"]))

"""What follows from single objects: namespaces, definitions and claims for volumes that end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from lean_sandbox.local.errors import ErrorCause, StatusError, invalid
from lean_sandbox.local.kinds.registry import Definition, Kind, Registry, read_definition
from lean_sandbox.local.schema import errors
from lean_sandbox.local.schema.structural import is_same
from lean_sandbox.local.store.store import Collection, Entry, Event, Store
from lean_sandbox.local.write.admission import DEFINITIONS
from lean_sandbox.local.write.bodies import Deletion, WriteOptions
from lean_sandbox.local.write.creation import PROTECTED
from lean_sandbox.local.write.objects import CLEANUP
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]
_MANAGER: Final = "kube-controller-manager"
_ROOT_CA: Final = "kube-root-ca.crt"
_CLAIMS: Final = "persistentvolumeclaims"
_NAMES: Final = (("plural", "singular", "shortNames"), ("kind", "listKind"))
"""Members that may not have a name in common, of two definitions of a group."""


class Definitions:
    """Keeps the registry up with the definitions that are stored."""

    def __init__(self, store: Store, registry: Registry, verbs: Verbs) -> None:
        self._store = store
        self._registry = registry
        self._verbs = verbs
        self._stored = store.collection(DEFINITIONS)
        verbs.admission.guards.append(self._check_names)

    def rebuild(self) -> None:
        """Take up the deletions that had begun before a restart."""
        self._registry.ending |= {entry.name for entry in self._stored.scan() if entry.deleting}

    def _check_names(self, kind: Kind, new: Json, old: Json | None) -> None:
        """Refuse names that another definition of the group has, and the groups of built-in kinds.

        Raises:
            StatusError: 422.

        """
        if kind.storage != DEFINITIONS:
            return
        spec: Json = new.get("spec") or {}
        wanted: Json = spec.get("names") or {}
        if old is not None and old["spec"]["names"] == wanted:
            return
        name = new["metadata"].get("name", "")
        found = list(self._taken(spec.get("group", ""), wanted, name))
        if found:
            raise invalid(kind.group, kind.kind, name, found)

    def _taken(self, group: str, wanted: Json, own: str) -> Iterator[ErrorCause]:
        """Give the names that are not free, for a definition that is called ``own``."""
        if group and self._registry.serves_built_in(group):
            yield errors.invalid("spec.group", group, "has kinds of the server itself")
        for other in self._stored.scan():
            spec = _definition(other).spec
            if spec["group"] != group or other.name == own:
                continue
            for members in _NAMES:
                names = [name for member in members for name in _listed(spec["names"], member)]
                for member in members:
                    for name in set(_listed(wanted, member)).intersection(names):
                        why = f"is already in use by {other.name}"
                        yield errors.invalid(f"spec.names.{member}", name, why)

    def follow(self, event: Event) -> None:
        """Do what a change of a definition brings: kinds, the end of its watches."""
        entry = event.entry
        name = event.entry.name
        if event.type == "DELETED":
            self._store.collection(name).close(event.version)
            self._registry.withdraw(name)
            self._registry.ending.discard(name)
            return
        if entry.deleting:
            self._registry.ending.add(name)
        served = _definition(entry)
        if event.prev is None or not is_same(_definition(event.prev).spec, served.spec):
            self._registry.define(name, served)
            # Who watched what was served before comes back to what is now.
            self._store.collection(name).end_watches()

    def remove_instances(self, name: str) -> None:
        """Delete the objects of a definition that ends, then let it go."""
        collection = self._store.collection(name)
        kind = _definition(self._stored.entries[name]).stored
        for entry in collection.scan():
            if not entry.deleting:
                how = Deletion(policy="Background")
                self._verbs.delete(kind, entry.namespace, entry.name, how)
        if collection.is_empty():
            own = self._registry.by_resource(DEFINITIONS)
            self._verbs.drop_finalizer(own, self._stored.entries[name], CLEANUP)


def _definition(entry: Entry) -> Definition:
    return read_definition(bytes(entry.members()["spec"]))


def _listed(names: Json, member: str) -> list[str]:
    value = names.get(member) or []
    return [value] if isinstance(value, str) else value


class NamespaceLifecycle:
    """Follows Namespaces and CustomResourceDefinitions."""

    def __init__(self, store: Store, registry: Registry, verbs: Verbs) -> None:
        self._store = store
        self._registry = registry
        self._verbs = verbs
        self._definitions = Definitions(store, registry, verbs)
        self._ending: set[str] = set()
        self._wake = anyio.Event()
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
        storage = collection.storage
        entry = event.entry
        if storage == "namespaces":
            if event.type == "ADDED":
                self._furnish(entry.name)
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

    def _furnish(self, namespace: str) -> None:
        """Give a new namespace what the controllers of a cluster put into each."""
        for plural, name, more in (
            ("serviceaccounts", "default", {}),
            ("configmaps", _ROOT_CA, {"data": {"ca.crt": self.ca_pem}}),
        ):
            made: Json = {"metadata": {"name": name}, **more}
            options = WriteOptions(manager=_MANAGER)
            self._verbs.create(self._registry.by_resource(plural), namespace, made, options)

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
        if empty:
            self._ending.discard(name)

            def finish(obj: Json) -> Json:
                kept = obj.setdefault("spec", {}).get("finalizers") or ()
                obj["spec"]["finalizers"] = [item for item in kept if item != "kubernetes"]
                return obj

            self._verbs.rewrite(self._registry.by_resource("namespaces"), "", name, finish)

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


class ClaimProtection:
    """Lets claims that are being deleted go once no Pod on a node mounts them, finished or not."""

    def __init__(self, store: Store, verbs: Verbs) -> None:
        self._verbs = verbs
        self._claims = store.collection(_CLAIMS)
        self._pods = store.collection("pods")
        store.listeners.append(self._follow)

    def rebuild(self) -> None:
        """Take in everything that is already stored, as after a restart."""
        self._look("")

    def _follow(self, collection: Collection, event: Event) -> None:
        is_gone = event.type == "DELETED"
        if is_gone if collection is self._pods else collection is self._claims and not is_gone:
            self._look(event.entry.namespace)

    def _look(self, namespace: str) -> None:
        """Let the claims of a namespace, or of all, go that are being deleted and not used."""
        for claim in self._claims.scan(namespace):
            if claim.deleting and not self._is_used(claim):
                kind = self._verbs.registry.by_resource(_CLAIMS)
                self._verbs.drop_finalizer(kind, claim, PROTECTED)

    def _is_used(self, claim: Entry) -> bool:
        return any(
            pod.fields.get("spec.nodeName") and claim.name in _claims_of(pod)
            for pod in self._pods.scan(claim.namespace)
        )


def _claims_of(pod: Entry) -> Iterator[str]:
    for volume in pod.load()["spec"].get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim:
            yield claim["claimName"]
        elif volume.get("ephemeral"):
            yield f"{pod.name}-{volume['name']}"

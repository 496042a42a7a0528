"""CustomResourceDefinitions: the kinds they bring, and their end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import Cause, invalid
from lean_sandbox.local.kinds.registry import Definition, Kind, Registry, read_definition
from lean_sandbox.local.schema import errors
from lean_sandbox.local.store.store import Entry, Event, Store
from lean_sandbox.local.write.admission import DEFINITIONS
from lean_sandbox.local.write.deletion import CLEANUP
from lean_sandbox.local.write.options import Deletion
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]

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
        """Refuse names that another definition of the group has.

        Raises:
            StatusError: 422.

        """
        if kind.storage == DEFINITIONS:
            spec, name = new.get("spec") or {}, new["metadata"].get("name", "")
            wanted = spec.get("names") or {}
            found = list(self._taken(spec.get("group", ""), wanted, name))
            if found and (old is None or old["spec"]["names"] != wanted):
                raise invalid(kind.group, kind.kind, name, found)

    def _taken(self, group: str, wanted: Json, own: str) -> Iterator[Cause]:
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
        entry, name = event.entry, event.entry.name
        if event.type == "DELETED":
            if not self._registry.is_built_in(name):
                self._store.collection(name).close(event.version)
            self._registry.withdraw(name)
            self._registry.ending.discard(name)
            return
        if entry.deleting:
            self._registry.ending.add(name)
        served = _definition(entry)
        if event.prev is None or _definition(event.prev).spec != served.spec:
            self._registry.define(name, served)
            # Who watched what was served before comes back to what is now.
            self._store.collection(name).end_watches()

    def remove_instances(self, name: str) -> None:
        """Delete the objects of a definition that ends, then let it go."""
        collection = self._store.collection(name)
        if not self._registry.is_built_in(name):
            kind = _definition(self._stored.entries[name]).stored
            for entry in collection.scan():
                if not entry.deleting:
                    how = Deletion(policy="Background")
                    self._verbs.delete(kind, entry.namespace, entry.name, how)
            if not collection.is_empty():
                return
        own = self._registry.by_resource(DEFINITIONS)
        self._verbs.drop_finalizer(own, self._stored.entries[name], CLEANUP)


def _definition(entry: Entry) -> Definition:
    return read_definition(bytes(entry.members()["spec"]))


def _listed(names: Json, member: str) -> list[str]:
    value = names.get(member) or []
    return [value] if isinstance(value, str) else value

"""CustomResourceDefinitions: the names they may have, the kinds they bring, their end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from lean_sandbox.local.kinds.registry import Definition, Registry, read_definition
from lean_sandbox.local.store.store import Entry, Event, Store
from lean_sandbox.local.write.deletion import CLEANUP, DEFINITIONS
from lean_sandbox.local.write.options import Deletion
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]

_RESOURCES: Final = ("plural", "singular", "shortNames")
_KINDS: Final = ("kind", "listKind")
_REASONS: Final = {
    "plural": "PluralConflict",
    "singular": "SingularConflict",
    "shortNames": "ShortNamesConflict",
    "kind": "KindConflict",
    "listKind": "ListKindConflict",
}


def accept_names(wanted: Json, before: Json, taken: list[Json]) -> tuple[Json, str, str]:
    """Return the names that a definition may have, and the reason and message about them.

    ``before`` are the names it has, ``taken`` those of the others of its group. A name that is
    taken is not accepted; what the definition had in its place stays.
    """
    accepted = {"plural": "", "kind": "", **before, "categories": wanted.get("categories")}
    reason, message = "NoConflicts", "no conflicts found"
    for members in (_RESOURCES, _KINDS):
        used = {name for names in taken for name in _listed(names, members)}
        for member in members:
            clashes = [f'"{n}" is already in use' for n in _listed(wanted, [member]) if n in used]
            if clashes:
                text = ", ".join(clashes)
                reason, message = _REASONS[member], f"[{text}]" if len(clashes) > 1 else text
            else:
                accepted[member] = wanted.get(member)
    return {key: value for key, value in accepted.items() if value is not None}, reason, message


def _listed(names: Json, members: Iterable[str]) -> list[str]:
    found: list[str] = []
    for member in members:
        value = names.get(member) or []
        found.extend([value] if isinstance(value, str) else value)
    return found


def _condition(type_: str, status: str, reason: str, message: str) -> Json:
    return {"type": type_, "status": status, "reason": reason, "message": message}


class Definitions:
    """Keeps the registry and the statuses of the definitions up with what is stored."""

    def __init__(self, store: Store, registry: Registry, verbs: Verbs) -> None:
        self._store = store
        self._registry = registry
        self._verbs = verbs
        self._stored = store.collection(DEFINITIONS)

    def rebuild(self) -> None:
        """Take in everything that is already stored, as after a restart."""
        for entry in self._stored.scan():
            served = _served(entry)
            if served is not None:
                self._registry.define(entry.name, served)
            if entry.deleting:
                self._registry.ending.add(entry.name)

    def follow(self, event: Event) -> None:
        """Do what a change of a definition brings: names, kinds, the end of its watches."""
        entry, name = event.entry, event.entry.name
        if event.type == "DELETED":
            if not self._registry.is_built_in(name):
                self._store.collection(name).close(event.version)
            self._registry.withdraw(name)
            self._registry.ending.discard(name)
            self._retry(_definition(entry).spec["group"])
            return
        if entry.deleting:
            self._registry.ending.add(name)
        served = _served(entry)
        before = None if event.prev is None else _served(event.prev)
        if served is not None and (before is None or before.spec != served.spec):
            self._registry.define(name, served)
            # Who watched what was served before comes back to what is now.
            self._store.collection(name).end_watches()
            self._retry(served.spec["group"])
        self._establish(entry)

    def _retry(self, group: str) -> None:
        """Look again at the definitions of a group that may have their names only now."""
        for entry in self._stored.scan():
            if _definition(entry).spec["group"] == group and _served(entry) is None:
                self._establish(entry)

    def _establish(self, entry: Entry) -> None:
        """Say in the status of a definition, at once, which names it has, or that it ends.

        Only the status is decoded and changed; the spec is written again as the bytes it has.
        """
        members, before, spec = entry.members(), _status(entry), _definition(entry).spec
        others = [
            _status(other).get("acceptedNames") or {}
            for other in self._stored.scan()
            if other.name != entry.name and _definition(other).spec["group"] == spec["group"]
        ]
        known = {item["type"]: item for item in before.get("conditions") or ()}
        names, reason, why = accept_names(spec["names"], before.get("acceptedNames") or {}, others)
        status = "True" if reason == "NoConflicts" else "False"
        conditions = [_condition("NamesAccepted", status, reason, why)]
        if known.get("Established", {}).get("status") == "True":
            conditions.append(known["Established"])
        elif status == "True":
            why = "the initial names have been accepted"
            conditions.append(_condition("Established", status, "InitialNamesAccepted", why))
        else:
            why = "not all names are accepted"
            conditions.append(_condition("Established", status, "NotAccepted", why))
        if entry.deleting:
            why = "CustomResource deletion is in progress"
            conditions.append(_condition("Terminating", "True", "InstanceDeletionInProgress", why))
        for condition in conditions:
            old = known.get(condition["type"], {})
            same = old.get("status") == condition["status"]
            condition["lastTransitionTime"] = (
                old["lastTransitionTime"] if same else self._verbs.now()
            )
        storage = [version["name"] for version in spec["versions"] if version.get("storage")]
        stored = before.get("storedVersions") or []
        after = {
            **before,
            "conditions": conditions,
            "acceptedNames": names,
            "storedVersions": stored + [name for name in storage if name not in stored],
        }
        if after != before:
            metadata: Json = msgspec.json.decode(entry.metadata_raw())
            changed = {**members, "metadata": metadata, "status": after}
            self._store.put(self._stored, entry.key, changed, entry.fields)

    def remove_instances(self, name: str) -> None:
        """Delete the objects of a definition that ends, then let it go."""
        collection = self._store.collection(name)
        if not self._registry.is_built_in(name):
            kind = _definition(self._stored.entries[name]).stored
            for entry in collection.scan():
                if not entry.deleting:
                    self._verbs.delete(
                        kind, entry.namespace, entry.name, Deletion(policy="Background")
                    )
            if not collection.is_empty():
                return
        own = self._registry.by_resource(DEFINITIONS)
        self._verbs.drop_finalizer(own, self._stored.entries[name], CLEANUP)


def _definition(entry: Entry) -> Definition:
    return read_definition(bytes(entry.members()["spec"]))


def _status(entry: Entry) -> Json:
    return dict(msgspec.json.decode(entry.members()["status"]))


def _served(entry: Entry) -> Definition | None:
    """Return a definition with the names it has, None before it has any."""
    status, definition = _status(entry), _definition(entry)
    conditions = {item["type"]: item["status"] for item in status.get("conditions") or ()}
    if conditions.get("Established") != "True":
        return None
    names = status["acceptedNames"]
    if names == definition.spec["names"]:
        return definition
    return read_definition(msgspec.json.encode({**definition.spec, "names": names}))
